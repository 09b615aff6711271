//! Settings work as documented, or are refused with the nearest accepted ones.

use std::path::Path;

use gradvine::{
    compress,
    drive::{NoopObserver, RunError},
    experiment::{Experiment, SECTIONS},
    gossip::Failure,
    mixing::Topology,
    rng::{Purpose, Stream},
    run::{NodeFile, Summary, Whole},
    sim,
};
use gradvine_study::Study;

fn with(sets: &[&str]) -> Result<Whole, String> {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    Experiment::default_with(&sets).and_then(Whole::new).map_err(|error| error.to_string())
}

fn refused(sets: &[&str]) -> String {
    let Err(error) = with(sets) else { panic!("{sets:?} was accepted") };
    error
}

// Unknown keys
// ------------------------------------------------------------------------------------------

#[test]
fn a_kind_is_refused_in_every_section_that_has_none() {
    for section in SECTIONS {
        let error = refused(&[&format!("{section}.kind=adam")]);
        assert!(error.starts_with(&format!("--set: {section}.kind = \"adam\": ")), "{error}");
        let chooses = ["model", "rule", "compressor", "optimizer"].contains(&section);
        assert_eq!(error.contains("unknown field `kind`"), !chooses, "{error}");
        let Err(error) =
            Experiment::parse(&format!("[{section}]\nkind = 'adam'\n"), &[]).and_then(Whole::new)
        else {
            panic!("[{section}] kind = 'adam' was accepted")
        };
        // A file of one section lacks others; errors in [rule] and [compressor] are found with all
        // of them there.
        assert!(chooses || error.to_string().contains("unknown field `kind`"), "{error}");
    }
}

#[test]
fn an_unknown_key_names_its_value_and_the_nearest_that_there_is() {
    for (set, nearest) in [
        ("run.round=7", "rounds"),
        ("run.evalute_every=7", "evaluate_every"),
        ("topology.schedul=7", "schedule"),
        ("data.splitt=7", "split"),
        ("model.hiden=7", "hidden"),
        ("rule.gama=7", "gamma"),
        ("rule.kinds=7", "kind"),
        ("compressor.bit=7", "bits"),
        ("compressor.kin=7", "kind"),
        ("optimizer.stepp=7", "step"),
        ("optimizer.local_step=7", "local_steps"),
        ("network.lattency_ms=7", "latency_ms"),
        ("data.scale.means=7", "mean"),
    ] {
        let error = refused(&[set]);
        let key = set.split('=').next().unwrap();
        assert!(error.ends_with(&format!("; did you mean `{nearest}`?")), "{error}");
        assert!(
            key == "data.scale.means" || error.starts_with(&format!("--set: {key} = 7: ")),
            "{error}"
        );
    }
    for (set, nearest) in [
        ("rule.kind=chocco", "choco"),
        ("compressor.kind=topk", "top-k"),
        ("model.kind=mpl", "mlp"),
    ] {
        assert!(
            refused(&[set]).ends_with(&format!("; did you mean `{nearest}`?")),
            "{}",
            refused(&[set])
        );
    }
    assert!(refused(&["optimiser.step=1"]).ends_with("; did you mean `optimizer`?"));
    assert!(!refused(&["run.xyzzy=1"]).contains("did you mean"));
}

fn file(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn node_files_refuse_unknown_keys() {
    let folder = tempfile::tempdir().unwrap();
    let node = "key='k'\nlisten=[]\ntopology='t'\nexperiment='e'\ndata='digits'\nout='o'\n";
    NodeFile::load(&file(folder.path(), "good.toml", node)).unwrap();
    for (more, words) in [
        ("kind = 'x'\n", "node.kind = \"x\": unknown field `kind`"),
        ("tests = 'x'\n", "node.tests = \"x\": unknown field `tests`"),
    ] {
        let error = NodeFile::load(&file(folder.path(), "node.toml", &format!("{node}{more}")))
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(error.ends_with("did you mean `test`?"), more.contains("tests"), "{error}");
    }
}

#[test]
fn topology_files_refuse_unknown_keys() {
    let folder = tempfile::tempdir().unwrap();
    let topology = "family = 'custom'\n[[node]]\nname = 'a'\n[[node]]\nname = \
                    'b'\n[[link]]\nbetween = ['a', 'b']\n";
    for (text, words) in [
        (format!("kind = 'x'\n{topology}"), "line 1, kind = 'x': unknown field `kind`"),
        (topology.replacen("name", "nam", 1), "line 3, nam = 'a': unknown field `nam`"),
        (format!("{topology}latncy_ms = 3\n"), "line 8, latncy_ms = 3: unknown field `latncy_ms`"),
    ] {
        let path = file(folder.path(), "topology.toml", &text);
        let error = Topology::parse(&path.display().to_string(), 1).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        // `kind` is near none of the keys.
        assert_eq!(error.contains("; did you mean `"), !text.starts_with("kind"), "{error}");
    }
}

#[test]
fn study_files_refuse_unknown_keys() {
    let folder = tempfile::tempdir().unwrap();
    let study = "title='t'\npaper='p'\nclaim='c'\nsetting='s'\nseeds=5\ncolumns=['train_loss']\n";
    let row = "[[row]]\nname='a'\n";
    let load = |text: String| {
        Study::load(&file(folder.path(), "study.toml", &text))
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    load(format!("{study}{row}")).unwrap();
    for (text, words) in [
        (format!("kind = 'x'\n{study}{row}"), "line 1, kind = 'x': unknown field `kind`"),
        (format!("{study}{row}sets = []\n"), "line 9, sets = []: unknown field `sets`"),
        (
            format!("{study}{row}set = ['optimizer.kinds=adam']\n"),
            "row \"a\": optimizer.kinds = \"adam\": unknown field `kinds`",
        ),
        (
            format!("{study}{row}set = ['rule.gama=1']\n"),
            "row \"a\": rule.gama = 1: there is no such constant",
        ),
        (
            format!("{study}grid = ['rule.gama=1,2']\n{row}"),
            "no rule or compressor has a constant `gama`; did you mean `gamma`?",
        ),
        (
            format!("{study}{row}[row.over]\nx = [1]\n"),
            "over.x: no name, setting or grid of this row has {x} in it",
        ),
        (
            format!("{study}[experiment.optimizer]\nkinds = 'adam'\n{row}"),
            "optimizer.kinds = \"adam\": unknown field",
        ),
        (
            format!("{study}{row}[[picture]]\ntitle='p'\nx='rounds'\ny='train_loss'\nkind=1\n"),
            "kind = 1: unknown field",
        ),
        (
            format!("{study}{row}[[expect]]\nrow='a'\nwords='w'\nstatus='ok'\nkind=1\n"),
            "kind = 1: unknown field",
        ),
        (
            format!("{study}rounds_to = {{ metric = 'train_loss', value = 1, kind = 2 }}\n{row}"),
            "unknown field `kind`",
        ),
    ] {
        let error = load(text).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

// Momentum, steps, defaults
// ------------------------------------------------------------------------------------------

#[test]
fn two_momentums_are_refused_and_one_is_not() {
    let dgc = ["rule.kind=dgc", "compressor.kind=identity", "topology.file=star:8"];
    let sketched = [
        "rule.kind=sketched-sgd",
        "rule.variant=practical",
        "compressor.kind=count-sketch",
        "compressor.columns=2000",
    ];
    for rule in [&dgc[..], &sketched] {
        let twice = [rule, &["optimizer.momentum=0.9"]].concat();
        let error = refused(&twice);
        assert!(error.starts_with("--set: optimizer.momentum = 0.9: "), "{error}");
        assert!(
            error.contains("counts 100 times")
                && error.contains("optimizer.momentum = 0, or rule.momentum = 0"),
            "{error}"
        );
        with(&[&twice[..], &["rule.momentum=0.0"]].concat()).unwrap();
        let allowed = with(&[&twice[..], &["run.allow_unstable=true"]].concat()).unwrap();
        assert!(
            allowed.design.rule.warnings.iter().any(|warning| warning.contains("counts 100 times"))
        );
        with(rule).unwrap();
    }
    with(&["rule.kind=sketched-sgd", "compressor.kind=count-sketch", "optimizer.momentum=0.9"])
        .unwrap();
    with(&["rule.kind=diloco", "compressor.kind=identity", "optimizer.momentum=0.9"]).unwrap();
}

#[test]
fn adamw_is_doubted_where_updates_count_as_gradients() {
    let adamw = |sets: &[&str]| {
        let all = [&["optimizer.kind=adamw", "optimizer.step=0.001"], sets].concat();
        with(&all).unwrap().design.rule.warnings.clone()
    };
    let identity = "compressor.kind=identity";
    for rule in ["d2", "gradient-tracking", "delayed", "qg-dsgdm"] {
        let warnings = adamw(&[&format!("rule.kind={rule}"), identity, "topology.file=complete:8"]);
        assert!(
            warnings.iter().any(|warning| warning.contains("takes updates for gradients")),
            "{rule}: {warnings:?}"
        );
    }
    assert!(adamw(&["rule.kind=beer"]).iter().any(|warning| warning.contains("gradients")));
    for rule in ["d-psgd", "noloco"] {
        assert_eq!(adamw(&[&format!("rule.kind={rule}"), identity]), [""; 0]);
    }
    let large = adamw(&["rule.kind=d-psgd", identity, "optimizer.step=0.1"]);
    assert!(large[0].starts_with("optimizer.step = 0.1: adamw moves"), "{large:?}");
    assert!(refused(&["optimizer.kind=adamw", "optimizer.momentum=0.5"]).contains("beta1"));
    assert!(refused(&["optimizer.kind=adam"]).contains("optimizer.kind"));
}

#[test]
fn sign_sgd_suggests_a_step() {
    let sets = ["rule.kind=sign-sgd", "compressor.kind=identity", "topology.file=star:8"];
    let warns = |step: &str| {
        let step = format!("optimizer.step={step}");
        let whole = with(&[sets[0], sets[1], sets[2], &step]).unwrap();
        whole.design.rule.warnings.iter().any(|warning| warning.contains("0.002 to 0.005"))
    };
    assert!(warns("0.2") && warns("0.02") && !warns("0.01") && !warns("0.003"));
}

/// Mean accuracy of the nodes' own models, that of the mean, and the digest.
fn scores(sets: &[&str]) -> (f64, f64) {
    let whole = with(sets).unwrap();
    let ended = sim::run(whole.specs(), &mut NoopObserver).unwrap();
    let outcome = Summary::new(&whole.design, &ended[0].records).unwrap().outcome;
    (outcome.test_accuracy_mean.unwrap(), outcome.test_accuracy_of_mean.unwrap())
}

#[test]
#[ignore = "slow"]
fn moniqua_with_two_bits_learns_at_its_default() {
    let two_bits =
        ["rule.kind=moniqua", "rule.bits=2", "compressor.kind=identity", "topology.file=ring:8"];
    let (own, mean) = scores(&two_bits);
    let (own_at, mean_at) = scores(&[&two_bits[..], &["rule.gamma=0.1"]].concat());
    println!(
        "default: nodes {own:.4}, mean {mean:.4}; gamma 0.1: nodes {own_at:.4}, mean {mean_at:.4}"
    );
    assert!(
        own > own_at - 0.012 && mean > mean_at - 0.012,
        "{own} {mean} against {own_at} {mean_at}"
    );
    assert!(own > 0.94);
    let gamma = |more: &[&str]| {
        let whole =
            with(&[&["rule.kind=moniqua", "compressor.kind=identity"][..], more].concat()).unwrap();
        whole.design.experiment.rule["gamma"].as_float().unwrap()
    };
    // (2^bits - 3) / (10 l), l = 2/3 on a ring, 7/8 on the complete graph of 8.
    assert_eq!(gamma(&["rule.bits=2"]), 0.15);
    assert_eq!(gamma(&["rule.bits=3"]), 0.75);
    assert_eq!(gamma(&["rule.bits=4"]), 1.0);
    assert!((gamma(&["rule.bits=2", "topology.file=complete:8"]) - 0.8 / 7.0).abs() < 1e-8);
}

#[test]
fn the_default_experiment_keeps_its_gamma() {
    let whole = with(&[]).unwrap();
    let gamma = whole.design.experiment.rule["gamma"].as_float().unwrap();
    assert!((gamma / whole.design.nominal_delta - 0.7).abs() < 1e-8, "{gamma}");
}

// Divergence
// ------------------------------------------------------------------------------------------

#[test]
fn models_that_only_grow_have_diverged() {
    // ecd with four bits: numbers stay finite for thousands of rounds.
    let whole = with(&["rule.kind=ecd", "topology.file=ring:8"]).unwrap();
    match sim::run(whole.specs(), &mut NoopObserver) {
        Err(RunError::Failed { failure: Failure::Diverged { round, value, .. }, .. }) => {
            assert!(value.is_finite() && round.0 < 2000, "round {round}: {value}");
        }
        Err(RunError::Failed { failure: Failure::Loss { round, loss }, .. }) => {
            assert!(loss.is_finite() && round.0 < 2000, "round {round}: {loss}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("consensus of 1e14 counted as an end"),
    }
}

// Compressors and the step
// ------------------------------------------------------------------------------------------

#[test]
fn all_compressors_but_three_scale_with_their_argument() {
    let mut normal = Stream::new(1, Purpose::Test).sequence();
    let v: Vec<f32> = (0..700).map(|_| normal.normal() as f32).collect();
    let noise = Stream::new(2, Purpose::Test);
    let mut others = Vec::new();
    for entry in &compress::COMPRESSORS {
        let compressor = (entry.build)(&toml::Table::new()).unwrap().compressor;
        let of = |v: &[f32]| {
            let (mut bytes, mut out) = (Vec::new(), vec![0.0; v.len()]);
            compressor.encode(v, noise, &mut bytes).unwrap();
            compressor.add_into(&bytes, noise, 1.0, &mut out);
            out
        };
        let size = v.iter().fold(0.0f32, |size, v| size.max(v.abs()));
        // The maximum distance between C(a v) / a and C(v), as a share of the size, and how many
        // numbers differ by more than f32 rounds.
        let apart = |a: f32| {
            let scaled: Vec<f32> = v.iter().map(|v| a * v).collect();
            let pairs = of(&scaled).into_iter().zip(of(&v));
            let apart: Vec<f32> =
                pairs.map(|(scaled, plain)| (scaled / a - plain).abs() / size).collect();
            (
                apart.iter().copied().fold(0.0, f32::max),
                apart.iter().filter(|part| **part > 1e-4).count(),
            )
        };
        let (_, many) = apart(0.3);
        // The stochastic ones may round one number in some hundreds the other way.
        if many > 7 {
            others.push(entry.name);
        }
        assert!(apart(0.25).0 < 1e-3, "{}: a power of two", entry.name);
    }
    assert_eq!(others, ["f16", "bf16", "truncate"]);
}

#[test]
fn a_task_that_is_written_and_one_that_is_left_out_agree() {
    let canonical = |sets: &[&str]| with(sets).unwrap().design.experiment.canonical();
    let (written, left_out) = (canonical(&["model.task=classification"]), canonical(&[]));
    assert_eq!(written, left_out);
    let other =
        ["model.task=regression", "data.source=synthetic", "model.kind=mlp", "data.split=iid"];
    assert!(canonical(&other).contains("model.task = \"regression\""));
}
