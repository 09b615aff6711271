//! A node for a table: inputs go in, and its effects come out in a few words.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    cluster::{
        Cluster, Effect, Facts, Input, Keeps, Opened, Outcome, Terms,
        event::Event,
        members::keys::{Keys, Named},
        message::{CheckpointId, CheckpointReport, Origin, Reports, Saved, StartMessage},
        statements::{Said, Statement},
        waiting::limits::Limits,
    },
    drive::Membership,
    experiment::Experiment,
    gossip::{
        self, Cause,
        tree::{Readers, Signer},
    },
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
        Effect::SendStart { to, message } => match message {
            StartMessage::Ready(reports) => {
                let nodes: Vec<u32> = reports.nodes.iter().map(|report| report.node.0).collect();
                format!("to {to}: ready {nodes:?}")
            }
            StartMessage::Waiting(text) => format!("to {to}: {text}"),
            StartMessage::Begin(reports) => {
                let whole = Membership::all(reports.nodes.len());
                format!("to {to}: begin after {}", reports.decide(&whole, 2).rounds)
            }
            StartMessage::Assembly(news) => {
                let newest = news.views.iter().map(|(_, view)| view.adopted >> 32).max();
                format!("to {to}: {} views, change {newest:?}", news.views.len())
            }
        },
        Effect::Restore { at, .. } => format!("restore round {}", at.rounds),
        Effect::Begin { at, .. } => format!("begin after {}", at.rounds),
        Effect::Write { snapshot, .. } => format!("write round {}", snapshot.rounds),
        Effect::Tell(all) => {
            let all: Vec<String> = all.iter().map(|(_, statement)| says(statement)).collect();
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
        self.event(Event::Told { from, statements: vec![statement] })
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
        for peer in [A, C] {
            self.event(Event::Up(peer));
        }
        self.event(Event::Start { from: C, message: ready(C, &[]) });
        self.after(0.1);
        let message = self.begin(&[], &[]);
        self.event(Event::Start { from: A, message });
        assert_eq!(self.after(0.1), ["to 2: begin after 0", "restore round 0"]);
        self.input(Input::Restored(Ok(None)))
    }
}

/// Checkpoints of these rounds, of the first of which all members have had one.
pub(super) fn saved(rounds: &[u64]) -> Saved {
    let kept: Vec<_> = rounds.iter().map(|&rounds| CheckpointId::new(0, rounds, &[])).collect();
    let common = kept.first().copied().unwrap_or_default();
    Saved { kept, common, history: Vec::new() }
}

/// The report of a node in this membership, with its signature.
pub(super) fn report(node: NodeId, membership: u64, saved: &Saved) -> CheckpointReport {
    struct Signs(Named, u64);
    impl Signer for Signs {
        fn sign(&self, statement: &[u8]) -> Vec<u8> {
            self.0.sign(&[&self.1.to_le_bytes()[..], &[0; 8], statement].concat())
        }

        fn verify(&self, _: NodeId, _: &[u8], _: &[u8]) -> bool {
            unreachable!("it signs only")
        }
    }
    CheckpointReport::new((node, 0), saved, &Signs(Named(node), membership))
}

pub(super) fn ready(node: NodeId, rounds: &[u64]) -> StartMessage {
    StartMessage::Ready(Reports { nodes: vec![report(node, 0, &saved(rounds))], histories: vec![] })
}

impl Table<'_> {
    /// The reports of all: this node has its own, and a and c have checkpoints of these rounds.
    pub(super) fn begin(&self, a: &[u64], c: &[u64]) -> StartMessage {
        let nodes = [(A, saved(a)), (B, self.saved.clone()), (C, saved(c))];
        let nodes = nodes.iter().map(|(node, saved)| report(*node, 0, saved)).collect();
        StartMessage::Begin(Reports { nodes, histories: vec![] })
    }
}

pub(super) fn leaves(node: NodeId, leaves: bool) -> Cause {
    Cause { node, text: "its disk is full".into(), leaves }
}
