//! A node for a table: inputs go in, and its effects come out in a few words.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    cluster::{
        Cluster, Effect, Facts, Input, Keeps, Opened, Outcome, Terms,
        begin::reports::Report,
        event::Event,
        members::keys::Named,
        message::{CheckpointId, Origin, Saved},
        statements::{Links, Said, Statement},
        waiting::limits::Limits,
    },
    drive::Membership,
    experiment::Experiment,
    gossip::{self, Cause, tree::Readers},
    run::{Whole, checkpoint::Every},
    units::NodeId,
};

pub(super) const A: NodeId = NodeId(0);
pub(super) const B: NodeId = NodeId(1);
pub(super) const C: NodeId = NodeId(2);

/// The files of the run.
pub(super) fn whole(settings: &[&str]) -> Whole {
    let given = [
        "topology.file=path:3",
        "run.rounds=4",
        "rule.kind=d-psgd",
        "compressor.kind=identity",
        "data.source=synthetic",
        "data.rows=30",
        "data.features=3",
        "data.test_share=0",
        "model.kind=least-squares",
        "optimizer.step=0.01",
        "checkpoint.every_rounds=2",
    ];
    let settings: Vec<String> = given.iter().chain(settings).map(ToString::to_string).collect();
    let experiment = Experiment::parse("", &settings).expect("the keys are valid");
    Whole::new(experiment).expect("the files fit together")
}

/// What a node signs when it is the first to go back.
pub(super) fn origin(node: NodeId, number: u64) -> Origin {
    Origin { node, number, ..Origin::default() }.signed(&Named(node))
}

/// An effect in a few words.
pub(super) fn brief(effect: &Effect) -> String {
    match effect {
        Effect::Core(gossip::Effect::Send { to, .. }) => format!("send a frame to {to}"),
        Effect::Core(gossip::Effect::Compute { round, .. }) => format!("compute {round}"),
        Effect::Core(gossip::Effect::RoundDone(done)) => format!("round {} done", done.round),
        Effect::Core(gossip::Effect::Save(own)) => format!("save the model of {}", own.rounds),
        Effect::Core(gossip::Effect::Conclude { .. }) => "conclude".into(),
        Effect::Core(gossip::Effect::Recycle { from, .. }) => format!("recycle for {from}"),
        Effect::Core(effect) => format!("core {effect:?}").chars().take(24).collect(),
        Effect::Open(opening) => {
            let Membership { id, members, cut } = &opening.membership;
            let bans: Vec<u32> = opening.bans.iter().map(|(node, _)| node.0).collect();
            let Origin { node, about, number, .. } = &opening.because;
            // Node B is the one that most tables are about.
            let because = about.or((*node != B && *number > 1).then_some(*node));
            let because = because.map(|node| format!(", because of {node}"));
            format!(
                "open {} members of change {}, {} links cut, bans {bans:?}{}{}{}",
                members.len(),
                id >> 32,
                cut.len(),
                if opening.chooses { ", to choose" } else { "" },
                if opening.resets { ", reset" } else { "" },
                because.unwrap_or_default(),
            )
        }
        Effect::SendNews { to, news } => {
            let newest = news.views.iter().map(|(_, view)| view.adopted >> 32).max();
            format!("to {to}: {} views, change {newest:?}", news.views.len())
        }
        Effect::Restore { at, .. } => format!("restore round {}", at.rounds),
        Effect::Begin { at, .. } => format!("begin after {}", at.rounds),
        Effect::Write { snapshot, .. } => format!("write round {}", snapshot.rounds),
        Effect::Tell(all) => {
            let all = all.statements.iter().map(|(_, statement)| statement);
            let is_first = |one: &&Arc<Statement>| {
                matches!(one.said, Said::Report(_) | Said::Links(_) | Said::Begins(_))
            };
            // What is said before the rounds is left out in them.
            let (first, later): (Vec<_>, Vec<_>) = all.partition(is_first);
            let all = if later.is_empty() { first } else { later };
            let all: Vec<String> = all.into_iter().map(|statement| says(statement)).collect();
            format!("tell {}", all.join(", "))
        }
        Effect::Record(membership) => format!("record {:?}", membership.members),
        Effect::Results { .. } => "results".into(),
        Effect::Salvage(_) => "salvage".into(),
        Effect::Close { reason, over } => {
            let reason = reason.as_ref().map(|cause| cause.text.as_str());
            format!("close, over {over}, reason {reason:?}")
        }
        Effect::End(Outcome::Results) => "end with results".into(),
        Effect::End(Outcome::Failed(error)) => format!("end: {error}"),
        Effect::Info(text) | Effect::Debug(text) => format!("log: {text}"),
        Effect::Warn(text) => format!("warn: {text}"),
        Effect::LinkLost { peer, reason } => format!("lost {peer}: {reason}"),
        other => format!("{other:?}"),
    }
}

/// A statement in a few words.
fn says(statement: &Statement) -> String {
    let node = statement.node;
    match &statement.said {
        Said::Report(report) => {
            let kept: Vec<u64> = report.kept.iter().map(|kept| kept.rounds).collect();
            format!("{node} reports {kept:?}")
        }
        Said::Links(links) => {
            let (up, all) = (links.attempts.iter().flatten().count(), links.attempts.len());
            format!("{node} is linked with {up} of {all}")
        }
        Said::Begins(_) => format!("{node} begins"),
        Said::Initial(_) => format!("{node} initial"),
        Said::Shared(vector) => format!("{node} shared {}", vector.round),
        Said::Saved(rounds) => format!("{node} saved {rounds}"),
        Said::Schedule(schedule) => format!("{node} schedules {}", schedule.next),
        Said::Written(_) => format!("{node} wrote"),
    }
}

/// A node, the time, and what its links know.
pub(super) struct Table<'a> {
    /// The number of the results, once there are some.
    pub(super) results: u64,
    pub(super) cluster: Cluster<'a>,
    pub(super) now: Instant,
    pub(super) facts: Facts,
    pub(super) saved: Saved,
    pub(super) first: Vec<String>,
}

impl<'a> Table<'a> {
    pub(super) fn new(whole: &'a Whole, used: bool) -> Table<'a> {
        Table::with(whole, used, None)
    }

    /// Node B while the members are chosen: C did not return, and A is linked.
    pub(super) fn without_c(whole: &'a Whole) -> Table<'a> {
        let mut b = Table::new(whole, false);
        b.started();
        b.event(Event::Down { peer: C, reason: "it did not return".into() });
        b.opened(&[]);
        b.event(Event::Up(A));
        b
    }

    /// A node that has recorded these members.
    pub(super) fn with(whole: &'a Whole, used: bool, adopted: Option<Membership>) -> Table<'a> {
        let keeps = Keeps { every: Every::Rounds(2), last: None, used, written: None, adopted };
        Table::of(whole, B, keeps, true)
    }

    /// Any node. `confirms`: it leaves only when all have written their results.
    pub(super) fn of(whole: &'a Whole, node: NodeId, keeps: Keeps, confirms: bool) -> Table<'a> {
        let now = Instant::now();
        let config = whole.design.node(node, whole.spec(node).config.setup, Readers::Everyone);
        let limits = Limits::of(&whole.design.experiment);
        let keys = Arc::new(Named(node));
        let keeps = Some(keeps);
        let terms = Terms { limits, keeps, resumes: true, confirms, keys, program: 0 };
        let mut out = Vec::new();
        let cluster = Cluster::new(now, &whole.design, config, terms, &mut out);
        let cluster = cluster.expect("the run can continue with its members");
        let first = out.iter().map(brief).collect();
        let saved = Saved::default();
        Table { results: 0, cluster, now, facts: Facts::new(now), saved, first }
    }

    /// The effects as they are.
    pub(super) fn effects(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        self.cluster.handle(self.now, input, &mut out);
        out
    }

    pub(super) fn input(&mut self, input: Input) -> Vec<String> {
        self.effects(input).iter().map(brief).collect()
    }

    pub(super) fn event(&mut self, event: Event) -> Vec<String> {
        self.input(Input::Event(event))
    }

    /// A neighbour passes on what a node says.
    pub(super) fn told(&mut self, from: NodeId, node: NodeId, said: Said) -> Vec<String> {
        let membership = self.cluster.part().membership.id;
        let statement = Statement::signed(&Named(node), (node, node), (membership, 0), said);
        self.event(Event::Told { from, batch: vec![statement].into() })
    }

    /// A node says that it has written the same results.
    pub(super) fn wrote(&mut self, node: NodeId) -> Vec<String> {
        self.told(node, node, Said::Written(self.results))
    }

    /// Lets time pass.
    pub(super) fn after(&mut self, seconds: f64) -> Vec<String> {
        let tick = self.tick(seconds);
        self.input(tick)
    }

    /// Lets time pass without the tick that tells so.
    pub(super) fn tick(&mut self, seconds: f64) -> Input {
        self.now += Duration::from_secs_f64(seconds);
        Input::Tick(Box::new(self.facts.clone()))
    }

    /// The links are open; this node has checkpoints of these rounds.
    pub(super) fn opened(&mut self, rounds: &[u64]) {
        self.saved = saved(rounds);
        let saved = self.saved.clone();
        let opened = Opened { saved, has_started: true, ..Opened::default() };
        assert_eq!(self.input(Input::Opened(Ok(opened))), [] as [&str; 0]);
    }

    /// All are linked, and start.
    pub(super) fn started(&mut self) -> Vec<String> {
        self.opened(&[]);
        self.linked();
        self.reported(&[], &[]);
        assert_eq!(self.after(0.1)[1..], ["restore round 0"]);
        self.input(Input::Restored(Ok(None)))
    }

    /// Both links are up.
    pub(super) fn linked(&mut self) {
        for peer in [A, C] {
            self.event(Event::Up(peer));
        }
    }

    /// Both neighbours have checkpoints of these rounds, and are linked.
    pub(super) fn reported(&mut self, a: &[u64], c: &[u64]) {
        self.reports(A, a, 1);
        self.reports(C, c, 1);
    }

    /// A neighbour has checkpoints of these rounds, and is linked with so many nodes, all in their
    /// first attempt.
    pub(super) fn reports(&mut self, node: NodeId, rounds: &[u64], links: usize) {
        let links = Links { number: 1, attempts: vec![Some(0); links] };
        for said in [Said::Report(report(rounds)), Said::Links(links)] {
            assert_eq!(self.told(node, node, said), [""; 0]);
        }
    }
}

/// Checkpoints of these rounds, of the first of which all members have had one.
pub(super) fn saved(rounds: &[u64]) -> Saved {
    let kept: Vec<_> = rounds.iter().map(|&rounds| CheckpointId::new(0, rounds, &[])).collect();
    let common = kept.first().copied().unwrap_or_default();
    Saved { kept, common, history: Vec::new() }
}

/// What a node with checkpoints of these rounds reports.
pub(super) fn report(rounds: &[u64]) -> Report {
    let Saved { kept, common, .. } = saved(rounds);
    Report { kept, common, ..Report::default() }
}

pub(super) fn leaves(node: NodeId, leaves: bool) -> Cause {
    Cause { node, text: "its disk is full".into(), leaves }
}
