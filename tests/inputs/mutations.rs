//! Damaged files of every kind: each is refused with a line of text or read, and none panics or
//! takes long. Bytes are changed, cut, repeated and exchanged by a seeded stream.

use std::fs;

use gradvine::{
    data::{Column, ColumnKind, Columns, Missing, Preprocessing, Schema},
    experiment::Experiment,
    learn::{Init, Model, ModelParams, SavedModel},
    mixing::{FileFormat, Topology},
    rng::{Purpose, Sequence, Stream},
    run::{NodeFile, RunDirectory, Summary, Whole, metrics::Metric},
    sim,
};
use gradvine_report::Loaded;

const EACH: u64 = 400;

/// Pieces with a meaning in one of the formats.
const PIECES: [&str; 24] = [
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "\n",
    ",",
    "=",
    "<",
    "&",
    "/*",
    "--",
    "#",
    "-1",
    "1e999",
    "NaN",
    "null",
    "true",
    "18446744073709551615",
    "4294967296",
    "99999999",
    "subgraph",
    "\u{feff}",
];

fn below(dice: &mut Sequence, bound: usize) -> usize {
    (dice.uniform() * bound as f64) as usize
}

/// The bytes with some damage.
fn damaged(whole: &[u8], dice: &mut Sequence) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..1 + below(dice, 4) {
        let at = below(dice, bytes.len() + 1);
        let end = (at + 1 + below(dice, 40)).min(bytes.len());
        match below(dice, 6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << below(dice, 8),
            1 => bytes.truncate(at),
            2 if at < end => drop(bytes.drain(at..end)),
            3 if at < end => {
                let copy = bytes[at..end].to_vec();
                let to = below(dice, bytes.len());
                drop(bytes.splice(to..to, copy));
            }
            4 => drop(bytes.splice(at..at, PIECES[below(dice, PIECES.len())].bytes())),
            _ => {
                // A number becomes another.
                let digits = |byte: &u8| byte.is_ascii_digit();
                if let Some(first) = bytes[at..].iter().position(digits).map(|offset| at + offset) {
                    let length = bytes[first..].iter().take_while(|byte| digits(byte)).count();
                    let number = PIECES[14 + below(dice, 8)];
                    drop(bytes.splice(first..first + length, number.bytes()));
                }
            }
        }
    }
    bytes
}

/// Calls `read` with variants of a file; a refusal must be one line of text.
fn each(name: &str, whole: &[u8], mut read: impl FnMut(&[u8]) -> Result<(), String>) {
    assert_eq!(read(whole), Ok(()), "{name} as it is");
    let mut refused = 0;
    for variant in 0..EACH {
        let mut dice = Stream::new(5, Purpose::Test).with(variant).sequence();
        if let Err(error) = read(&damaged(whole, &mut dice)) {
            refused += 1;
            assert!(
                !error.is_empty() && error.len() < 20_000,
                "{name}, variant {variant}: {error}"
            );
        }
    }
    assert!(refused > EACH / 10, "{name}: damage was refused {refused} times of {EACH}");
}

const DEPLOYED: &str = "name = 'three'\nfamily = 'custom'\nweights = 'given'\n[[node]]\nname = \
                        'a'\npeer = '12D3KooWx'\n\
     addresses = ['/ip4/203.0.113.7/tcp/4001']\n[[node]]\nname = 'b'\n[[node]]\nname = \
     'c'\n[[link]]\nbetween = ['a', 'b']\n\
     weight = 0.25\nlatency_ms = 70\n[[link]]\nbetween = ['b', 'c']\nweight = 0.5\nbandwidth_mbps \
     = 1e3\n";

#[test]
fn topologies() {
    let topology = Topology::from_text(DEPLOYED, FileFormat::Toml, "net").unwrap();
    for format in FileFormat::ALL {
        each(&format.to_string(), topology.to_text(format).as_bytes(), |bytes| {
            let text = String::from_utf8_lossy(bytes);
            Topology::from_text(&text, format, "net").map(drop).map_err(|error| error.to_string())
        });
    }
    let dot = "strict digraph { edge [weight=0.2]; node [x=1]; a -> {b; c -- d} -> e:n \
               [latency_ms=\"3\"]; subgraph s { edge \
               [weight=.3] f -- g } g -- a /* x */ // y\n}";
    each("hand-made DOT", dot.as_bytes(), |bytes| {
        let read = Topology::from_text(&String::from_utf8_lossy(bytes), FileFormat::Dot, "net");
        read.map(drop).map_err(|error| error.to_string())
    });
}

#[test]
fn experiments_and_node_files() {
    let text = Experiment::default_with(&[]).unwrap().to_toml();
    each("experiment", text.as_bytes(), |bytes| {
        let read = Experiment::parse(&String::from_utf8_lossy(bytes), &[]);
        read.map(drop).map_err(|error| error.to_string())
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let text = "key = 'k'\nlisten = ['/ip4/0.0.0.0/tcp/4001']\ntopology = 't.toml'\nexperiment = \
                'e.toml'\ndata = 'd.csv'\n\
                test = 'digits'\nout = 'runs/a'\n";
    each("node file", text.as_bytes(), |bytes| {
        fs::write(&file, bytes).unwrap();
        NodeFile::load(&file).map(drop).map_err(|error| error.to_string())
    });
}

#[test]
fn models() {
    let params =
        ModelParams { kind: "mlp".into(), hidden: Some(vec![5, 3]), ..ModelParams::default() };
    let model = Model::resolve(&params, Some(4), Some(2)).unwrap();
    let x = model.initial(Some(&Init::Seeded), std::path::Path::new(""), 1).unwrap();
    let column = |name: &str, kind, missing| Column {
        name: name.into(),
        kind,
        values: None,
        other: false,
        missing,
        origin: None,
    };
    let schema = Schema {
        columns: vec![
            column("a", ColumnKind::Number, Missing::Mean),
            column("b", ColumnKind::Date, Missing::Value(2.0)),
            Column {
                values: Some(vec!["x".into(), "y".into()]),
                ..column("c", ColumnKind::Category, Missing::Refuse)
            },
        ],
    };
    let saved = SavedModel {
        model,
        x,
        preprocessing: Preprocessing { fills: vec![1.5], ..Preprocessing::default() },
        schema: Some(schema),
        classes: vec!["n".into(), "y".into()],
        columns: Some(Columns {
            features: ["a", "b", "c", "d"].map(String::from).into(),
            targets: vec!["sick".into()],
        }),
        extra: Default::default(),
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.safetensors");
    saved.write(&file).unwrap();
    let bytes = fs::read(&file).unwrap();
    each("model", &bytes, |bytes| {
        SavedModel::from_bytes(bytes).map(drop).map_err(|error| error.to_string())
    });
}

#[test]
fn archives_of_arrays() {
    use crate::archives::{DEFLATED, STORED};
    for (name, bytes) in [("stored arrays", STORED), ("compressed arrays", DEFLATED)] {
        each(name, bytes, |bytes| {
            let read = gradvine::data::parse("a.npz", bytes, None, &Default::default());
            read.map(drop).map_err(|error| error.to_string())
        });
    }
}

#[test]
#[ignore = "slow"]
fn run_directories() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let sets = ["run.rounds=4", "run.evaluate_every=2", "topology.file=path:3", "model.hidden=[3]"]
        .map(String::from);
    let whole = std::sync::Arc::new(Whole::new(Experiment::default_with(&sets).unwrap()).unwrap());
    let mut directory = RunDirectory::create(&path).unwrap();
    directory.write("experiment.toml", &whole.design.experiment.to_toml()).unwrap();
    directory.write("topology.toml", &whole.design.topology.to_toml()).unwrap();
    let mut metrics: Vec<Metric> = Vec::new();
    let ended = {
        let keep = |metric: &Metric| metrics.push(metric.clone());
        let mut watch = gradvine::run::Watch::new(std::sync::Arc::clone(&whole), keep, |_| ());
        sim::run(whole.specs(), &mut watch).unwrap()
    };
    metrics.iter().for_each(|metric| directory.metric(metric).unwrap());
    directory.summary(&Summary::new(&whole.design, &ended[0].records).unwrap()).unwrap();
    for name in ["summary.json", "metrics.jsonl", "topology.toml", "experiment.toml"] {
        let file = path.join(name);
        let intact = fs::read(&file).unwrap();
        each(name, &intact, |bytes| {
            fs::write(&file, bytes).unwrap();
            let run = Loaded::load(&path).map_err(|error| error.to_string())?;
            // A file that was read can be shown.
            assert!(gradvine_report::page(vec![run]).html.contains("</html>"));
            Ok(())
        });
        fs::write(&file, intact).unwrap();
    }
}

/// Texts on which a reader that searches all earlier lines, at each line, takes minutes.
#[test]
#[ignore = "slow"]
fn no_text_is_read_in_quadratic_time() {
    const LINES: usize = 300_000;
    let dot: String = "edge [weight=0.25]; 0 -- 1; {};\n".repeat(LINES);
    let read = |text: &str, format| Topology::from_text(text, format, "net");
    assert_eq!(read(&format!("graph {{ {dot} }}"), FileFormat::Dot).unwrap().nodes(), 2);
    let attributes: String = (0..LINES).map(|i| format!(" a{i}=''")).collect();
    let graphml = format!("<graphml><graph{attributes}><node id='0'/></graph></graphml>");
    let error = read(&graphml, FileFormat::GraphMl).unwrap_err().to_string();
    assert!(error.contains("more than 256 attributes"), "{error}");
    let columns: String = (0..LINES).map(|i| format!(",c{i}")).collect();
    let csv = format!("source,target{columns},weight\n{}", "a,b\n".repeat(LINES));
    assert_eq!(read(&csv, FileFormat::Csv).unwrap().nodes(), 2);
}
