//! Tells the people who operate a node what happens to its run: the command of `on_event` gets a
//! record on its standard input.
//!
//! ```text
//! events of the node -> Notifier -> Queue, at most 64 -> a thread -> one command after the other
//! ```
//!
//! * Upon the first report that the node waits, since a round was done: `waits`.
//! * Upon members that lack nodes which were members: `lost`.
//! * Upon a round: `returned` for the nodes of these two records that are there again.
//! * Upon the end of the run: `ended`, or `failed` if it could not continue.
//!
//! No round waits for a command. The end of the run waits for the last one, up to its limit.

use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Instant,
};

use serde::Serialize;

use super::{EndError, Event, NodeResult, command::Command};
use crate::{run::Design, status::utc, threads, units::NodeId};

/// The version of the form of a record.
const VERSION: u32 = 1;

/// The maximum number of records that wait for their command.
const MOST_QUEUED: usize = 64;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
enum Kind {
    Waits,
    Lost,
    Returned,
    Failed,
    Ended,
}

impl From<Kind> for &'static str {
    fn from(kind: Kind) -> &'static str {
        match kind {
            Kind::Waits => "waits",
            Kind::Lost => "lost",
            Kind::Returned => "returned",
            Kind::Failed => "failed",
            Kind::Ended => "ended",
        }
    }
}

/// What a command gets, as one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Record {
    version: u32,
    /// `run.id`.
    run: String,
    /// The name of this node.
    node: String,
    event: Kind,
    /// In UTC, as RFC 3339 writes it.
    time: String,
    /// The rounds that this node has done.
    round: u64,
    /// The names of the nodes that it concerns.
    nodes: Vec<String>,
    text: String,
}

/// Tells what happens to the run of a node, if its file names a command.
pub(super) struct Notices(RefCell<Option<Notifier>>);

impl Notices {
    /// For a node of this run, all nodes of which are members.
    pub(super) fn start(command: Option<Command>, design: &Design, node: NodeId) -> Notices {
        let name = |node: NodeId| design.topology.node(node).name.clone();
        let members = || (0..design.topology.nodes()).map(|node| name(node.into())).collect();
        let run = &design.experiment.run.id;
        let notifier = command.map(|command| Notifier::new(command, run, name(node), members()));
        Notices(RefCell::new(notifier))
    }

    /// Upon an event of the node.
    pub(super) fn follow(&self, event: &Event) {
        if let Some(notifier) = &mut *self.0.borrow_mut() {
            notifier.follow(event);
        }
    }

    /// The run begins or continues with these members, all of which are linked.
    pub(super) fn continues(&self, members: impl Iterator<Item = String>) {
        if let Some(notifier) = &mut *self.0.borrow_mut() {
            notifier.continues(members.collect());
        }
    }

    /// The run is over for this node. Waits for the command that is told so.
    pub(super) fn end(self, result: &Result<NodeResult, EndError>) {
        if let Some(notifier) = self.0.into_inner() {
            notifier.end(result);
        }
    }
}

/// What a node knows of its run and of the nodes that are away.
struct Notifier {
    run: String,
    node: String,
    round: u64,
    members: BTreeSet<String>,
    /// Neighbours whose links are lost.
    unlinked: BTreeSet<String>,
    /// Nodes that were reported as lost, or as awaited while their links were.
    absent: BTreeSet<String>,
    /// Whether it was reported that the node waits, since it has done a round.
    waits: bool,
    queue: Arc<Queue>,
    /// Runs the commands.
    worker: Option<JoinHandle<()>>,
}

impl Notifier {
    /// Without a thread nothing is told but a warning.
    fn new(command: Command, run: &str, node: String, members: BTreeSet<String>) -> Notifier {
        let queue = Arc::new(Queue::default());
        let shared = Arc::clone(&queue);
        let worker = threads::spawn("gradvine-events", move || shared.work(&command));
        if let Err(error) = &worker {
            tracing::warn!("node.on_event is not called for any event: {error}");
        }
        Notifier {
            run: run.into(),
            node,
            round: 0,
            members,
            unlinked: BTreeSet::new(),
            absent: BTreeSet::new(),
            waits: false,
            queue,
            worker: worker.ok(),
        }
    }

    fn follow(&mut self, event: &Event) {
        match event {
            Event::Round { rounds, .. } => self.done(*rounds),
            Event::Resumed { rounds } => self.round = *rounds,
            Event::Linked { peer, .. } => _ = self.unlinked.remove(peer),
            Event::LinkLost { peer, .. } => _ = self.unlinked.insert(peer.clone()),
            Event::Waiting { peers, text } => self.wait(peers, text),
            _ => {}
        }
    }

    fn continues(&mut self, members: BTreeSet<String>) {
        self.unlinked.clear();
        let before = std::mem::replace(&mut self.members, members);
        let lost: Vec<String> = before.difference(&self.members).cloned().collect();
        if !lost.is_empty() {
            self.absent.extend(lost.iter().cloned());
            let what = match self.round {
                0 => "begins".to_string(),
                round => format!("continues after round {round}"),
            };
            let (names, members) = (lost.join(", "), self.members.len());
            let text = format!("the run {what} without {names}, with {members} members");
            self.tell(Kind::Lost, lost, text);
        }
    }

    fn done(&mut self, rounds: u64) {
        (self.round, self.waits) = (rounds, false);
        let is_here =
            |name: &&String| self.members.contains(*name) && !self.unlinked.contains(*name);
        let returned: Vec<String> = self.absent.iter().filter(is_here).cloned().collect();
        if !returned.is_empty() {
            self.absent.retain(|name| !returned.contains(name));
            let text = format!("{} takes part again, in round {rounds}", returned.join(", "));
            self.tell(Kind::Returned, returned, text);
        }
    }

    fn wait(&mut self, peers: &[String], text: &str) {
        if !std::mem::replace(&mut self.waits, true) {
            let lost = peers.iter().filter(|peer| self.unlinked.contains(*peer));
            self.absent.extend(lost.cloned());
            self.tell(Kind::Waits, peers.to_vec(), text.into());
        }
    }

    fn end(mut self, result: &Result<NodeResult, EndError>) {
        let (kind, nodes, text) = match result {
            Ok(made) => {
                let (rounds, folder) = (made.summary.rounds, made.directory.as_ref());
                self.round = rounds;
                let place = folder.map(|made| format!("; the results are in {}", made.display()));
                let text =
                    format!("the run is over after {rounds} rounds{}", place.unwrap_or_default());
                (Kind::Ended, made.summary.away.keys().cloned().collect(), text)
            }
            Err(error) => {
                let kind = match error {
                    EndError::Setup(_) | EndError::Failed(_) => Kind::Failed,
                    EndError::Short(_) | EndError::Interrupted(_) | EndError::Left(_) => {
                        Kind::Ended
                    }
                };
                let ending = error.ending();
                let nodes = ending.iter().flat_map(|it| it.node.iter().chain(&it.awaited));
                let nodes: BTreeSet<String> = nodes.cloned().collect();
                self.round = ending.and_then(|ending| ending.rounds).unwrap_or(self.round);
                (kind, nodes.into_iter().collect(), error.to_string())
            }
        };
        self.tell(kind, nodes, text);
        self.queue.close();
        // A panic of the thread is in the log already.
        let _ = self.worker.take().map(JoinHandle::join);
    }

    fn tell(&self, event: Kind, nodes: Vec<String>, text: String) {
        if self.worker.is_some() {
            let (run, node) = (self.run.clone(), self.node.clone());
            let (version, time, round) = (VERSION, utc(), self.round);
            self.queue.push(Record { version, run, node, event, time, round, nodes, text });
        }
    }
}

/// A node that ends by a panic waits for no command, but its thread ends.
impl Drop for Notifier {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Records that wait for their command.
#[derive(Default)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    records: VecDeque<Record>,
    /// When the last record was added.
    closed: Option<Instant>,
}

impl Queue {
    /// Adds a record. If there are too many, drops the oldest `waits`, else the oldest.
    fn push(&self, record: Record) {
        let mut state = self.lock();
        state.records.push_back(record);
        if state.records.len() > MOST_QUEUED {
            let waits = state.records.iter().position(|record| record.event == Kind::Waits);
            if let Some(Record { event, round, .. }) = state.records.remove(waits.unwrap_or(0)) {
                let event: &str = event.into();
                tracing::warn!(
                    "{MOST_QUEUED} events wait for node.on_event, which takes long: {event} of \
                     round {round} is dropped"
                );
            }
        }
        self.changed.notify_one();
    }

    /// No record follows.
    fn close(&self) {
        self.lock().closed.get_or_insert_with(Instant::now);
        self.changed.notify_one();
    }

    /// Runs the commands of all records.
    fn work(&self, command: &Command) {
        while let Some((record, skipped)) = self.next(command) {
            let (event, round): (&str, u64) = (record.event.into(), record.round);
            if skipped {
                tracing::warn!(
                    "the run is over, and node.on_event takes long: it is not called for {event} \
                     of round {round}"
                );
                continue;
            }
            let text = serde_json::to_string(&record).expect("texts and numbers have a form");
            let program = command.program().display();
            match command.run(&(text + "\n")) {
                Ok(printed) => tracing::debug!("{program}, called for {event}, says: {printed}"),
                Err(problem) => tracing::warn!(
                    "node.on_event: {program}, called for {event} of round {round}, {problem}"
                ),
            }
        }
    }

    /// The next record, and whether it is to be skipped: once the run has been over for as long as
    /// a command may take, only the last one counts. `None` if there will be no more.
    fn next(&self, command: &Command) -> Option<(Record, bool)> {
        let mut state = self.lock();
        while state.records.is_empty() && state.closed.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let record = state.records.pop_front()?;
        let is_late = state.closed.is_some_and(|closed| closed.elapsed() >= command.limit);
        Some((record, is_late && !state.records.is_empty()))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
        thread,
        time::Duration,
    };

    use serde_json::{Value, json};

    use super::*;
    use crate::run::{Ending, NodeFile};

    /// A node of a run of four whose command is a script; the records are in the file `records`.
    struct Told {
        folder: tempfile::TempDir,
        notifier: Option<Notifier>,
    }

    impl Told {
        fn by(script: &str, limit_s: f64) -> Told {
            let folder = tempfile::tempdir().unwrap();
            let script = format!("cd {}; {script}", folder.path().display());
            let words = ["sh", "-c", &script].map(String::from).to_vec();
            let (on_event, on_event_s) = (Some(words), Some(limit_s));
            let file = NodeFile { on_event, on_event_s, ..NodeFile::default() };
            let command = Command::of(&file).unwrap().unwrap();
            let notifier = Notifier::new(command, "trial", "a".into(), names("a b c d"));
            Told { folder, notifier: Some(notifier) }
        }

        fn notifier(&mut self) -> &mut Notifier {
            self.notifier.as_mut().unwrap()
        }

        fn round(&mut self, rounds: u64) {
            let (loss, mean_loss) = (0.0, 0.0);
            let (traffic, elapsed) = Default::default();
            let round = Event::Round { rounds, loss, mean_loss, traffic, elapsed };
            self.notifier().follow(&round);
        }

        fn waits(&mut self, peers: &str, text: &str) {
            let peers = names(peers).into_iter().collect();
            self.notifier().follow(&Event::Waiting { peers, text: text.into() });
        }

        fn lose(&mut self, peer: &str) {
            let (peer, reason) = (peer.into(), "reset".into());
            self.notifier().follow(&Event::LinkLost { peer, reason });
        }

        fn link(&mut self, peer: &str) {
            self.notifier().follow(&Event::Linked { peer: peer.into(), up: 1, links: 1 });
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// The records once the run has ended so, as event, round, nodes and text.
        fn end(mut self, error: EndError) -> Vec<Value> {
            self.notifier.take().unwrap().end(&Err(error));
            records(&self.path("records"))
        }
    }

    fn names(names: &str) -> BTreeSet<String> {
        names.split_whitespace().map(String::from).collect()
    }

    fn records(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n'), "{text}");
        let record = |line: &str| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            let time = record["time"].take();
            // 2026-01-02T03:04:05Z
            let is_time = |(at, c): (usize, char)| match at {
                4 | 7 => c == '-',
                10 => c == 'T',
                13 | 16 => c == ':',
                19 => c == 'Z',
                _ => c.is_ascii_digit(),
            };
            let time = time.as_str().unwrap();
            assert!(time.len() == 20 && time.chars().enumerate().all(is_time), "{time}");
            record
        };
        text.lines().map(record).collect()
    }

    fn record(event: &str, round: u64, nodes: &str, text: &str) -> Value {
        json!({
            "version": 1, "run": "trial", "node": "a", "event": event, "time": null,
            "round": round, "nodes": names(nodes), "text": text,
        })
    }

    fn stopped() -> EndError {
        let ending = Ending { text: "stopped".into(), rounds: Some(9), ..Ending::default() };
        EndError::Interrupted(ending)
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    const KEEP: &str = "cat >> records";

    #[test]
    fn a_wait_is_told_once_until_a_round_is_done() {
        let mut told = Told::by(KEEP, 60.0);
        told.waits("b c", "not all are linked");
        told.waits("c", "not all are linked still");
        told.round(1);
        told.round(2);
        told.waits("d", "d is slow");
        told.round(3);
        let expected = [
            record("waits", 0, "b c", "not all are linked"),
            record("waits", 2, "d", "d is slow"),
            record("ended", 9, "", "stopped"),
        ];
        assert_eq!(told.end(stopped()), expected, "nobody was away, so nobody has returned");
    }

    #[test]
    fn an_awaited_neighbour_has_returned_once_a_round_is_done_with_it() {
        let mut told = Told::by(KEEP, 60.0);
        told.round(4);
        // A link that is made again at once is nothing to tell.
        told.lose("b");
        told.link("b");
        told.round(5);
        told.lose("b");
        told.waits("b", "node a waits for the link to b (reset)");
        told.round(6);
        told.link("b");
        told.notifier().follow(&Event::Resumed { rounds: 5 });
        told.round(6);
        told.round(7);
        let expected = [
            record("waits", 5, "b", "node a waits for the link to b (reset)"),
            record("returned", 6, "b", "b takes part again, in round 6"),
            record("ended", 9, "", "stopped"),
        ];
        assert_eq!(told.end(stopped()), expected);
    }

    #[test]
    fn members_are_lost_and_return() {
        let mut told = Told::by(KEEP, 60.0);
        told.notifier().continues(names("a b c d"));
        told.round(8);
        told.lose("d");
        told.waits("d", "d is away");
        told.notifier().follow(&Event::Resumed { rounds: 6 });
        told.notifier().continues(names("a b"));
        told.round(7);
        told.notifier().continues(names("a b d"));
        told.round(8);
        let awaited = Ending { awaited: vec!["c".into()], node: Some("b".into()), ..stopped_at(8) };
        let expected = [
            record("waits", 8, "d", "d is away"),
            record(
                "lost",
                6,
                "c d",
                "the run continues after round 6 without c, d, with 2 members",
            ),
            record("returned", 8, "d", "d takes part again, in round 8"),
            record("failed", 8, "b c", "too few"),
        ];
        assert_eq!(told.end(EndError::Failed(awaited)), expected);
        let mut told = Told::by(KEEP, 60.0);
        told.notifier().continues(names("a c d"));
        let text = "the run begins without b, with 3 members";
        let expected = [record("lost", 0, "b", text), record("ended", 9, "", "stopped")];
        assert_eq!(told.end(stopped()), expected);
    }

    fn stopped_at(rounds: u64) -> Ending {
        Ending { text: "too few".into(), rounds: Some(rounds), ..Ending::default() }
    }

    #[test]
    fn of_too_many_events_the_oldest_waits_are_dropped() {
        let script = "cat >> records; touch begun; while [ ! -e go ]; do sleep 0.01; done";
        let mut told = Told::by(script, 900.0);
        told.notifier().continues(names("a b c"));
        until("the first command", || told.path("begun").exists());
        told.notifier().continues(names("a b"));
        // One more than fits, and the end.
        for round in 1..=64 {
            told.waits("b", &format!("after round {}", round - 1));
            told.round(round);
        }
        let file = told.path("go");
        let opener = thread::spawn(move || fs::write(file, "").unwrap());
        let found = told.end(stopped());
        opener.join().unwrap();
        let events = |event: &str| found.iter().filter(|found| found["event"] == *event).count();
        assert_eq!((events("lost"), events("ended")), (2, 1));
        let waits: Vec<u64> = found
            .iter()
            .filter(|found| found["event"] == "waits")
            .map(|found| found["round"].as_u64().unwrap())
            .collect();
        // The end takes the place of one more, unless the opener was first.
        assert!(
            waits == (1..64).collect::<Vec<_>>() || waits == (2..64).collect::<Vec<_>>(),
            "{waits:?}"
        );
    }

    #[test]
    fn the_end_is_told_after_commands_that_hang() {
        // The script's own program is waited for: it is killed with it.
        let script =
            "read line; echo \"$line\" >> records; case $line in *'\"lost\"'*) sleep 1000; esac";
        let mut told = Told::by(script, 2.0);
        for members in ["a b c", "a b", "a"] {
            told.notifier().continues(names(members));
        }
        let found = told.end(stopped());
        assert_eq!(found[0]["event"], "lost");
        assert_eq!(found.last().unwrap()["event"], "ended");
        assert!(found.len() < 4, "the last of three is skipped: {found:?}");
    }

    #[test]
    fn a_node_that_panics_leaves_no_thread() {
        let mut told = Told::by(KEEP, 60.0);
        let queue = Arc::clone(&told.notifier().queue);
        told.waits("b", "b is away");
        drop(told.notifier.take());
        until("the end of the thread", || Arc::strong_count(&queue) == 1);
        assert_eq!(records(&told.path("records")), [record("waits", 0, "b", "b is away")]);
    }
}
