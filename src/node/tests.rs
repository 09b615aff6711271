//! Five real nodes over libp2p, one of which says what it should not, while another one leaves. The
//! honest ones end with one result, in which all rounds are done, and nobody loses a checkpoint.

use std::{fs, thread, time::Duration};

use crate::{
    cluster::{
        message::CheckpointId,
        statements::{Said, Statement},
    },
    experiment::{Experiment, Transport},
    learn::{Batch, Objective, Tensor},
    mixing::{FileFormat, Topology},
    net::{Keypair, Message, PeerId, free_ports, lies},
    node::{Event, Node, NodeBuilder, NodeResult},
    units::NodeId,
};

const NODES: usize = 5;
const ROUNDS: u64 = 400;

/// The one that lies, and the one that leaves. Node 0 is the root of the spanning tree.
const LIAR: usize = 1;
const LEAVER: usize = 4;

/// In which round it leaves: checkpoints are written after each fiftieth.
const LEAVES: u64 = 130;

/// f_i(x) = (1/2) |x - i|^2, whose gradients take a while.
struct Bowl(f32, Vec<Tensor>);

impl Objective for Bowl {
    fn tensors(&self) -> &[Tensor] {
        &self.1
    }

    fn rows(&self) -> usize {
        1
    }

    fn gradient(&mut self, x: &[f32], _: Batch<'_>, out: &mut [f32]) -> f64 {
        thread::sleep(Duration::from_millis(2));
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x - self.0);
        self.loss(x)
    }

    fn loss(&mut self, x: &[f32]) -> f64 {
        x.iter().map(|x| f64::from(x - self.0).powi(2)).sum::<f64>() / 2.0
    }
}

/// Runs the nodes. Returns what the honest ones that stay end with.
fn run(lie: impl FnMut(Message) -> Vec<Message> + Send + 'static) -> Vec<NodeResult> {
    let text = format!(
        "run = {{ rounds = {ROUNDS}, evaluate_every = 1000, connect_s = 60 }}\n\
         topology.file = 'complete:{NODES}'\nrule.kind = 'd-psgd'\n\
         optimizer = {{ step = 0.05, batch = 'full' }}\ncheckpoint.every_rounds = 50\n\
         absence = {{ policy = 'continue', deadline_s = 2, wait_s = 30 }}\n"
    );
    let experiment = Experiment::parse(&text, &[]).unwrap();
    let keys: Vec<Keypair> = (0..NODES).map(|_| Keypair::generate_ed25519()).collect();
    let peers: Vec<PeerId> = keys.iter().map(|key| key.public().to_peer_id()).collect();
    let ports = free_ports(Transport::Tcp, NODES).unwrap();
    let address = |node: usize| format!("/ip4/127.0.0.1/tcp/{}", ports[node]);
    let mut text = format!("family = \"complete\"\nnodes = {NODES}\n");
    for (node, peer) in peers.iter().enumerate() {
        text += &format!(
            "[[node]]\nname = \"n{node}\"\npeer = \"{peer}\"\naddresses = [\"{}\"]\n",
            address(node)
        );
    }
    let topology = Topology::from_text(&text, FileFormat::Toml, "complete").unwrap();
    lies(peers[LIAR], lie);
    let folder = tempfile::tempdir().unwrap();
    let start = |(node, key): (usize, &Keypair)| {
        NodeBuilder::new(key.clone(), topology.clone(), experiment.clone())
            .listen(address(node))
            .initial(vec![0.0; 100])
            .objective(Bowl(node as f32, vec![Tensor::new("x", &[100])]))
            .out(folder.path().join(format!("n{node}")))
            .start()
    };
    let mut nodes: Vec<Node> = keys.iter().enumerate().map(start).collect();
    while let Some(event) = nodes[LEAVER].next_blocking() {
        if matches!(event, Event::Round { rounds, .. } if rounds >= LEAVES) {
            break;
        }
    }
    // A checkpoint of a round before it is on every honest disk, whatever the liar has said.
    for node in (0..NODES).filter(|node| *node != LIAR) {
        let name = format!("n{node}");
        let kept = folder.path().join(&name).join("checkpoints").join(&name);
        let files = fs::read_dir(&kept).unwrap().filter(|file| {
            let name = file.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with(".safetensors")
        });
        assert!(files.count() >= 1, "{}", kept.display());
    }
    nodes[LEAVER].stop();
    let ended = nodes.into_iter().map(Node::join_blocking);
    let ended: Vec<_> = ended.enumerate().collect();
    let honest = ended.into_iter().filter(|(node, _)| ![LIAR, LEAVER].contains(node));
    honest.map(|(node, ended)| ended.unwrap_or_else(|error| panic!("{node}: {error}"))).collect()
}

/// All rounds, from a checkpoint; the same result at all.
fn check(ended: &[NodeResult]) {
    assert_eq!(ended.len(), NODES - 2);
    for one in ended {
        assert_eq!(one.summary.rounds, ROUNDS);
        assert_eq!(one.summary.digest, ended[0].summary.digest);
        assert!(!one.summary.history.is_empty(), "one has left");
        let first = &one.summary.history[0];
        assert!(first.round >= 50, "they have begun again in round {}", first.round);
        assert!(!first.members.contains(&format!("n{LEAVER}")), "{first:?}");
    }
}

#[test]
fn one_that_would_delete_all_checkpoints_deletes_none() {
    check(&run(move |message| match message {
        // In the rounds after the other one has left.
        Message::Statements(mut batch)
            if batch.statements.iter().any(|one| matches!(one.said, Said::Saved(150..))) =>
        {
            let (attempt, signature) = (batch.statements[0].attempt, vec![0; 64]);
            let said = Said::Saved(ROUNDS);
            let forged = |node| {
                let (said, signature) = (said.clone(), signature.clone());
                Statement { node, attempt, said, signature }
            };
            batch.statements.extend([0, 2].map(|node| forged(NodeId(node))));
            vec![Message::Statements(batch)]
        }
        other => vec![other],
    }));
}

#[test]
#[ignore = "slow"]
fn one_that_would_dictate_where_to_begin_does_not() {
    check(&run(|message| match message {
        Message::Statements(mut batch) => {
            for statement in &mut batch.statements {
                // Before the rounds there is nothing to dictate: nobody has a checkpoint.
                if let Said::Report(report) = &mut statement.said
                    && !report.kept.is_empty()
                {
                    report.kept = vec![CheckpointId::new(0, 1, &[])];
                }
            }
            vec![Message::Statements(batch)]
        }
        other => vec![other],
    }));
}

#[test]
fn one_that_says_goodbye_for_another_ends_only_itself() {
    let mut records = 0;
    check(&run(move |message| {
        records += u32::from(matches!(message, Message::Status(_)));
        let goodbye = || {
            let text = "its loss is not finite".to_string();
            Message::Goodbye(Some(crate::net::Reason { node: 2, text, leaves: false }))
        };
        match message {
            // Once each of its links has carried a record.
            Message::Status(_) if records == NODES as u32 => vec![goodbye()],
            other => vec![other],
        }
    }));
}

#[test]
#[ignore = "slow"]
fn one_that_forges_the_choice_of_members_decides_nothing() {
    check(&run(|message| match message {
        Message::Chooses(mut news) => {
            for (node, view) in &mut news.views {
                view.number += 1 << 40;
                view.adopted = 7 << 32;
                view.late = (0..NODES as u32).map(NodeId).filter(|other| other != node).collect();
                view.linked.clear();
            }
            vec![Message::Chooses(news)]
        }
        other => vec![other],
    }));
}
