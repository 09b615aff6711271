//! Wrong settings: every key of an experiment refuses values that cannot work, with one line that
//! names the place, the value and the accepted ones; no files are left behind.

use crate::command;

use std::{collections::BTreeSet, fs};

use command::{folder, gradvine, refused};
use serde_json::Value;

/// `key=value`, the settings before it, and words of the error beside the key.
type Case = (&'static str, &'static str, &'static [&'static str]);

/// No float outside its range: none of these is a step, a share, a constant of a rule.
const NOT_POSITIVE: [&str; 6] = ["0", "-1", "nan", "inf", "1e300", "1e-300"];

const SYNTHETIC: &str =
    "data.source=synthetic model.kind=least-squares data.split=contiguous data.test_share=0";

const PLAIN_C_SGD: &str = "rule.kind=c-sgd compressor.kind=identity";

const CASES: &[Case] = &[
    ("", "run.id=", &["1 to 64 letters"]),
    ("", "run.id=a b", &["1 to 64 letters"]),
    ("", "run.id=3", &["expected a string"]),
    ("", "run.seed=-1", &["a whole number from 0"]),
    ("", "run.seed=1.5", &["a whole number from 0"]),
    ("", "run.seed=18446744073709551616", &["to 9223372036854775807"]),
    ("", "run.rounds=0", &["a whole number from 1"]),
    ("", "run.rounds=-1", &["a whole number from 0"]),
    ("", "run.rounds=nan", &["a whole number"]),
    ("", "run.rounds=many", &["a whole number"]),
    ("", "run.evaluate_every=0", &["a whole number from 1"]),
    ("", "run.evaluate_every=-2", &["a whole number"]),
    ("", "run.out=", &["the name of a folder"]),
    ("", "run.out=3", &["expected a string"]),
    ("", "run.allow_unstable=1", &["true or false"]),
    ("", "run.patience_s=0", &["from 0.1 to 2592000"]),
    ("", "run.patience_s=nan", &["from 0.1 to 2592000"]),
    ("", "run.patience_s=1e300", &["1e300", "from 0.1"]),
    ("", "run.patience_s=x", &["expected a number"]),
    ("", "run.work_s=0", &["from 0.1"]),
    ("", "run.connect_s=-1", &["from 0.1"]),
    ("", "run.connect_s=inf", &["from 0.1"]),
    ("", "run.transport=udp", &["`tcp` or `quic`"]),
    ("", "run.transport=3", &["a name in quotes"]),
    ("", "run.congestion=''", &["such as bbr or cubic"]),
    ("", "run.congestion='b b r'", &["such as bbr or cubic"]),
    ("run.transport=quic", "run.congestion=bbr", &["QUIC has its own"]),
    ("", "topology.file=", &["expected a file", "ring:8"]),
    ("", "topology.file=3", &["expected a string"]),
    ("", "topology.file=ring:0", &["\"ring:0\"", "expected 1 or more"]),
    ("", "topology.file=ring:100000000", &["too many"]),
    ("", "topology.file=torus:4", &["rows, columns"]),
    ("", "topology.family=blob", &["expected one of ring, path"]),
    ("", "topology.nodes=4", &["says its size itself"]),
    ("topology.family=ring", "topology.nodes=0", &["1 or more"]),
    ("topology.family=ring", "topology.nodes=-1", &["from 0 to 4294967295"]),
    ("topology.family=hypercube", "topology.nodes=7", &["a power of two"]),
    ("topology.family=ring topology.nodes=4", "topology.rows=2", &["a ring takes nodes"]),
    ("topology.family=torus topology.columns=4", "topology.rows=0", &["1 or more"]),
    ("topology.family=torus topology.rows=4", "topology.columns=x", &["a whole number"]),
    ("topology.family=random-regular topology.nodes=5", "topology.degree=3", &["odd number"]),
    (
        "topology.family=random-regular topology.nodes=5",
        "topology.degree=9",
        &["below the 5 nodes"],
    ),
    ("", "topology.weights=even", &["metropolis, max-degree"]),
    (
        "",
        "topology.schedule=random",
        &["expected one of static, one-peer-exponential, base-2, random-matching"],
    ),
    ("", "topology.schedule=3", &["expected a string"]),
    ("", "topology.schedule=base-2", &["needs the link 0 - 2", "exponential:8 or complete:8"]),
    (
        "topology.file=exponential:8",
        "topology.schedule=one-peer-exponential",
        &["choco", "go stale", "deep-squeeze"],
    ),
    ("", "data.source=", &["no such file", "digits, breast-cancer"]),
    ("", "data.source=nofile.csv", &["no such file", "digits, breast-cancer"]),
    ("", "data.source=3", &["expected a string"]),
    ("", "data.rows=100", &["only source = \"synthetic\""]),
    (SYNTHETIC, "data.rows=0", &["from 1 to 1073741824"]),
    (SYNTHETIC, "data.rows=1073741824", &["at most 1073741824 numbers"]),
    ("", "data.features=10", &["only source = \"synthetic\""]),
    (SYNTHETIC, "data.features=-1", &["a whole number"]),
    ("", "data.noise=1", &["only source = \"synthetic\""]),
    (SYNTHETIC, "data.noise=nan", &["from 0 to 1000000"]),
    ("", "data.heterogeneity=1", &["only source = \"synthetic\""]),
    (SYNTHETIC, "data.heterogeneity=inf", &["from 0 to 1000000"]),
    (
        "data.source=synthetic model.kind=least-squares",
        "data.heterogeneity=1",
        &["set split = \"contiguous\" and test_share = 0"],
    ),
    ("data.source=synthetic", "model.kind=softmax", &["\"least-squares\""]),
    ("", "data.split=random", &["`iid`", "`dirichlet`"]),
    ("data.split=dirichlet", "data.alpha=0", &["a number above 0"]),
    ("data.split=dirichlet", "data.alpha=nan", &["a number above 0"]),
    ("data.split=dirichlet", "data.alpha=1e300", &["1e300", "up to 1e9"]),
    ("", "data.alpha=1", &["only a dirichlet split"]),
    ("", "data.test_share=1", &["from 0 to below 1"]),
    ("", "data.test_share=-0.1", &["from 0 to below 1"]),
    ("", "data.test_share=nan", &["from 0 to below 1"]),
    ("", "data.test_share=0.9999", &["none is left for training"]),
    ("", "data.standardize=1", &["true or false"]),
    ("", "data.scale=1", &["`mean` and `deviation`"]),
    ("", "data.scale={mean=[1.0],deviation=[1.0]}", &["1 numbers for 64 features"]),
    ("", "data.scale={mean=[1.0]}", &["missing field `deviation`"]),
    ("", "data.target=height", &["no such column", "from 0 to 64"]),
    ("", "data.target=99", &["no such column", "from 0 to 64"]),
    ("", "data.header=1", &["true or false"]),
    ("", "data.header=true", &["leave the key out"]),
    ("", "data.labels=labels.idx", &["leave the key out"]),
    ("", "data.weighting=people", &["`nodes` or `rows`"]),
    ("", "model.kind=tree", &["least-squares, softmax, mlp"]),
    ("", "model.kind=", &["least-squares, softmax, mlp"]),
    ("", "model.kind=3", &["the name of a model"]),
    ("", "model.hidden=[0]", &["each from 1"]),
    ("", "model.hidden=[-1]", &["a whole number"]),
    ("", "model.hidden=8", &["a list in square brackets"]),
    ("model.kind=softmax", "model.hidden=[8]", &["has no hidden layers"]),
    ("", "model.bias=1", &["true or false"]),
    ("", "model.init=zeros", &["\"seeded\" is accepted"]),
    ("", "model.init=random", &["`zeros` or `seeded`"]),
    ("", "model.outputs=0", &["from 1 to 65536"]),
    ("", "model.outputs=-1", &["a whole number"]),
    ("", "model.inputs=-1", &["a whole number"]),
    ("", "rule.kind=dsgd", &["expected one of d-psgd, naive", "choco"]),
    ("", "rule.kind=3", &["the name of a rule"]),
    ("", "rule.gamma=x", &["expected a number"]),
    ("", "rule.order=atc", &["`icml` or `iclr`"]),
    ("rule.kind=d-psgd compressor.kind=identity", "rule.order=icml", &["`atc` or `cta`"]),
    ("rule.kind=deep-squeeze", "rule.eta=x", &["expected a number"]),
    (PLAIN_C_SGD, "rule.collective=bus", &["`ring`", "`server`", "`all-to-all`", "`hybrid`"]),
    (PLAIN_C_SGD, "rule.collective=server", &["no link 2 - 0", "star:n"]),
    (PLAIN_C_SGD, "rule.group=2", &["only collective = \"hybrid\" has groups"]),
    (PLAIN_C_SGD, "rule.layers=2", &["true or false"]),
    ("rule.kind=compressed-c-sgd topology.file=star:4", "rule.double=2", &["true or false"]),
    ("rule.kind=ef-sgd", "rule.collective=ring", &["ef-sgd runs with server, all-to-all"]),
    (
        "rule.kind=dgc compressor.kind=identity topology.file=star:4",
        "rule.k=0",
        &["from 1 to 4294967295"],
    ),
    (
        "rule.kind=dgc compressor.kind=identity rule.k=3",
        "rule.fraction=0.1",
        &["either k or fraction"],
    ),
    ("rule.kind=dgc compressor.kind=identity", "rule.fraction=nan", &["above 0 and at most 1"]),
    ("rule.kind=dgc compressor.kind=identity", "rule.momentum=1.0", &["from 0 to below 1"]),
    ("rule.kind=dgc compressor.kind=identity", "rule.nesterov=1", &["true or false"]),
    ("rule.kind=dgc compressor.kind=identity", "rule.masking=1", &["true or false"]),
    ("rule.kind=dgc compressor.kind=identity", "rule.clip=-1.0", &["above 0"]),
    ("rule.kind=dgc compressor.kind=identity", "rule.warm_up=-1", &["a whole number from 0"]),
    (
        "rule.kind=g-top-k compressor.kind=identity",
        "rule.residual=all",
        &["`conserving` or `published`"],
    ),
    (
        "rule.kind=sketched-sgd compressor.kind=count-sketch",
        "rule.variant=fast",
        &["`theory` or `practical`"],
    ),
    (
        "rule.kind=sketched-sgd compressor.kind=count-sketch",
        "rule.candidates=4",
        &["only variant = \"practical\""],
    ),
    ("rule.kind=sketched-sgd", "compressor.kind=min-max", &["kind = \"count-sketch\""]),
    ("rule.kind=top-k-all-gather", "compressor.kind=min-max", &["\"top-k\" or \"random-k\""]),
    ("rule.kind=diloco compressor.kind=identity", "rule.outer_step=-1", &["above 0"]),
    ("rule.kind=diloco compressor.kind=identity", "rule.outer_momentum=1.0", &["from 0, below 1"]),
    ("rule.kind=deep-squeeze", "rule.delay=1001", &["from 0 to 1000"]),
    ("rule.kind=delayed compressor.kind=identity", "rule.delay=-1", &["from 0 to 1000"]),
    ("rule.kind=delayed compressor.kind=identity", "rule.period=0", &["from 1 to 1000"]),
    ("rule.kind=delayed compressor.kind=identity", "rule.compensate=1", &["true or false"]),
    (
        "rule.kind=stale-synchronous compressor.kind=identity topology.file=star:4",
        "rule.staleness=-1",
        &["a whole number from 0 to 1000"],
    ),
    (
        "rule.kind=stale-synchronous compressor.kind=identity topology.file=star:4",
        "rule.staleness=x",
        &["a whole number"],
    ),
    ("rule.kind=moniqua compressor.kind=identity", "rule.bits=1", &["a whole number from 2 to 8"]),
    ("rule.kind=moniqua compressor.kind=identity", "rule.bits=9", &["a whole number from 2 to 8"]),
    ("rule.kind=moniqua compressor.kind=identity", "rule.theta=x", &["expected a number"]),
    ("rule.kind=moniqua compressor.kind=identity", "rule.theta=0", &["a finite number above 0"]),
    (
        "rule.kind=power-gossip compressor.kind=identity",
        "rule.rank=0",
        &["a whole number from 1 to 65535"],
    ),
    ("rule.kind=power-gossip compressor.kind=identity", "rule.rank=x", &["a whole number"]),
    ("rule.kind=d-psgd", "compressor.kind=min-max", &["d-psgd takes no compressor", "identity"]),
    ("", "compressor.kind=topk", &["did you mean `top-k`?"]),
    ("", "compressor.kind=3", &["expected one of identity"]),
    ("", "compressor.bits=0", &["from 1 to 8"]),
    ("", "compressor.bits=9", &["from 1 to 8"]),
    ("", "compressor.bits=4.5", &["a whole number"]),
    ("", "compressor.bits=nan", &["a whole number"]),
    ("", "compressor.bucket=-1", &["from 0 to 4294967295"]),
    ("", "compressor.bucket=4294967296", &["from 0 to 4294967295"]),
    ("", "compressor.rounding=up", &["`stochastic` or `nearest`"]),
    ("compressor.kind=qsgd", "compressor.levels=0", &["from 1 to 127"]),
    ("compressor.kind=qsgd", "compressor.levels=128", &["from 1 to 127"]),
    ("compressor.kind=qsgd", "compressor.scaled=1", &["true or false"]),
    ("compressor.kind=top-k", "compressor.k=0", &["from 1 to"]),
    ("compressor.kind=random-k", "compressor.k=-1", &["from 1 to"]),
    ("compressor.kind=top-k", "compressor.fraction=0", &["above 0 and at most 1"]),
    ("compressor.kind=random-k", "compressor.fraction=nan", &["above 0 and at most 1"]),
    (
        "compressor.kind=ternary",
        "compressor.clamp=0.5",
        &["expected 0 (none) or a number from 1 to 1000"],
    ),
    (
        "compressor.kind=ternary",
        "compressor.clamp=nan",
        &["expected 0 (none) or a number from 1 to 1000"],
    ),
    ("compressor.kind=one-bit", "compressor.bucket=-1", &["from 0 to 4294967295"]),
    ("compressor.kind=truncate", "compressor.bits=16", &["from 0 to 15"]),
    ("compressor.kind=low-rank", "compressor.rank=0", &["from 1 to 128"]),
    ("compressor.kind=count-sketch", "compressor.rows=16", &["from 1 to 15"]),
    ("compressor.kind=count-sketch", "compressor.columns=0", &["from 1 to 67108864"]),
    ("compressor.kind=identity", "compressor.bits=4", &["no constants"]),
    (
        "",
        "network.preset=6g",
        &["expected one of ideal, data-center, ethernet, 4g, 5g, shanghai-boston"],
    ),
    ("", "network.latency_ms=-1", &["from 0 to 10000000"]),
    ("", "network.bandwidth_mbps=0", &["from 0.001 to 10000000"]),
    ("", "network.bandwidth_mbps=nan", &["from 0.001 to 10000000"]),
    ("", "network.jitter_ms=inf", &["from 0 to 10000000"]),
    ("", "network.loss=1", &["from 0 to 0.9"]),
    ("", "network.variation=-1", &["from 0 to 3"]),
    ("", "network.variation_s=0", &["from 0.001 to 1000000"]),
    ("", "network.uplink=both", &["`link` or `node`"]),
    ("", "network.compute=slow", &["`none`, `fixed`, `measured`, `random`"]),
    ("network.compute=fixed", "network.compute_ms=-3", &["from 0 to 1000000000"]),
    ("", "network.compute_ms=3", &["belongs to compute = \"fixed\" or \"random\""]),
    (
        "network.compute=fixed network.compute_ms=1",
        "network.compute_spread=0.1",
        &["belongs to compute = \"random\""],
    ),
    ("", "network.stragglers=0.1", &["belongs to compute = \"fixed\", \"measured\" or \"random\""]),
    (
        "network.compute=fixed network.compute_ms=1",
        "network.straggler_factor=0",
        &["from 0.01 to 1000000"],
    ),
    ("", "optimizer.step=-1", &["from 0"]),
    ("", "optimizer.step=nan", &["from 0"]),
    ("", "optimizer.step=inf", &["from 0"]),
    ("", "optimizer.step=1e39", &["from 0"]),
    ("", "optimizer.step=fast", &["expected a number"]),
    ("", "optimizer.schedule=linear", &["`constant`, `cosine`, `step`"]),
    ("", "optimizer.decay_at=[0.5]", &["schedule = \"step\""]),
    ("optimizer.schedule=step", "optimizer.decay_at=[0.5,0.2]", &["ascending"]),
    ("optimizer.schedule=step", "optimizer.decay_at=[nan]", &["from 0 to 1"]),
    ("optimizer.schedule=step", "optimizer.decay_factor=0", &["above 0, up to 1"]),
    ("optimizer.schedule=step", "optimizer.decay_factor=nan", &["above 0, up to 1"]),
    ("", "optimizer.final_step=9", &["from 0 to the step"]),
    ("", "optimizer.final_step=nan", &["from 0 to the step"]),
    ("", "optimizer.warmup=-1", &["a whole number"]),
    ("", "optimizer.warmup=9", &["at most the run's 2 rounds"]),
    ("", "optimizer.momentum=1", &["from 0 to below 1"]),
    ("", "optimizer.momentum=nan", &["from 0 to below 1"]),
    ("", "optimizer.weight_decay=-1", &["from 0"]),
    ("", "optimizer.weight_decay=inf", &["from 0"]),
    ("", "optimizer.batch=0", &["from 1 to 4294967295, or \"full\""]),
    ("", "optimizer.batch=all", &["from 1 to 4294967295, or \"full\""]),
    ("", "optimizer.batch=1.5", &["from 1 to 4294967295, or \"full\""]),
    ("", "optimizer.local_steps=0", &["from 1 to 1000000"]),
    ("", "optimizer.local_steps=1000001", &["from 1 to 1000000"]),
];

/// The error line of `simulate` with these settings, which it must refuse.
fn error_line(settings: &[&str]) -> String {
    let sets = settings.iter().flat_map(|set| ["--set", set]);
    refused(gradvine().args(["simulate", "--rounds", "2"]).args(sets).args(["--out", "run"]))
}

/// As [`error_line`], without a number of rounds, because that is the wrong one.
fn error_line_of(before: &str, set: &str) -> String {
    if set.starts_with("run.rounds") {
        refused(gradvine().args(["simulate", "--set", set]))
    } else {
        error_line(
            &before.split(' ').filter(|set| !set.is_empty()).chain([set]).collect::<Vec<_>>(),
        )
    }
}

#[test]
fn every_key_refuses_invalid_values() {
    for &(before, set, words) in CASES {
        let line = error_line_of(before, set);
        let key = set.split('=').next().unwrap();
        assert!(line.starts_with(&format!("error: --set: {key}")), "{set}: {line}");
        for words in words {
            assert!(line.contains(words), "{set} should say {words}: {line}");
        }
    }
    for (rule, constant) in
        [("choco", "gamma"), ("choco-edge", "gamma"), ("beer", "gamma"), ("deep-squeeze", "eta")]
    {
        for value in NOT_POSITIVE {
            let line =
                error_line(&[&format!("rule.kind={rule}"), &format!("rule.{constant}={value}")]);
            assert!(line.starts_with(&format!("error: --set: rule.{constant} = ")), "{line}");
            assert!(line.contains("expected a finite number above 0"), "{line}");
        }
    }
}

/// A new key needs a refusal above; sections list their keys in the error of an unknown one,
/// registries in their JSON.
#[test]
fn no_key_is_forgotten() {
    let tried: BTreeSet<&str> =
        CASES.iter().map(|(_, set, _)| set.split('=').next().unwrap()).collect();
    let mut keys = Vec::new();
    for section in ["run", "topology", "data", "model", "optimizer", "network"] {
        let line = error_line(&[&format!("{section}.nonsense=1")]);
        assert!(
            line.starts_with(&format!("error: --set: {section}.nonsense = 1: unknown field")),
            "{line}"
        );
        let known = line.split("expected one of ").nth(1).unwrap();
        keys.extend(known.split('`').skip(1).step_by(2).map(|key| format!("{section}.{key}")));
    }
    for (registry, section) in [("rules", "rule"), ("compressors", "compressor")] {
        let listed = gradvine().args([registry, "--json"]).assert().success();
        let entries: Vec<Value> = serde_json::from_slice(&listed.get_output().stdout).unwrap();
        for constant in entries.iter().flat_map(|entry| entry["constants"].as_array().unwrap()) {
            keys.push(format!("{section}.{}", constant["name"].as_str().unwrap()));
        }
    }
    assert!(keys.len() > 45, "{keys:?}");
    let forgotten: Vec<&String> = keys.iter().filter(|key| !tried.contains(key.as_str())).collect();
    assert!(forgotten.is_empty(), "no refusal is tried of {forgotten:?}");
}

#[test]
fn malformed_settings_are_explained() {
    for (set, words) in [
        ("run.rounds", "expected key=value"),
        ("rounds=3", "expected section.key=value"),
        ("=3", "the key is empty"),
        ("run..rounds=3", "a part of the key is empty"),
        ("run.rounds.x=3", "`rounds` is a value, not a section"),
    ] {
        let line = error_line(&[set]);
        assert!(line.starts_with("error: --set = ") && line.contains(words), "{line}");
    }
    assert!(
        error_line(&["speed.up=1"]).contains("there is no such section; there are run, topology")
    );
    // Arguments are called by their own names.
    let line = refused(gradvine().args(["simulate", "--topology", "ring:0"]));
    assert_eq!(line, "error: --topology = \"ring:0\": ring: expected 1 or more");
    for (argument, value) in
        [("--rounds", "0"), ("--rounds", "-1"), ("--seed", "x"), ("--seed", "18446744073709551616")]
    {
        let assert = gradvine().args(["simulate", argument, value]).assert().code(2);
        let error_line = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert!(
            error_line.contains(argument) && error_line.contains("expected a whole number from"),
            "{error_line}"
        );
    }
}

#[test]
fn wrong_files_name_themselves_and_the_line() {
    let folder = folder();
    let file = folder.path().join("e.toml");
    let error_line = |text: &[u8]| {
        fs::write(&file, text).unwrap();
        let line = refused(gradvine().arg("train").arg(&file));
        line.strip_prefix(&format!("error: {}: ", file.display()))
            .unwrap_or_else(|| panic!("{line}"))
            .to_string()
    };
    assert!(error_line(b"[run]\nrounds = = 3\n").starts_with("line 2: "));
    assert!(error_line(b"[run]\nrounds = 3\nrounds = 4\n").starts_with("line 3: duplicate key"));
    assert!(error_line(b"[run\n").starts_with("line 1: "));
    assert!(error_line(b"\xFF\xFE").contains("cannot be read"));
    assert!(error_line(b"").starts_with("topology: name a file (or a spec"));
    let whole = "[topology]\nfile = \"ring:3\"\n[rule]\nkind = \"choco\"\n";
    assert!(
        error_line(format!("{whole}[optimizer]\nstep = -0.5\n").as_bytes())
            .starts_with("optimizer.step = -0.5: ")
    );
    assert!(
        error_line(format!("{whole}gama = 1\n").as_bytes())
            .starts_with("rule.gama = 1: unknown field `gama`")
    );
    assert!(
        error_line(format!("{whole}[data]\nsource = \"no.csv\"\n").as_bytes())
            .starts_with("data.source = \"no.csv\": no such")
    );
    assert!(error_line(b"[topology]\nfile = \"ring:3\"\n").starts_with("rule.kind: which rule?"));
    assert!(
        error_line(b"[topology]\nfile = \"ring:3\"\nfamily = \"ring\"\n")
            .contains("a file or a family, not both")
    );
    let missing = refused(gradvine().args(["train", "no.toml"]));
    assert!(missing.starts_with("error: no.toml: experiment: cannot be read: "), "{missing}");
}

#[test]
fn impossible_combinations_are_refused_with_the_reason() {
    let line = error_line(&["compressor.kind=qsgd", "compressor.levels=1"]);
    assert!(
        line.contains("choco feeds the compression error back")
            && line.contains("run.allow_unstable = true"),
        "{line}"
    );
    let line = error_line(&["rule.kind=d2", "compressor.kind=identity", "topology.file=ring:8"]);
    assert!(
        line.contains("-0.333333333") && line.contains("weights = \"lazy-metropolis\""),
        "{line}"
    );
    let line = error_line(&["model.kind=least-squares"]);
    assert!(
        line.contains("data.split = by-label: needs classes")
            && line.contains("iid and contiguous"),
        "{line}"
    );
    let line = refused(gradvine().args([
        "simulate",
        "--topology",
        "ring:8",
        "--set",
        "topology.weights=max-degree",
    ]));
    assert!(
        line.starts_with("error: --set: topology.weights = \"max-degree\": rho = 1: "),
        "{line}"
    );
    let line = refused(gradvine().args(["train", "--topology", "ring:1500"]));
    assert_eq!(
        line,
        "error: digits: data: 1438 rows for 1500 nodes: every node needs at least one"
    );
}

#[test]
fn a_run_directory_in_use_or_out_of_reach_is_refused() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = |command: &[&str], out: &str| {
        refused(gradvine().args(command).args(["--rounds", "1", "--out", out]))
    };
    gradvine().args(["simulate", "--rounds", "1", "-q", "--out", &path("run")]).assert().success();
    fs::write(path("file"), "").unwrap();
    for command in [&["simulate"][..], &["train"], &["train", "--processes"]] {
        let line = run(command, &path("run"));
        assert_eq!(
            line,
            format!(
                "error: --out = {}: this folder holds a run already; name another, or remove it",
                path("run")
            )
        );
        for out in [path("file"), path("file/below"), "/proc/run".into()] {
            let line = run(command, &out);
            assert!(
                line.starts_with(&format!("error: --out = {out}: cannot be written: ")),
                "{line}"
            );
        }
    }
    let line = refused(gradvine().args(["simulate", "--set", &format!("run.out={}", path("run"))]));
    assert!(
        line.starts_with(&format!("error: --set: run.out = {}: this folder", path("run"))),
        "{line}"
    );
}
