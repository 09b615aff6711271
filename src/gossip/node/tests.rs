//! What a node does upon each input, exactly: the effects and their order, in every stage of a run.
//!
//! Two nodes, D-PSGD with W = 1/2 everywhere, two numbers, two rounds. The numbers are worked out
//! by hand:
//!
//! | round | x_0 | u_0 | z_0 = x_0 - u_0 | z_1 | x_0' = (z_0 + z_1) / 2 |
//! |---|---|---|---|---|---|
//! | 0 | 1, 2 | 0.5, 1 | 0.5, 1 | 2.5, 3 | 1.5, 2 |
//! | 1 | 1.5, 2 | 0.5, 0 | 1, 2 | 2, 4 | 1.5, 3 |
//!
//! Node 1 ends at 2.5, 5, so that the mean is 2, 4.

use super::*;
use crate::{
    compress,
    gossip::{
        event::{Cause, OwnModel},
        frame::{self, Header},
        rule::{self, Setting},
        snapshot::Snapshot,
        stopping::{Patience, Tally},
        traffic::LinkTraffic,
        tree::{Merge, SIGNATURE, STOP},
    },
    mixing::Schedule,
};

const OTHER: NodeId = NodeId(1);
const X: [&[f32]; 2] = [&[1.0, 2.0], &[1.5, 2.0]];
const U: [&[f32]; 2] = [&[0.5, 1.0], &[0.5, 0.0]];
const SENT: [&[f32]; 2] = [&[0.5, 1.0], &[1.0, 2.0]];
const THEIRS: [&[f32]; 2] = [&[2.5, 3.0], &[2.0, 4.0]];

/// A node of a run of two rounds of this rule.
fn node(id: u32, topology: &str, rule: &str, change: impl FnOnce(&mut NodeConfig)) -> Node {
    node_at(X[0], &[(2, 1)], id, topology, rule, change)
}

fn node_at(
    x: &[f32],
    shapes: &[(usize, usize)],
    id: u32,
    topology: &str,
    rule: &str,
    change: impl FnOnce(&mut NodeConfig),
) -> Node {
    let topology = Arc::new(Topology::parse(topology, 1).unwrap());
    let schedule = Arc::new(Schedule::new("static", &topology, 1).unwrap());
    let identity = toml::from_str("kind = 'identity'").unwrap();
    let setting = Setting {
        topology: &topology,
        schedule: &schedule,
        compressor: &compress::build(&identity).unwrap().compressor,
        nominal_delta: 1.0,
        parameters: x.len(),
        shapes,
        seed: 3,
        allow_unstable: false,
    };
    let prepared = rule::prepare(&toml::from_str(rule).unwrap(), &setting).unwrap();
    let id = NodeId(id);
    let spawn = prepared.spawn;
    let rule = Box::new(move |x: &[f32]| spawn(id, x));
    let mut config = NodeConfig::new(id, topology, prepared.plan, rule, x.to_vec());
    (config.seed, config.rounds) = (3, 2);
    change(&mut config);
    Node::new(config)
}

fn d_psgd() -> Node {
    node(0, "complete:2", "kind = 'd-psgd'", |_| {})
}

fn at(round: u64, flight: u8, exchange: u16) -> At {
    At { round: Round(round), flight, exchange }
}

fn sealed(at: At, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::reserve(&mut bytes);
    bytes.extend_from_slice(payload);
    frame::seal(&Header { at, replica: None }, None, &mut bytes);
    bytes
}

fn floats(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The frame of node 1 in a round.
fn theirs(round: u64) -> Vec<u8> {
    sealed(at(round, 0, 0), &floats(THEIRS[round as usize]))
}

/// The final model of node 1, on its way to the root.
fn their_model() -> Vec<u8> {
    let sum: Vec<u8> = [2.5f64, 5.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    sealed(at(0, MEAN, 0), &sum)
}

/// The records of some nodes, as a tree exchange carries them.
fn records(of: &[(u32, &[u8])]) -> Vec<u8> {
    let record = |(node, bytes): &(u32, &[u8])| {
        [&node.to_le_bytes()[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat()
    };
    of.iter().flat_map(record).collect()
}

fn arrives(bytes: Vec<u8>) -> Input {
    Input::Frame { from: OTHER, bytes }
}

fn computed(round: u64) -> Input {
    let (x, update) = (X[round as usize].to_vec(), U[round as usize].to_vec());
    Input::Computed { round: Round(round), x, update, loss: 3.0, step: 0.5, ends: false }
}

fn send(to: NodeId, at: At, payload: &[u8]) -> Effect {
    Effect::Send { to, frame: Arc::new(sealed(at, payload)) }
}

fn recycle(buffer: Vec<u8>) -> Effect {
    Effect::Recycle { from: OTHER, buffer }
}

fn compute(round: u64, x: &[f32], update: &[f32]) -> Effect {
    let (x, update) = (x.to_vec(), update.to_vec());
    Effect::Compute { round: Round(round), x, update, parts: Vec::new(), overlaps: false }
}

/// After so many rounds, each of which sends two numbers behind 19 bytes of header and 16 of
/// envelope.
fn traffic(rounds: u64, tree: u64) -> Traffic {
    Traffic { payload: 8 * rounds, wire: 43 * rounds, dense: 8 * rounds, tree }
}

fn round_done(round: u64, model: Option<&[f32]>) -> Effect {
    let (traffic, model) = (traffic(round + 1, 0), model.map(<[f32]>::to_vec));
    Effect::RoundDone(RoundDone {
        round: Round(round),
        loss: 3.0,
        traffic,
        model,
        mean: None,
        members: 2,
    })
}

fn own_model(rounds: u64, x: &[f32], tree: u64) -> OwnModel {
    let links = vec![LinkTraffic { to: OTHER, payload: 8 * rounds, wire: 43 * rounds }];
    let (x, traffic) = (Arc::new(x.to_vec()), traffic(rounds, tree));
    OwnModel { rounds: Round(rounds), x, traffic, links }
}

fn left() -> Input {
    Input::Left { peer: OTHER, cause: cause() }
}

fn cause() -> Cause {
    Cause { node: OTHER, text: "no room on its disk".into(), leaves: false }
}

fn down() -> Input {
    Input::LinkDown { peer: OTHER, reason: "the cable".into() }
}

fn failed_link(round: u64) -> Effect {
    let (peer, reason) = (OTHER, "the cable".into());
    Effect::Failed(Failure::Link { peer, round: Round(round), reason })
}

fn failed_left(round: u64) -> Effect {
    Effect::Failed(Failure::Left { peer: OTHER, round: Round(round), cause: cause() })
}

fn refused(reason: &str) -> Effect {
    Effect::Failed(Failure::Peer { peer: OTHER, reason: reason.into() })
}

/// Gives the inputs one by one and compares all effects of each.
fn plays(what: &str, mut node: Node, script: impl IntoIterator<Item = (Input, Vec<Effect>)>) {
    for (step, (input, expected)) in script.into_iter().enumerate() {
        let mut effects = Vec::new();
        let words = format!("{what}, input {step}: {input:?}");
        node.handle(input, &mut effects);
        assert_eq!(effects, expected, "{words}");
    }
}

/// A run in which everything arrives when it is waited for, up to a stage.
fn until(stage: usize) -> Vec<(Input, Vec<Effect>)> {
    let record = sealed(at(0, SUMMARY, 0), &records(&[(1, b"theirs")]));
    let all = records(&[(0, b"ours"), (1, b"theirs")]);
    let mut script = vec![
        (Input::Start, vec![compute(0, X[0], &[0.0, 0.0])]),
        (computed(0), vec![send(OTHER, at(0, 0, 0), &floats(SENT[0]))]),
        (Input::Taken(OTHER), vec![]),
        (
            arrives(theirs(0)),
            vec![recycle(theirs(0)), round_done(0, None), compute(1, X[1], SENT[0])],
        ),
        (computed(1), vec![send(OTHER, at(1, 0, 0), &floats(SENT[1]))]),
        (
            arrives(theirs(1)),
            vec![
                recycle(theirs(1)),
                round_done(1, Some(&[1.5, 3.0])),
                Effect::Save(own_model(2, &[1.5, 3.0], 0)),
            ],
        ),
        (
            arrives(their_model()),
            vec![
                recycle(their_model()),
                send(OTHER, at(0, MEAN, 1), &floats(&[2.0, 4.0])),
                Effect::Conclude { own: own_model(2, &[1.5, 3.0], 43), mean: vec![2.0, 4.0] },
            ],
        ),
        (Input::Record(b"ours".to_vec()), vec![]),
        // The frames of the last round and of the mean have both slots of the link.
        (arrives(record.clone()), vec![recycle(record)]),
        (
            Input::Taken(OTHER),
            vec![
                send(OTHER, at(0, SUMMARY, 1), &all),
                Effect::Finished(vec![b"ours".to_vec(), b"theirs".to_vec()]),
            ],
        ),
    ];
    script.truncate(stage);
    script
}

const BEFORE: usize = 0;
const COMPUTING: usize = 1;
const WAITING: usize = 2;
const FORMING_THE_MEAN: usize = 6;
const OVER: usize = 10;

/// From a stage of the run above, these inputs have these effects.
fn row(what: &str, stage: usize, rows: Vec<(Input, Vec<Effect>)>) {
    plays(what, d_psgd(), until(stage).into_iter().chain(rows));
}

#[test]
fn a_run_in_which_everything_comes_when_it_is_waited_for() {
    plays("a run", d_psgd(), until(OVER));
}

#[test]
fn links_that_end() {
    for (stage, round) in [(COMPUTING, 0), (WAITING, 0), (4, 1), (FORMING_THE_MEAN, 2)] {
        row("a link ends", stage, vec![(down(), vec![failed_link(round)])]);
        row("a node leaves", stage, vec![(left(), vec![failed_left(round)]), (down(), vec![])]);
    }
    // Before the start it may come up again; what was received over it is dropped.
    let ended = |input| vec![(arrives(theirs(0)), vec![]), (input, vec![])];
    let again: Vec<_> = until(OVER);
    row("a link ends before the start", BEFORE, ended(down()).into_iter().chain(again).collect());
    let again: Vec<_> = until(OVER);
    row("a node leaves before the start", BEFORE, ended(left()).into_iter().chain(again).collect());
    row("a link ends after the run", OVER, vec![(down(), vec![]), (left(), vec![])]);
}

#[test]
fn frames_before_they_are_due_and_frames_that_are_refused() {
    let early = |stage| {
        let mut script = until(OVER);
        // The frame of round 0 comes at this stage: then the round is over when it is computed.
        script.remove(3);
        script.insert(stage, (arrives(theirs(0)), vec![]));
        script[2].1.extend([recycle(theirs(0)), round_done(0, None), compute(1, X[1], SENT[0])]);
        script
    };
    plays("a frame before the start", d_psgd(), early(BEFORE));
    plays("a frame while the gradient is computed", d_psgd(), early(COMPUTING));
    let second = refused("a second frame for round 0 flight 0 exchange 0");
    let twice = vec![(arrives(theirs(0)), vec![]), (arrives(theirs(0)), vec![second])];
    row("a frame comes twice", COMPUTING, twice);
    let short = refused("a frame of 3 bytes: a frame has at least 19");
    row("no frame", WAITING, vec![(arrives(vec![1, 2, 3]), vec![short]), (computed(0), vec![])]);
    let nan = sealed(at(0, 0, 0), &floats(&[1.0, f32::NAN]));
    let reason =
        "round 0 flight 0 exchange 0: malformed payload: the number at index 1 is not finite";
    row("a number that is not finite", WAITING, vec![(arrives(nan), vec![refused(reason)])]);
    let other = sealed(at(0, 1, 0), &[]);
    let reason = "round 0 flight 1 exchange 0: nothing of it is expected there";
    row("another flight", WAITING, vec![(arrives(other), vec![refused(reason)])]);
}

#[test]
fn pieces_of_a_frame() {
    let piece = |range: std::ops::Range<usize>| Input::Piece {
        from: OTHER,
        length: 27,
        bytes: theirs(0)[range].to_vec(),
    };
    let part = |range: std::ops::Range<usize>| recycle(theirs(0)[range].to_vec());
    let rest = || vec![part(24..27), round_done(0, None), compute(1, X[1], SENT[0])];
    let rows = vec![(piece(0..24), vec![part(0..24)]), (piece(24..27), rest())];
    row("pieces that are added at once", WAITING, rows);
    let mut after = vec![send(OTHER, at(0, 0, 0), &floats(SENT[0])), part(0..24)];
    after.extend(rest());
    let rows = vec![(piece(0..24), vec![]), (piece(24..27), vec![]), (computed(0), after)];
    row("pieces that wait for the gradient", COMPUTING, rows);
}

#[test]
fn gradients_that_fail() {
    let x = || X[0].to_vec();
    let failed = Input::ComputeFailed { x: x(), reason: "no memory".into() };
    let reason = Failure::Gradient { round: Round(0), reason: "no memory".into() };
    let rows = vec![(failed, vec![Effect::Failed(reason)]), (arrives(theirs(0)), vec![])];
    row("no gradient", COMPUTING, rows);
    let diverged = Input::Diverged { round: Round(0), x: x(), loss: 1e30 };
    let failure = Failure::Loss { round: Round(0), loss: 1e30 };
    row("a loss", COMPUTING, vec![(diverged, vec![Effect::Failed(failure)])]);
    let (update, round) = (vec![0.0, f32::INFINITY], Round(0));
    let infinite = Input::Computed { round, x: x(), update, loss: 3.0, step: 0.5, ends: false };
    let failure = Failure::Diverged { round, index: 1, value: f32::NEG_INFINITY };
    row("an update", COMPUTING, vec![(infinite, vec![Effect::Failed(failure)])]);
}

#[test]
fn snapshots_and_stops() {
    let growth = [5f64.sqrt() + 2f64.sqrt(), 0.5, 1.25f64.sqrt() / 0.5];
    let links = own_model(1, X[1], 0).links;
    let (x, rounds, traffic) = (X[1].to_vec(), Round(1), traffic(1, 0));
    let snapshot = Snapshot { rounds, x, traffic, links, growth, ..Snapshot::default() };
    let after = vec![
        recycle(theirs(0)),
        round_done(0, None),
        Effect::Snapshot(Box::new(snapshot)),
        compute(1, X[1], SENT[0]),
    ];
    let rows = vec![(Input::Snapshot(Round(1)), vec![]), (arrives(theirs(0)), after)];
    row("a snapshot", WAITING, rows);
    let after =
        vec![recycle(theirs(0)), round_done(0, Some(X[1])), Effect::Save(own_model(1, X[1], 0))];
    let rows = vec![(Input::StopAfter(Round(0)), vec![]), (arrives(theirs(0)), after)];
    row("a stop", WAITING, rows);
    for input in [Input::StopAfter(Round(0)), Input::Snapshot(Round(1)), Input::Record(vec![])] {
        row("after the end", OVER, vec![(input, vec![])]);
    }
    row("a record that nobody asked for", WAITING, vec![(Input::Record(vec![1]), vec![])]);
}

/// The payload of a notice of this node; zeros are in the place of its signature.
fn asked(by: u32) -> Vec<u8> {
    [&by.to_le_bytes()[..], &[0; SIGNATURE]].concat()
}

/// A notice crosses each link before the frames of later rounds: two rounds for two nodes.
#[test]
fn an_early_end() {
    let long = || node(0, "complete:2", "kind = 'd-psgd'", |config| config.rounds = 30);
    let (x, update) = (X[0].to_vec(), U[0].to_vec());
    let ends = Input::Computed { round: Round(0), x, update, loss: 3.0, step: 0.5, ends: true };
    let notice = send(OTHER, at(2, STOP, 0), &asked(0));
    let mut script = until(COMPUTING);
    script.push((ends, vec![notice, send(OTHER, at(0, 0, 0), &floats(SENT[0]))]));
    plays("a node asks for the end", long(), script);
    let told = |round| sealed(at(round, STOP, 0), &asked(1));
    let mut script = until(WAITING);
    script.push((arrives(told(0)), vec![recycle(told(0))]));
    let after =
        vec![recycle(theirs(0)), round_done(0, Some(X[1])), Effect::Save(own_model(1, X[1], 0))];
    script.push((arrives(theirs(0)), after));
    plays("another asked for it", long(), script);
    let mut script = until(4);
    let late = refused("the run is to end after round 0, and round 1 has started");
    script.push((arrives(told(0)), vec![recycle(told(0)), late]));
    plays("a notice that comes too late", long(), script);
    // The node that has signed it is named, and not the one that passes it on.
    let told = |by| sealed(at(0, STOP, 0), &asked(by));
    for (by, named) in [(2, NodeId(2)), (1, OTHER), (0, OTHER)] {
        let mut node = long();
        for (input, _) in until(4) {
            node.handle(input, &mut Vec::new());
        }
        let mut effects = Vec::new();
        node.handle(arrives(told(by)), &mut effects);
        let blamed = effects.iter().find_map(|effect| match effect {
            Effect::Failed(failure) => failure.culprit(),
            _ => None,
        });
        assert_eq!(blamed, Some(named), "{effects:?}");
    }
}

/// The notice that the model of the lowest loss is the result comes from the root: node 1 believes
/// it of node 0, and node 0 does not believe it of node 1.
#[test]
fn the_root_decides_by_the_losses() {
    let patience = Patience { every: 1, evaluations: 3, keeps_best: true };
    let node = |id| {
        node(id, "complete:2", "kind = 'd-psgd'", |config| {
            (config.rounds, config.stopping) = (30, Some(patience));
        })
    };
    for (me, other, ends) in [(1, 0, Round(3)), (0, 1, Round(30))] {
        let told = sealed(at(2, STOP, 1), &asked(other));
        let mut node = node(me);
        let mut effects = Vec::new();
        node.handle(Input::Start, &mut effects);
        effects.clear();
        node.handle(Input::Frame { from: NodeId(other), bytes: told }, &mut effects);
        assert_eq!(effects.len(), 1, "{effects:?}");
        assert_eq!(Round(node.rounds), ends, "node {me}");
    }
}

#[test]
fn tallies_go_to_the_root() {
    let patience = Patience { every: 1, evaluations: 3, keeps_best: false };
    let node = node(1, "complete:2", "kind = 'd-psgd'", |config| config.stopping = Some(patience));
    let to = NodeId(0);
    let tally = Tally { loss: 2.5, rows: 7 };
    // Without keys zeros take the place of its signature.
    let bytes = [&2.5f64.to_le_bytes()[..], &7u64.to_le_bytes(), &[0; SIGNATURE]].concat();
    let tallied = |round| Input::Tally { round: Round(round), tally };
    let (frame, buffer) = (theirs(0), theirs(0));
    let script = [
        (Input::Start, vec![compute(0, X[0], &[0.0, 0.0])]),
        // The first evaluation is after a round.
        (tallied(0), vec![]),
        (computed(0), vec![send(to, at(0, 0, 0), &floats(SENT[0]))]),
        (Input::Taken(to), vec![]),
        (
            Input::Frame { from: to, bytes: frame },
            vec![
                Effect::Recycle { from: to, buffer },
                round_done(0, None),
                compute(1, X[1], SENT[0]),
            ],
        ),
        (tallied(1), vec![send(to, at(1, TALLY, 0), &bytes)]),
        (computed(1), vec![send(to, at(1, 0, 0), &floats(SENT[1]))]),
    ];
    plays("a tally", node, script);
    row("a tally in a run without patience", COMPUTING, vec![(tallied(1), vec![])]);
}

#[test]
fn the_setup_comes_first() {
    let merge: Merge = Arc::new(|records: &[&[u8]]| Ok(records.concat()));
    let setup = |record: &[u8]| Some(Setup::new(record.to_vec(), Arc::clone(&merge)));
    let signed = |record: &[u8]| [record, &[0; SIGNATURE]].concat();
    let up = sealed(at(0, SETUP, 0), &records(&[(1, &signed(b"b"))]));
    // Each node merges all records itself.
    let all = records(&[(0, &signed(b"a")), (1, &signed(b"b"))]);
    let down = sealed(at(0, SETUP, 1), &all);
    let begin = || vec![Effect::Prepared(b"ab".to_vec()), compute(0, X[0], &[0.0, 0.0])];
    let root = node(0, "complete:2", "kind = 'd-psgd'", |config| config.setup = setup(b"a"));
    let mut after = vec![recycle(up.clone()), send(OTHER, at(0, SETUP, 1), &all)];
    after.extend(begin());
    plays("the root", root, [(Input::Start, vec![]), (arrives(up.clone()), after)]);
    let leaf = node(1, "complete:2", "kind = 'd-psgd'", |config| config.setup = setup(b"b"));
    let (from, buffer) = (NodeId(0), down.clone());
    let mut after = vec![Effect::Recycle { from, buffer }];
    after.extend(begin());
    let script = [
        (Input::Start, vec![Effect::Send { to: from, frame: Arc::new(up) }]),
        (Input::Frame { from, bytes: down }, after),
    ];
    plays("a leaf", leaf, script);
}

/// Two layers of two numbers, and a server, to which node 1 sends each.
#[test]
fn parts_of_an_update_leave_before_the_whole() {
    let rule = "kind = 'c-sgd'\nlayers = true\ncollective = 'server'";
    let x = [1.0, 2.0, 3.0, 4.0];
    let node = node_at(&x, &[(1, 2), (1, 2)], 1, "complete:2", rule, |_| {});
    let part = |start| UpdatePart { start, values: vec![0.0; 2] };
    let (round, update, parts) = (Round(0), vec![0.0; 4], vec![part(2), part(0)]);
    let request = Effect::Compute { round, x: x.to_vec(), update, parts, overlaps: true };
    let update = vec![0.5, 1.0, 1.5, 2.0];
    let whole = Input::Computed { round, x: x.to_vec(), update, loss: 3.0, step: 0.5, ends: false };
    let mut last = sealed(at(0, 1, 0), &floats(&[0.5, 1.0]));
    let header = Header { at: at(0, 1, 0), replica: Some(frame::replica_digest(&x)) };
    frame::seal(&header, None, &mut last);
    // All nodes have the same model.
    let mut hasher = Hasher::default();
    hasher.add_number(0);
    hasher.add_bytes(&last[15..19]);
    hasher.add_floats(&x[..1]);
    let fingerprint = hasher.fingerprint();
    let shared = Effect::Shared { round, flight: 1, of: NodeId(1), fingerprint };
    let script = [
        (Input::Start, vec![request]),
        (
            Input::Part { round, part: 0, values: vec![1.5, 2.0] },
            vec![send(NodeId(0), at(0, 0, 0), &floats(&[1.5, 2.0]))],
        ),
        (Input::Part { round, part: 1, values: vec![0.5, 1.0] }, vec![]),
        (whole, vec![shared, Effect::Send { to: NodeId(0), frame: Arc::new(last) }]),
    ];
    plays("layers", node, script);
}

/// The server adds an update of node 1 when it comes, and answers when it has made its own.
#[test]
fn calls_are_answered_once_nobody_is_behind() {
    let rule = "kind = 'stale-synchronous'\nstaleness = 0";
    let server = node(0, "star:2", rule, |_| {});
    let request = |round, x: &[f32], update: &[f32]| {
        let (round, x, update) = (Round(round), x.to_vec(), update.to_vec());
        Effect::Compute { round, x, update, parts: Vec::new(), overlaps: true }
    };
    let call = sealed(at(0, 0, 0), &floats(&[1.0, 2.0]));
    // 1 - (1 + 0.5) / 2 and 2 - (2 + 1) / 2.
    let x = [0.25, 0.5];
    let traffic = Traffic { dense: 8, ..Traffic::default() };
    let (round, loss) = (Round(0), 3.0);
    let after = vec![
        Effect::RoundDone(RoundDone { round, loss, traffic, model: None, mean: None, members: 2 }),
        send(OTHER, at(0, 0, 1), &floats(&x)),
        recycle(call.clone()),
        request(1, &x, U[0]),
    ];
    let script = [
        (Input::Start, vec![request(0, X[0], &[0.0, 0.0])]),
        (arrives(call), vec![]),
        (computed(0), after),
    ];
    plays("a call", server, script);
}
