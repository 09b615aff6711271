//! Checkpoints: the state of one node after some rounds, in files that survive the loss of the
//! process and of power.
//!
//! ```text
//! RUN/checkpoints/NODE/run.json                       what the checkpoints belong to
//! RUN/checkpoints/NODE/begun                          empty: the run has started
//! RUN/checkpoints/NODE/membership.json                the membership that the node adopted last
//! RUN/checkpoints/NODE/round-000000000120.safetensors
//! ```
//!
//! Each of these files but `begun` says whose it is ([`Owner`]).

mod file;
mod owner;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use self::file::Unusable;
use super::{Design, directory::folder::CHECKPOINTS};
use crate::{
    config::{ConfigError, differences},
    data::{Disk, FileSystem, ReadOnly, replace_file},
    digest,
    drive::{Change, Membership},
    gossip::plan,
    units::Round,
};

pub use self::file::Checkpoint;
pub(crate) use self::owner::Owner;

const RUN: &str = "run.json";
const STARTED: &str = "begun";
pub(super) const MEMBERSHIP: &str = "membership.json";
const PREFIX: &str = "round-";
const SUFFIX: &str = ".safetensors";

/// The run and the node whose checkpoints are in a folder.
#[derive(Serialize, Deserialize)]
struct Identity {
    owner: Owner,
    /// The canonical texts of topology, experiment and model.
    sections: [String; 3],
    /// How often the program was started again.
    restarts: u64,
}

/// The membership that a node has adopted.
#[derive(Serialize, Deserialize)]
struct Adopted {
    owner: Owner,
    #[serde(flatten)]
    membership: Membership,
}

/// The checkpoints of one node.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    owner: Owner,
    /// How often one is written.
    pub(crate) every: Every,
    /// Rounds after which none is needed: the run is over.
    pub(crate) last: Option<u64>,
    /// Whether the node has been part of this run before.
    pub(crate) used: bool,
    /// How often the program was started again.
    pub(crate) restarts: u64,
    /// The results that this node has, if any: then it looks for the others only for a moment.
    pub(crate) results: Option<Written>,
}

/// Results that a node has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Identifies them: [`digest::short`] of the mean.
    pub(crate) number: u64,
    /// The last change of the members, if there was one.
    last: Option<Change>,
}

impl Written {
    /// Those with this mean and history.
    pub(crate) fn of(mean: &[f32], history: &[Change]) -> Written {
        Written { number: digest::short(mean), last: history.last().cloned() }
    }

    /// Whether these members of a run with so many nodes have formed them.
    pub(crate) fn is_of(&self, membership: &Membership, nodes: usize) -> bool {
        match &self.last {
            Some(last) => (&last.members, &last.cut) == (&membership.members, &membership.cut),
            None => membership.is_whole(nodes),
        }
    }
}

/// How often a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub(crate) enum Every {
    /// After this many rounds each.
    Rounds(u64),
    /// After each interval of this length.
    Time(Duration),
    /// Once, after this round.
    Once(Round),
    /// Never: a run that is disturbed starts from the beginning.
    Never,
}

impl Every {
    /// How often the nodes of a run write one: never if something is always in flight.
    pub(crate) fn of(design: &Design) -> Every {
        let params = &design.experiment.checkpoint;
        match params.every_rounds {
            _ if !plan::can_pause(&*design.rule.plan) => Every::Never,
            Some(rounds) => Every::Rounds(rounds),
            None if params.every_s > 0.0 => Every::Time(Duration::from_secs_f64(params.every_s)),
            None => Every::Never,
        }
    }
}

/// Describes the first difference of two canonical texts.
fn difference(saved: &str, now: &str) -> String {
    let all = differences(saved, now);
    let Some((key, saved, now)) = all.first() else { return "the order of its lines".into() };
    let word = |value: Option<&str>| match value {
        Some(value) => value.chars().take(120).collect(),
        None => "absent".to_string(),
    };
    format!("{key} = {} in the checkpoints, {} now", word(*saved), word(*now))
}

impl Identity {
    /// Compares it with what this owner and these sections are now.
    ///
    /// # Errors
    /// The first difference.
    fn compare(&self, owner: &Owner, sections: &[String; 3]) -> Result<(), String> {
        let names = ["topology", "experiment", "model"];
        for ((saved, now), name) in self.sections.iter().zip(sections).zip(names) {
            if saved != now {
                return Err(format!("{name}: {}", difference(saved, now)));
            }
        }
        let now = owner.clone().in_incarnation(&self.owner.incarnation);
        self.owner.difference(&now).map_or(Ok(()), |of| Err(format!("they are {of}")))
    }
}

/// The checkpoints of a folder are those of another run.
fn foreign(folder: &Path, what: &str) -> ConfigError {
    ConfigError::new(
        "checkpoints",
        folder.display(),
        format!(
            "belong to another run: {what}; give the files of that run to continue with it, name \
             another run directory, or start from the beginning with --fresh (in Python: \
             fresh=True)"
        ),
    )
}

/// The memberships and rounds of checkpoints, each with the digest of the history before it, and
/// the newest one.
pub(crate) type Available = (Vec<(u64, u64, u64)>, Option<Checkpoint>);

impl Checkpoints {
    /// The checkpoints of a node in the folder of a run, which may have none yet. `sections` are
    /// the canonical texts of topology, experiment and model.
    ///
    /// # Errors
    /// If they belong to another node or another run, or the folder cannot be written.
    pub(crate) fn open(
        run: &Path,
        every: Every,
        owner: Owner,
        sections: &[String; 3],
    ) -> Result<Checkpoints, ConfigError> {
        Checkpoints::open_on(Arc::new(FileSystem), run, every, owner, sections)
    }

    /// Checks the same; nothing is written.
    ///
    /// # Errors
    /// If they belong to another node or another run.
    pub(crate) fn check(
        run: &Path,
        every: Every,
        owner: Owner,
        sections: &[String; 3],
    ) -> Result<(), ConfigError> {
        Checkpoints::open_on(Arc::new(ReadOnly), run, every, owner, sections).map(drop)
    }

    /// The same on another disk.
    ///
    /// # Errors
    /// As `Checkpoints::open`.
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        run: &Path,
        every: Every,
        mut owner: Owner,
        sections: &[String; 3],
    ) -> Result<Checkpoints, ConfigError> {
        let folder = run.join(CHECKPOINTS).join(owner.name());
        let wrong = |error: io::Error| {
            ConfigError::new("checkpoints", folder.display(), format!("cannot be used: {error}"))
        };
        disk.create_folder(&folder).map_err(wrong)?;
        for name in disk.names(&folder).map_err(wrong)? {
            // A program that was killed was writing it. One that stays takes space only.
            if name.ends_with(".part") {
                let _ = disk.remove_file(&folder.join(name));
            }
        }
        let path = folder.join(RUN);
        let saved = match disk.read(&path) {
            Ok(bytes) => Some(serde_json::from_slice::<Identity>(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(wrong(error)),
        };
        let restarts = match saved {
            // The files of a run that never began may be corrected.
            saved if !disk.exists(&folder.join(STARTED)) => {
                if let Some(Ok(saved)) = saved
                    && saved.owner.is_same_place(&owner)
                {
                    owner.incarnation = saved.owner.incarnation;
                }
                None
            }
            None => None,
            Some(Err(error)) => {
                return Err(foreign(&folder, &format!("{RUN} cannot be read: {error}")));
            }
            Some(Ok(saved)) => {
                saved.compare(&owner, sections).map_err(|what| foreign(&folder, &what))?;
                owner.incarnation = saved.owner.incarnation;
                Some(saved.restarts + 1)
            }
        };
        let (used, restarts) = (restarts.is_some(), restarts.unwrap_or(0));
        let identity = Identity { owner: owner.clone(), sections: sections.clone(), restarts };
        let text = serde_json::to_vec(&identity).map_err(|error| wrong(error.into()))?;
        replace_file(&*disk, &path, &mut |file| file.write_all(&text))?;
        Ok(Checkpoints { disk, folder, owner, every, last: None, used, restarts, results: None })
    }

    /// The checkpoints of all nodes of a run in one process, whose `sections` are these. The last
    /// round needs none.
    ///
    /// # Errors
    /// As `Checkpoints::open`.
    pub fn of_all(
        design: &Design,
        run: &Path,
        sections: &[String; 3],
    ) -> Result<Vec<Checkpoints>, ConfigError> {
        let last = Some(design.experiment.run.rounds);
        let one = |node: usize| {
            let owner = Owner::new(design, node.into(), sections);
            let all = Checkpoints::open(run, Every::of(design), owner, sections)?;
            Ok(Checkpoints { last, ..all })
        };
        (0..design.topology.nodes()).map(one).collect()
    }

    /// The membership that the node has adopted last, if it has adopted any.
    ///
    /// # Errors
    /// If the file cannot be read, or is of another node or run.
    pub(crate) fn membership(&self) -> Result<Option<Membership>, ConfigError> {
        let path = self.folder.join(MEMBERSHIP);
        let wrong = |problem: String| ConfigError::at("membership", problem).within(path.display());
        match self.disk.read(&path) {
            Ok(bytes) => {
                let adopted: Adopted =
                    serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
                match adopted.owner.difference(&self.owner) {
                    Some(of) => Err(foreign(&self.folder, &format!("{MEMBERSHIP} is {of}"))),
                    None => Ok(Some(adopted.membership)),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrong(format!("cannot be read: {error}"))),
        }
    }

    /// Records the membership that the node adopts; it is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn adopt(&self, membership: &Membership) -> Result<(), ConfigError> {
        let adopted = Adopted { owner: self.owner.clone(), membership: membership.clone() };
        let text = serde_json::to_vec(&adopted).expect("a membership serialises to JSON");
        let path = self.folder.join(MEMBERSHIP);
        Ok(replace_file(&*self.disk, &path, &mut |file| file.write_all(&text))?)
    }

    /// Records that the run has started.
    pub(crate) fn begin(&self) {
        // Without it a node that is started again waits for a shorter time.
        let _ = self.disk.write(&self.folder.join(STARTED), &mut |_| Ok(()));
    }

    /// Whether the run has started.
    pub(crate) fn has_started(&self) -> bool {
        self.disk.exists(&self.folder.join(STARTED))
    }

    fn path(&self, rounds: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{rounds:012}{SUFFIX}"))
    }

    /// The rounds of which there are files, ascending.
    pub(crate) fn rounds(&self) -> Vec<u64> {
        let round = |name: String| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok();
        let names = self.disk.names(&self.folder).unwrap_or_default();
        let mut rounds: Vec<u64> = names.into_iter().filter_map(round).collect();
        rounds.sort_unstable();
        rounds
    }

    /// The memberships, rounds and digests of histories of the checkpoints that can be used,
    /// ascending, and the newest of them. A checkpoint that cannot be used is reported.
    ///
    /// # Errors
    /// If some are there, and are of another node or run, and none is this node's own.
    pub(crate) fn available(&self) -> Result<Available, ConfigError> {
        let (mut all, mut newest, mut others) = (Vec::new(), None, None);
        for round in self.rounds() {
            match self.read(round) {
                Ok(checkpoint) => {
                    let history = Change::digest(&checkpoint.history);
                    let place = (checkpoint.membership, round, history);
                    if all.iter().all(|other| place > *other) {
                        newest = Some(checkpoint);
                    }
                    all.push(place);
                }
                Err(problem) => {
                    let error = self.unusable(round, &problem);
                    if let Unusable::Foreign(of) = problem {
                        let name = self.path(round);
                        let name = name.file_name().unwrap_or_default().to_string_lossy();
                        others = Some(format!("{name} is {of}"));
                    }
                    tracing::warn!("{error}; an earlier one is used");
                }
            }
        }
        if let (true, Some(what)) = (all.is_empty(), others) {
            return Err(foreign(&self.folder, &what));
        }
        all.sort_unstable();
        Ok((all, newest))
    }

    fn read(&self, rounds: u64) -> Result<Checkpoint, Unusable> {
        Checkpoint::read(&*self.disk, &self.path(rounds), rounds, &self.owner)
    }

    fn unusable(&self, rounds: u64, problem: &Unusable) -> ConfigError {
        ConfigError::at("checkpoint", format!("cannot be used: {problem}"))
            .within(self.path(rounds).display())
    }

    /// Reads the checkpoint after this many rounds.
    ///
    /// # Errors
    /// If it cannot be used.
    pub(crate) fn load(&self, rounds: u64) -> Result<Checkpoint, ConfigError> {
        self.read(rounds).map_err(|problem| self.unusable(rounds, &problem))
    }

    /// The newest checkpoint after at most so many rounds that can be used.
    pub(crate) fn newest_until(&self, rounds: u64) -> Option<Checkpoint> {
        let all = self.rounds().into_iter().rev();
        all.filter(|round| *round <= rounds).find_map(|round| self.read(round).ok())
    }

    /// Writes a checkpoint; it is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written; those before it are unchanged.
    pub(crate) fn write(&self, checkpoint: &Checkpoint) -> Result<(), ConfigError> {
        let path = self.path(checkpoint.snapshot.rounds.0);
        checkpoint.write_of(&self.owner, &*self.disk, &path)
    }

    /// Removes the checkpoints of other rounds than `kept` says.
    pub(crate) fn retain(&self, kept: impl Fn(u64) -> bool) {
        for round in self.rounds().into_iter().filter(|round| !kept(*round)) {
            // One that stays takes space only.
            let _ = self.disk.remove_file(&self.path(round));
        }
    }

    /// The same; none of them comes back after a loss of power once this has returned.
    ///
    /// # Errors
    /// If one cannot be removed, or the disk does not say that it is.
    pub(crate) fn remove_all_but(&self, kept: impl Fn(u64) -> bool) -> Result<(), ConfigError> {
        let wrong = |path: &Path, error: io::Error| {
            let problem = format!("of an attempt that has failed, cannot be removed: {error}");
            ConfigError::at("checkpoint", problem).within(path.display())
        };
        for round in self.rounds().into_iter().filter(|round| !kept(*round)) {
            let path = self.path(round);
            self.disk.remove_file(&path).map_err(|error| wrong(&path, error))?;
        }
        // Also where an earlier attempt has removed them.
        self.disk.sync_folder(&self.folder).map_err(|error| wrong(&self.folder, error))
    }

    /// The rounds of the newest file; 0 if there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.rounds().last().copied().unwrap_or(0)
    }

    /// Whether there is no file of a checkpoint.
    pub(crate) fn is_empty(&self) -> bool {
        self.rounds().is_empty()
    }

    /// Removes all of them with their folder, as far as possible.
    pub(crate) fn remove(&self) {
        for name in self.disk.names(&self.folder).unwrap_or_default() {
            let _ = self.disk.remove_file(&self.folder.join(name));
        }
        let _ = self.disk.remove_folder(&self.folder);
        if let Some(parent) = self.folder.parent() {
            // Others may have theirs there: then it stays.
            let _ = self.disk.remove_folder(parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        gossip::{LinkTraffic, Traffic, snapshot::Snapshot},
        state::State,
        units::{NodeId, Time},
    };

    fn sections() -> [String; 3] {
        ["nodes = 2".into(), "run.seed = 1\nrun.rounds = 9".into(), "model.kind = mlp".into()]
    }

    fn open(folder: &Path, sections: &[String; 3]) -> Result<Checkpoints, ConfigError> {
        let owner = Owner::of(("run", 1), (NodeId(1), "rome".into()), sections);
        Checkpoints::open(folder, Every::Rounds(3), owner, sections)
    }

    fn checkpoint(rounds: u64) -> Checkpoint {
        let state = |names: &[&str]| State {
            vectors: names.iter().map(|name| (name.to_string(), vec![f32::NAN, -0.0])).collect(),
            numbers: vec![("weight".into(), 0.1), ("mass".into(), -0.0)],
        };
        Checkpoint {
            snapshot: Snapshot {
                rounds: Round(rounds),
                x: vec![1.5, -2.0, 1e-45],
                model: Some(vec![0.5]),
                rule: state(&["copy", "copy", "error"]),
                traffic: Traffic { payload: 1, wire: 2, dense: 3, tree: 4 },
                links: vec![LinkTraffic { to: NodeId(0), payload: 5, wire: 6 }],
                growth: [0.1, 1e300, 3.0],
            },
            learner: state(&["momentum"]),
            setup: vec![0, 255],
            time: Time(7),
            computing: Time(8),
            membership: 7,
            common: 3,
            history: vec![Change {
                id: 7,
                round: Round(2),
                members: vec![NodeId(1)],
                cut: vec![(NodeId(0), NodeId(1))],
                models: Vec::new(),
            }],
            owner: Owner::default(),
        }
    }

    /// The memberships and rounds of those that can be used.
    fn places(all: &Checkpoints) -> Vec<(u64, u64)> {
        let (all, _) = all.available().unwrap();
        all.into_iter().map(|(membership, rounds, _)| (membership, rounds)).collect()
    }

    /// Equal to the bit: NaN is not equal to itself.
    fn text(checkpoint: &Checkpoint) -> String {
        format!("{checkpoint:?}")
    }

    #[test]
    fn a_checkpoint_comes_back_to_the_bit_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        for rounds in [3, 6, 9] {
            all.write(&checkpoint(rounds)).unwrap();
        }
        let newest = all.available().unwrap().1;
        assert_eq!(
            (places(&all), newest.map(|newest| newest.common)),
            (vec![(7, 3), (7, 6), (7, 9)], Some(3))
        );
        let owner = all.owner.clone();
        let expected = Checkpoint { owner, ..checkpoint(6) };
        assert_eq!(text(&all.load(6).unwrap()), text(&expected));
        all.retain(|round| round >= 6);
        assert_eq!(places(&open(folder.path(), &sections()).unwrap()), [(7, 6), (7, 9)]);
        all.retain(|_| false);
        assert!(all.is_empty());
        all.remove();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn what_a_killed_program_was_writing_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        all.write(&checkpoint(3)).unwrap();
        let part = all.folder.join("round-000000000006.safetensors.7.part");
        fs::write(&part, "half").unwrap();
        open(folder.path(), &sections()).unwrap();
        assert!(!part.exists());
        assert_eq!(all.rounds(), [3]);
    }

    #[test]
    fn a_damaged_checkpoint_is_refused_and_the_one_before_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        all.write(&checkpoint(3)).unwrap();
        all.write(&checkpoint(6)).unwrap();
        let whole = fs::read(all.path(6)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(all.path(6), &bytes).unwrap();
            assert!(all.load(6).is_err(), "byte {at}");
            fs::write(all.path(6), &whole[..at]).unwrap();
            assert!(all.load(6).is_err(), "cut after {at} bytes");
        }
        assert_eq!(places(&all), [(7, 3)]);
        fs::write(all.path(9), &whole).unwrap();
        let error = all.load(9).unwrap_err().to_string();
        assert!(error.contains("it is of round 6, not 9 as its name says"), "{error}");
    }

    #[test]
    fn a_checkpoint_of_another_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        checkpoint(3).write_as((1, &all.owner), &FileSystem, &all.path(3)).unwrap();
        let error = all.load(3).unwrap_err().to_string();
        assert!(error.contains("format 1, this program reads 2"), "{error}");
    }

    #[test]
    fn checkpoints_of_another_run_are_refused_with_the_difference() {
        let folder = tempfile::tempdir().unwrap();
        let mut others = sections();
        others[0] = "nodes = 3".into();
        open(folder.path(), &others).unwrap();
        // That run has not started.
        let all = open(folder.path(), &sections()).unwrap();
        assert!(!all.used);
        all.begin();
        let again = open(folder.path(), &sections()).unwrap();
        assert_eq!((again.used, again.restarts), (true, 1));
        others = sections();
        others[1] = "run.seed = 1\nrun.rounds = 12".into();
        let error = open(folder.path(), &others).unwrap_err().to_string();
        let expected = "experiment: run.rounds = 9 in the checkpoints, 12 now";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_file_of_another_node_run_or_beginning_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        all.begin();
        all.write(&checkpoint(3)).unwrap();
        let own = all.owner.clone();
        let of = |run: (&str, u64), node: (u32, &str), texts: &[String; 3]| {
            let owner = Owner::of(run, (NodeId(node.0), node.1.into()), texts);
            owner.in_incarnation(&own.incarnation)
        };
        let rome = (1, "rome");
        let mut changed = sections();
        changed[2] = "model.kind = softmax".into();
        let cases = [
            (of(("run", 1), (2, "oslo"), &sections()), "of node oslo (number 2)"),
            (of(("second", 1), rome, &sections()), "of the run \"second\""),
            (of(("run", 9), rome, &sections()), "run.seed = 9, and this one has 1"),
            (of(("run", 1), rome, &changed), "another experiment, topology or model"),
            (own.clone().in_incarnation("0"), "of another start of this run"),
        ];
        for (owner, words) in cases {
            checkpoint(6).write_of(&owner, &FileSystem, &all.path(6)).unwrap();
            let error = all.load(6).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            assert_eq!(places(&all), [(7, 3)], "the one before is used");
        }
        // Nothing of its own is left: it is not a node without checkpoints.
        fs::remove_file(all.path(3)).unwrap();
        let error = all.available().unwrap_err().to_string();
        assert!(error.contains("belong to another run: round-000000000006"), "{error}");
        // A restart keeps its own ones, a beginning again does not.
        all.write(&checkpoint(3)).unwrap();
        let again = open(folder.path(), &sections()).unwrap();
        assert_eq!(places(&again), [(7, 3)]);
        fs::remove_file(all.folder.join(RUN)).unwrap();
        let again = open(folder.path(), &sections()).unwrap();
        assert!(again.available().unwrap_err().to_string().contains("another start"));
    }

    #[test]
    fn a_membership_of_another_node_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let all = open(folder.path(), &sections()).unwrap();
        let membership = Membership::all(3);
        all.adopt(&membership).unwrap();
        assert_eq!(all.membership().unwrap(), Some(membership.clone()));
        let owner = Owner::of(("run", 1), (NodeId(2), "oslo".into()), &sections());
        let text = serde_json::to_vec(&Adopted { owner, membership }).unwrap();
        fs::write(all.folder.join(MEMBERSHIP), text).unwrap();
        let error = all.membership().unwrap_err().to_string();
        assert!(error.contains("membership.json is of node oslo"), "{error}");
    }
}
