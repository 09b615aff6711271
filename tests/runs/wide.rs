//! Rows with so many features that their sums are longer than any other record.

use std::{fmt::Write as _, fs};

use gradvine::{
    drive::{Ended, NoopObserver},
    experiment::Experiment,
    gossip::tree::RECORD_LIMIT,
    run::Whole,
    sim,
};

const FEATURES: usize = 20_000;
const ROWS: usize = 9;

/// Nine rows whose feature k has the mean k mod 7 and no variance where k mod 5 is 0.
fn whole(folder: &std::path::Path) -> Whole {
    let mut text = String::new();
    for row in 0..ROWS {
        for k in 0..FEATURES {
            let away = if k % 5 == 0 { 0.0 } else { (row as f64 - 4.0) / 4.0 };
            let _ = write!(text, "{},", (k % 7) as f64 + away);
        }
        let _ = writeln!(text, "{}", row % 2);
    }
    let file = folder.join("wide.csv");
    fs::write(&file, text).unwrap();
    let text = format!(
        "run.rounds = 3\ntopology.file = 'path:3'\nrule.kind = 'd-psgd'\ncompressor.kind = \
         'identity'\n\
         data = {{ source = '{}', split = 'iid', test_share = 0.0, standardize = true }}\n\
         model.kind = 'softmax'\noptimizer = {{ step = 0.01, batch = 2 }}",
        file.display()
    );
    Whole::new(Experiment::parse(&text, &[]).unwrap()).unwrap()
}

fn checked(whole: &Whole, ended: &[Ended]) {
    let agreed = whole.agreed.get().expect("the run has started");
    let scale = agreed.preprocessing.scale.as_ref().expect("it standardises");
    assert!(16 * scale.mean.len() > RECORD_LIMIT, "the sums do not fit an ordinary record");
    for (k, (mean, deviation)) in scale.mean.iter().zip(&scale.deviation).enumerate() {
        assert!((mean - (k % 7) as f64).abs() < 1e-6, "{k}: {mean}");
        // (1/9) sum of (r - 4)^2 / 16 over r = 0 to 8 is 60 / 144.
        let expected = if k % 5 == 0 { 1.0 } else { (60f64 / 144.0).sqrt() };
        assert!((deviation - expected).abs() < 1e-6, "{k}: {deviation}");
    }
    assert!(ended.len() == 3 && ended.iter().all(|one| one.model.iter().any(|x| *x != 0.0)));
}

#[test]
fn the_sums_of_many_features_are_exchanged() {
    let folder = tempfile::tempdir().unwrap();
    let simulated = whole(folder.path());
    let simulated_time = sim::run(simulated.specs(), &mut NoopObserver).unwrap();
    checked(&simulated, &simulated_time);
    #[cfg(feature = "net")]
    {
        use gradvine::{experiment::Transport, net};
        let real = whole(folder.path());
        let really =
            net::together(real.specs(), &real.design, Transport::Tcp, &mut NoopObserver).unwrap();
        checked(&real, &really);
        for (a, b) in simulated_time.iter().zip(&really) {
            assert_eq!((&a.model, &a.mean), (&b.model, &b.mean));
        }
    }
}

#[test]
fn more_than_any_record_may_hold_is_refused() {
    use std::sync::Arc;

    use gradvine::{mixing::Topology, run::Design};
    let design = |features: usize| {
        let text = "rule.kind = 'd-psgd'\ntopology.file = 'ring:3'\ndata.standardize = true";
        let experiment = Experiment::parse(text, &[]).unwrap();
        Design::new(experiment, Arc::new(Topology::parse("ring:3", 0).unwrap()), features, 2)
            .map(|_| ())
    };
    let error = design(70_000_000).unwrap_err().to_string();
    assert!(error.starts_with(
        "data.standardize = true: the sums of 70000000 features make a record of 2240000020"
    ));
    assert!(error.contains("at most 1073741824"), "{error}");
}
