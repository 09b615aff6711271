//! Members that are linked and send no frames, whatever else they send, end no deadline.
#![cfg(feature = "net")]

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use gradvine::{
    experiment::{Experiment, Transport},
    mixing::{FileFormat, Topology},
    net::{
        Keypair, Links, Message, Multiaddr, PeerId, Report, RunCard, Said, Statement, free_ports,
    },
    node::{EndError, Event, Node, NodeBuilder},
    status::{AtWork, Board, Record},
    units::NodeId,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    hostile_peers::{Raw, hear, say},
    leaving::Flat,
    links::{SOON, runtime},
};

/// What a member does once it is linked and has said that it is ready.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Nothing,
    Heartbeats,
    SignsOfWork,
    /// It closes its connections and makes new ones, from the beginning of the run on.
    Breaks,
}

const NAMES: [&str; 3] = ["london", "oslo", "tokyo"];

/// How often a member speaks, or breaks its link.
const OFTEN: Duration = Duration::from_millis(200);

/// Three nodes, of which the first ones run, with a link between any two. The others have no
/// address, so that they dial.
struct Three {
    keys: Vec<Keypair>,
    addresses: Vec<String>,
    topology: Topology,
    experiment: Experiment,
    folder: tempfile::TempDir,
}

impl Three {
    fn new(running: usize, links: &str, absence: &str) -> Three {
        let keys: Vec<Keypair> = NAMES.iter().map(|_| Keypair::generate_ed25519()).collect();
        let ports = free_ports(Transport::Tcp, running).unwrap();
        let addresses: Vec<String> =
            ports.iter().map(|port| format!("/ip4/127.0.0.1/tcp/{port}")).collect();
        let mut text = format!("{links}\nnodes = 3\n");
        for (node, (name, key)) in NAMES.into_iter().zip(&keys).enumerate() {
            let peer = key.public().to_peer_id();
            let address =
                addresses.get(node).map_or("[]".into(), |address| format!("[{address:?}]"));
            text +=
                &format!("[[node]]\nname = \"{name}\"\npeer = \"{peer}\"\naddresses = {address}\n");
        }
        let text_of_run = format!(
            "run = {{ rounds = 30, patience_s = 2.0, work_s = 2.0 }}\nrule.kind = 'd-psgd'\n\
             compressor.kind = 'identity'\ntopology.file = 'complete:3'\n\
             optimizer.batch = 'full'\nabsence = {{ deadline_s = 1.0, {absence} }}"
        );
        Three {
            keys,
            addresses,
            topology: Topology::from_text(&text, FileFormat::Toml, "three").unwrap(),
            experiment: Experiment::parse(&text_of_run, &[]).unwrap(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn builder(&self, node: usize) -> NodeBuilder {
        let (topology, experiment) = (self.topology.clone(), self.experiment.clone());
        let builder = NodeBuilder::new(self.keys[node].clone(), topology, experiment)
            .objective(Flat::default());
        match self.addresses.get(node) {
            Some(address) => builder.listen(address.clone()),
            None => builder,
        }
    }

    fn start(&self, node: usize) -> Node {
        self.builder(node).out(self.folder.path().join(NAMES[node])).start()
    }

    fn neighbours(&self, node: usize) -> Vec<NodeId> {
        self.topology.neighbours(node.into()).to_vec()
    }

    /// Lets a member that does this serve its link with a node, for as long as the runtime lives.
    fn serve(&self, member: usize, node: usize, does: Does, started: watch::Receiver<bool>) {
        let card = RunCard::new(self.builder(node).prepare().unwrap().design());
        let prepared = self.builder(member).prepare().unwrap();
        let hostile = Hostile {
            key: self.keys[member].clone(),
            neighbours: self.neighbours(member),
            node: NodeId::from(member),
            peer: self.keys[node].public().to_peer_id(),
            address: self.addresses[node].parse().unwrap(),
            card,
            board: prepared.board(),
            signer: Box::new(prepared.signer()),
            does,
            started,
        };
        tokio::spawn(hostile.run());
    }
}

/// A member that sends no frames.
struct Hostile {
    key: Keypair,
    node: NodeId,
    peer: PeerId,
    address: Multiaddr,
    card: RunCard,
    /// It signs what it says to all others.
    signer: Box<dyn Fn(Said) -> Statement + Send + Sync>,
    neighbours: Vec<NodeId>,
    /// It signs what it says there.
    board: Arc<Board>,
    does: Does,
    /// Whether the run has started.
    started: watch::Receiver<bool>,
}

impl Hostile {
    async fn run(mut self) {
        loop {
            let hello = self.card.hello(self.node);
            let dialled =
                timeout(SOON, Raw::dial(&self.key, self.peer, &self.address, hello)).await;
            if let Ok(Ok(raw)) = dialled {
                let _ = self.serve(raw).await;
            }
            sleep(OFTEN).await;
        }
    }

    /// Says that it has no checkpoints, and that it is linked with all its neighbours.
    async fn links(&self, control: &mut libp2p::Stream) -> std::io::Result<()> {
        let says = async |control: &mut libp2p::Stream, said: Said| {
            let statements = vec![(self.signer)(said)];
            say(control, &Message::Statements(statements.into())).await
        };
        says(control, Said::Report(Report::default())).await?;
        let mut attempts = BTreeMap::new();
        while !self.neighbours.iter().all(|peer| attempts.contains_key(peer)) {
            if let Message::Statements(batch) = hear(control).await? {
                attempts.extend(batch.statements.iter().map(|one| (one.node, one.attempt)));
            }
        }
        let attempts = self.neighbours.iter().map(|peer| Some(attempts[peer])).collect();
        says(control, Said::Links(Links { number: 1, attempts })).await
    }

    async fn serve(&mut self, mut raw: Raw) -> std::io::Result<()> {
        self.links(&mut raw.control).await?;
        loop {
            let message = match self.does {
                Does::Nothing => std::future::pending().await,
                Does::Heartbeats => Message::Heartbeat,
                Does::SignsOfWork => {
                    let at_work = Some(AtWork::Computes);
                    self.board.say(Instant::now(), Record { at_work, ..Record::default() });
                    Message::Status(self.board.news(Instant::now(), &mut Default::default()))
                }
                Does::Breaks => {
                    let _ = self.started.wait_for(|started| *started).await;
                    sleep(OFTEN).await;
                    return Ok(());
                }
            };
            say(&mut raw.control, &message).await?;
            sleep(OFTEN).await;
        }
    }
}

/// Until a node's run has started.
async fn begins(node: &mut Node) {
    while node.next().await.expect("it has not ended") != Event::Started {}
}

/// Both links of a node are served by members that do this: it ends by its deadlines.
async fn ends(does: Does) {
    let three = Three::new(1, "family = \"star\"", "policy = 'wait'");
    let mut node = three.start(0);
    let (start, has_started) = watch::channel(false);
    [1, 2].iter().for_each(|&member| three.serve(member, 0, does, has_started.clone()));
    timeout(3 * SOON, begins(&mut node)).await.expect("it begins");
    start.send(true).unwrap();
    let ended = timeout(3 * SOON, node.join()).await.expect("it ends by its deadlines");
    // The command ends with exit code 4.
    let Err(EndError::Failed(ending)) = ended else { panic!("{does:?}: {:?}", ended.map(|_| ())) };
    // Its link is given up, or the node that awaits it ends.
    let says = ["did not return within 1 s (absence.deadline_s)", "node london waited"];
    assert!(says.iter().any(|says| ending.text.contains(says)), "{does:?}: {}", ending.text);
    assert!(ending.text.contains("in round 0"), "{does:?}: {}", ending.text);
    assert!(["oslo", "tokyo"].iter().any(|name| ending.awaited.contains(&name.to_string())));
    assert!(!ending.awaited.contains(&"london".to_string()), "{does:?}: {:?}", ending.awaited);
}

#[test]
#[ignore = "slow"]
fn members_that_send_no_frames_have_a_deadline() {
    let all = [Does::Nothing, Does::Heartbeats, Does::SignsOfWork, Does::Breaks];
    runtime().block_on(join_all(all.map(ends)));
}

/// Two nodes continue without the third one, which does this on both of its links.
async fn goes_on(does: Does) {
    let three = Three::new(2, "family = \"complete\"", "policy = 'continue', wait_s = 60.0");
    let mut nodes = [three.start(0), three.start(1)];
    let (start, has_started) = watch::channel(false);
    [0, 1].iter().for_each(|&node| three.serve(2, node, does, has_started.clone()));
    for node in &mut nodes {
        timeout(3 * SOON, begins(node)).await.expect("it begins");
    }
    start.send(true).unwrap();
    for node in nodes {
        let ended = timeout(6 * SOON, node.join()).await.expect("it continues");
        let Ok(result) = ended else { panic!("{does:?}: {:?}", ended.map(|_| ())) };
        let last = result.summary.history.last().expect("the members have changed");
        assert_eq!(last.members, ["london", "oslo"], "{does:?}");
        assert_eq!(result.summary.rounds, 30, "{does:?}");
    }
}

#[test]
#[ignore = "slow"]
fn a_member_that_sends_no_frames_is_left_out_and_the_rest_goes_on() {
    runtime().block_on(join_all([Does::Heartbeats, Does::SignsOfWork].map(goes_on)));
}
