//! What is done with arbitrary bytes: nothing may panic, take long or much memory, and what is
//! accepted must be usable. `tests/inputs/corpora.rs` does it with the files in `fuzz/corpus`,
//! `cargo fuzz run NAME` with new ones.

use std::sync::{Arc, OnceLock};

use gradvine::{
    compress::{self, COMPRESSORS, Compressor, Size},
    data::{self, Options},
    drive::Change,
    experiment::Experiment,
    gossip::{
        Effect, Input, Node,
        frame::{self, Header},
        plan::At,
        tree::Readers,
    },
    learn::SavedModel,
    mixing::{FileFormat, Topology},
    rng::{Purpose, Stream},
    run::{Checkpoint, Design, NodeFile, Summary, Whole, check_history},
    units::{NodeId, Round},
};

/// A function that takes arbitrary bytes.
pub(super) type Target = fn(&[u8]);

/// All of them with their names.
pub(super) const TARGETS: &[(&str, Target)] = &[
    #[cfg(feature = "net")]
    ("message", message),
    ("frame", frame),
    ("payload", payload),
    ("topology", topology),
    ("experiment", experiment),
    ("node_file", node_file),
    ("data", data),
    ("model", model),
    ("checkpoint", checkpoint),
    ("summary", summary),
];

/// Splits off the first byte.
fn first(bytes: &[u8]) -> (u8, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest))
}

/// A message of a neighbour's control stream, without its length.
#[cfg(feature = "net")]
pub(super) fn message(bytes: &[u8]) {
    use gradvine::net::{Message, RunCard, decode, encode};
    static CARD: OnceLock<RunCard> = OnceLock::new();
    let Ok(message) = decode(bytes) else { return };
    let again = decode(&encode(&message)[4..]).expect("what was read can be written");
    assert_eq!(format!("{message:?}"), format!("{again:?}"));
    match &message {
        Message::Hello(hello) => {
            let card = CARD.get_or_init(|| RunCard::new(&designs()[0]));
            let _ = card.compare(NodeId(1), hello);
        }
        Message::Chooses(news) => {
            let _ = news.is_valid(&designs()[0].topology);
        }
        _ => {}
    }
}

/// Small runs with several rules.
fn designs() -> &'static [Arc<Design>] {
    static DESIGNS: OnceLock<Vec<Arc<Design>>> = OnceLock::new();
    DESIGNS.get_or_init(|| {
        let rules: [&[&str]; 8] = [
            &["rule.kind=dcd", "compressor.kind=min-max"],
            &["rule.kind=choco", "compressor.kind=top-k"],
            &["rule.kind=d-psgd", "compressor.kind=identity"],
            &["rule.kind=moniqua", "compressor.kind=identity"],
            &["rule.kind=sgp", "compressor.kind=identity"],
            &["rule.kind=g-top-k", "compressor.kind=identity"],
            &["rule.kind=power-gossip", "compressor.kind=identity"],
            &["rule.kind=ad-psgd", "compressor.kind=identity"],
        ];
        let design = |rule: &&[&str]| {
            let common = ["topology.file=complete:4", "model.hidden=[2]", "run.rounds=20"];
            let sets = rule.iter().chain(&common).map(ToString::to_string).collect::<Vec<_>>();
            let experiment = Experiment::default_with(&sets).expect("the settings are valid");
            Whole::new(experiment).expect("the run is valid").design
        };
        rules.iter().map(design).collect()
    })
}

/// A frame of a neighbour: the rule, the sender, its place, and its payload; with a checksum that
/// is right, and as it is.
pub(super) fn frame(bytes: &[u8]) {
    let (which, rest) = first(bytes);
    let (from, rest) = first(rest);
    let (round, rest) = first(rest);
    let (flight, rest) = first(rest);
    let (exchange, rest) = first(rest);
    let design = &designs()[usize::from(which) % designs().len()];
    let mut node = Node::new(design.node(NodeId(0), None, Readers::Root));
    let mut effects = Vec::new();
    node.handle(Input::Start, &mut effects);
    let Some(Effect::Compute { round: step, x, mut update, .. }) = effects.pop() else { return };
    update.fill(0.25);
    let computed = Input::Computed { round: step, x, update, loss: 1.0, step: 0.1, ends: false };
    node.handle(computed, &mut effects);
    let mut sealed = Vec::new();
    frame::reserve(&mut sealed);
    sealed.extend_from_slice(rest);
    let at = At { round: Round(round.into()), flight, exchange: exchange.into() };
    frame::seal(&Header { at, replica: None }, None, &mut sealed);
    let from = NodeId(u32::from(from % 4));
    for bytes in [sealed, rest.to_vec()] {
        node.handle(Input::Frame { from, bytes }, &mut effects);
    }
}

/// A compressed vector: the compressor, the length of the vector (two bytes), its bytes.
pub(super) fn payload(bytes: &[u8]) {
    static ALL: OnceLock<Vec<Arc<dyn Compressor>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let texts = COMPRESSORS.iter().flat_map(|entry| {
            let variants = [""].iter().chain(entry.variants);
            variants.map(move |variant| format!("kind = '{}'\n{variant}", entry.name))
        });
        let made = texts.filter_map(|text| compress::build(&toml::from_str(&text).ok()?).ok());
        made.map(|built| built.compressor).collect()
    });
    let (which, rest) = first(bytes);
    let (low, rest) = first(rest);
    let (high, rest) = first(rest);
    let compressor = &all[usize::from(which) % all.len()];
    let len = usize::from(low) + 256 * usize::from(high % 16);
    if compressor.check(len, rest).is_err() {
        return;
    }
    let size = compressor.size(len);
    assert!(rest.len() <= size.limit());
    assert!(!matches!(size, Size::Exact(size) if size != rest.len()));
    let (noise, mut sum) = (Stream::new(7, Purpose::Compress), vec![0.0; len]);
    compressor.add_into(rest, noise, 1.0, &mut sum);
    assert!(sum.iter().all(|x| x.is_finite()), "{compressor:?}");
    compressor.entries(len, rest, noise, &mut |index, value| sum[index as usize] = value);
}

/// A topology file: its format, its text.
pub(super) fn topology(bytes: &[u8]) {
    let (which, rest) = first(bytes);
    let format = FileFormat::ALL[usize::from(which) % FileFormat::ALL.len()];
    let Ok(read) = Topology::from_text(&String::from_utf8_lossy(rest), format, "net") else {
        return;
    };
    let (text, nodes) = (read.to_text(FileFormat::Toml), read.nodes());
    let again = Topology::from_text(&text, FileFormat::Toml, "net");
    assert_eq!(again.map(|again| again.nodes()).ok(), Some(nodes), "{text}");
}

pub(super) fn experiment(bytes: &[u8]) {
    let Ok(read) = Experiment::parse(&String::from_utf8_lossy(bytes), &[]) else { return };
    let text = read.to_toml();
    let again = Experiment::parse(&text, &[]).expect("what was written can be read");
    assert_eq!(again.canonical(), read.canonical());
}

/// The files of a node and of a relay.
pub(super) fn node_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = toml::from_str::<NodeFile>(&text);
    #[cfg(feature = "net")]
    let _ = toml::from_str::<gradvine::net::RelayFile>(&text);
}

/// A data file: its format, then its bytes.
pub(super) fn data(bytes: &[u8]) {
    let (which, rest) = first(bytes);
    let names = ["a.csv", "a.npy", "a.idx", "a.csv.gz"];
    let name = if which & 8 != 0 { "a.npz" } else { names[usize::from(which % 4)] };
    let labels = (which & 4 != 0).then_some(("labels.idx", &rest[..rest.len().min(64)]));
    if let Ok(read) = data::parse(name, rest, labels, &Options::default()) {
        assert!(read.rows() > 0 && read.inputs() > 0);
        assert!(read.features.iter().all(|x| x.is_finite()));
    }
}

pub(super) fn model(bytes: &[u8]) {
    if let Ok(read) = SavedModel::from_bytes(bytes) {
        assert_eq!(read.x.len(), read.model.parameters());
    }
}

/// The header of a checkpoint, with a checksum that is right, and a whole file.
pub(super) fn checkpoint(bytes: &[u8]) {
    let _ = Checkpoint::from_bytes(bytes);
    let header = String::from_utf8_lossy(bytes);
    let (name, values) = ("000000.x", [0u8; 8]);
    let sum = crc32c::crc32c_append(crc32c::crc32c(header.as_bytes()), &values);
    let keys = serde_json::json!({
        "__metadata__": {"gradvine.checkpoint": header, "gradvine.crc32c": format!("{sum:08x}")},
        name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    });
    let text = keys.to_string();
    let mut file = (text.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(text.as_bytes());
    file.extend_from_slice(&values);
    if let Ok(read) = Checkpoint::from_bytes(&file) {
        assert_eq!(read.snapshot.x, [0.0; 2]);
        let _ = check_history(&designs()[0], &read.history);
    }
}

/// A summary, and the history in it.
pub(super) fn summary(bytes: &[u8]) {
    if let Ok(read) = serde_json::from_slice::<Summary>(bytes) {
        let text = serde_json::to_string(&read).expect("what was read can be written");
        serde_json::from_str::<Summary>(&text).expect("what was written can be read");
    }
    if let Ok(history) = serde_json::from_slice::<Vec<Change>>(bytes)
        && check_history(&designs()[0], &history).is_ok()
    {
        for change in &history {
            let restricted = designs()[0].restricted(&change.members, &change.cut);
            assert!(restricted.is_ok(), "a history that was accepted");
        }
    }
}

/// Bytes that are accepted, as a beginning.
pub(super) fn seeds(name: &str) -> Vec<Vec<u8>> {
    let with = |first: u8, rest: &[u8]| [&[first][..], rest].concat();
    match name {
        #[cfg(feature = "net")]
        "message" => {
            use gradvine::net::{Message, Reason, RunCard, encode};
            let hello = RunCard::new(&designs()[0]).hello(NodeId(1));
            let reason = Reason { node: 1, text: "why".into(), leaves: true };
            let messages = [
                Message::Heartbeat,
                Message::Probe,
                Message::Ack(7),
                Message::Hello(hello),
                Message::Goodbye(Some(reason)),
            ];
            messages.iter().map(|message| encode(message)[4..].to_vec()).collect()
        }
        "frame" => (0..8).map(|rule| vec![rule, 1, 0, 0, 0, 1, 2, 3]).collect(),
        "payload" => (0..40).map(|which| vec![which, 3, 0, 0, 0, 128, 63, 0, 0, 0, 0]).collect(),
        "topology" => {
            let text = "name = 'three'\nfamily = 'custom'\nweights = 'given'\n[[node]]\nname = \
                        'a'\npeer = '12D3KooWx'\naddresses = \
                        ['/ip4/203.0.113.7/tcp/4001']\n[[node]]\nname = 'b'\n[[link]]\nbetween = \
                        ['a', 'b']\nweight = 0.25\nlatency_ms = 70\n";
            let read = Topology::from_text(text, FileFormat::Toml, "net").expect("it is valid");
            let formats = FileFormat::ALL.iter().enumerate();
            formats.map(|(i, format)| with(i as u8, read.to_text(*format).as_bytes())).collect()
        }
        "experiment" => {
            vec![Experiment::default_with(&[]).expect("it is valid").to_toml().into_bytes()]
        }
        "node_file" => vec![
            b"key = 'k'\nlisten = ['/ip4/0.0.0.0/tcp/4001']\ntopology = 't'\nexperiment = 'e'\n\
              data = 'd.csv'\nout = 'r'\n"
                .to_vec(),
        ],
        "data" => {
            let npy =
                b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': \
                        (2, 2), }          \n\0\0\x80?\0\0\0@\0\0\x80?\0\0\0\0";
            let idx = [0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4];
            vec![
                with(0, b"a,b,label\n1,2,x\n3,4.5,y\n"),
                with(1, npy),
                with(2, &idx),
                with(6, &idx),
                with(8, include_bytes!("../tests/inputs/deflated.npz")),
            ]
        }
        "checkpoint" => {
            let header = "{\"format\":1,\"rounds\":3,\"vectors\":[\"000000.x\"],\"rule\":[],\
                          \"learner\":[],\"growth\":[0,0,0],\"traffic\":[0,0,0,0],\"links\":[],\
                          \"setup\":[],\"time\":0,\"computing\":0,\"membership\":0,\"common\":0,\
                          \"history\":[]}";
            vec![header.as_bytes().to_vec()]
        }
        "summary" => {
            let change = Change {
                round: Round(5),
                members: [0, 1, 2].map(NodeId).into(),
                models: [0, 1].map(NodeId).into(),
                ..Change::default()
            };
            vec![serde_json::to_vec(&vec![change]).expect("it serialises")]
        }
        _ => Vec::new(),
    }
}
