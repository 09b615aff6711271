//! Standardisation of a whole run: times in seconds, sites in other units, targets of any size, and
//! losses that explode.

use std::{fs, path::Path};

use gradvine::{
    config::ConfigError,
    data::{self, Target},
    drive::{NoopObserver, RunError},
    experiment::Experiment,
    gossip::Failure,
    learn::Batch,
    run::Whole,
    sim,
};

fn whole(text: &str) -> Result<Whole, ConfigError> {
    Whole::new(Experiment::parse(text, &[]).unwrap())
}

/// Runs an experiment, and returns the mean model.
fn run(whole: &Whole) -> Result<Vec<f32>, RunError> {
    sim::run(whole.specs(), &mut NoopObserver).map(|ended| ended[0].mean.clone())
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_time_in_seconds_is_scaled_by_its_deviation() {
    let folder = tempfile::tempdir().unwrap();
    let row = |i: u32| {
        let z = f64::from(7919 * i % 1000) / 500.0 - 1.0;
        format!("{},{z},{}\n", 1_700_000_000 + 13 * i, u8::from(z > 0.0))
    };
    let text = "t,z,y\n".to_string() + &(0..400).map(row).collect::<String>();
    let source = write(folder.path(), "rows.csv", &text);
    let whole = whole(&format!(
        "run.rounds = 300\ntopology.file = 'complete:2'\nmodel.kind = 'softmax'\nrule.kind = \
         'd-psgd'\ndata = {{ source = '{source}', target = 'y', test_share = 0.2, standardize = \
         true, split = 'iid' }}"
    ))
    .unwrap();
    let mean = run(&whole).unwrap();
    let agreed = whole.agreed.get().unwrap();
    let scale = agreed.preprocessing.scale.as_ref().unwrap();
    // The deviation of all 400 rows is 1501.1; 320 of them are for training.
    assert!((scale.deviation[0] / 1501.1 - 1.0).abs() < 0.1, "{scale:?}");
    let accuracy = whole.score(&mean).unwrap().accuracy().unwrap();
    assert!(accuracy > 0.95, "{accuracy}");
    // Numbers near 1.7e9 are 128 apart as `f32`.
    let [warning] = &agreed.warnings[..] else { panic!("{:?}", agreed.warnings) };
    assert!(warning.contains("column t") && warning.contains("steps of 128"), "{warning}");
}

/// The embedded digits as a file for each of eight nodes; those of the last are times `factor`.
fn sites(folder: &Path, factor: f32) -> String {
    let digits = data::load("digits", &data::Options::default()).unwrap();
    let names: Vec<String> = (0..8)
        .map(|node| {
            let rows: Vec<usize> = (0..digits.rows()).filter(|row| row % 8 == node).collect();
            let mut part = digits.select(&rows);
            if node == 7 {
                part.features.mapv_inplace(|value| value * factor);
            }
            let path = folder.join(format!("{node}.csv"));
            data::write_csv(&part, &path).unwrap();
            format!("'{}'", path.display())
        })
        .collect();
    names.join(",")
}

#[test]
fn a_site_in_another_unit_is_named_and_does_not_move_robust_constants() {
    let folder = tempfile::tempdir().unwrap();
    let with = |rule: &str, factor: f32| {
        let sources = sites(folder.path(), factor);
        let text = format!(
            "run.rounds = 100\ntopology.file = 'complete:8'\nmodel.kind = 'softmax'\nrule.kind = \
             '{rule}'\n[data]\nsources = [{sources}]\nstandardize = true\ntest_share = 0.2"
        );
        let whole = whole(&text).unwrap();
        let ended = sim::run(whole.specs(), &mut NoopObserver).unwrap();
        // Of the honest nodes, on the test rows of node 0.
        let test = whole.tests.of(gradvine::units::NodeId(0)).unwrap().ready().unwrap();
        let accuracy = (0..7)
            .map(|node| {
                let score = whole.model.evaluate(&ended[node].model, &test).unwrap();
                score.accuracy().unwrap()
            })
            .fold(1.0, f64::min);
        (accuracy, whole.agreed.get().unwrap())
    };
    for rule in ["clipped-gossip", "trimmed-mean"] {
        let (accuracy, agreed) = with(rule, 1000.0);
        assert!(accuracy > 0.85, "{rule}: {accuracy}");
        let named = |warning: &String| warning.contains("node 7: the values of");
        assert!(agreed.warnings.iter().any(named), "{rule}: {:?}", agreed.warnings);
        let scale = agreed.preprocessing.scale.as_ref().unwrap();
        assert!(scale.deviation.iter().all(|deviation| *deviation < 10.0), "{rule}");
        let (honest, agreed) = with(rule, 1.0);
        assert!(agreed.warnings.is_empty(), "{:?}", agreed.warnings);
        assert!(honest - accuracy < 0.05, "{rule}: {accuracy} instead of {honest}");
    }
    // Other rules take the sums of all rows, and say the same.
    let (_, agreed) = with("d-psgd", 1000.0);
    assert!(!agreed.warnings.is_empty());
    let scale = agreed.preprocessing.scale.as_ref().unwrap();
    assert!(scale.deviation.iter().any(|one| *one > 1000.0));
}

#[test]
fn classes_of_single_nodes_are_no_other_unit() {
    for seed in 1..=12 {
        for topology in ["complete:4", "ring:8"] {
            let whole = whole(&format!(
                "run.rounds = 1\nrun.seed = {seed}\ntopology.file = '{topology}'\nmodel.kind = \
                 'softmax'\nrule.kind = 'd-psgd'\n[data]\nsource = 'digits'\nsplit = \
                 'by-label'\nstandardize = true"
            ))
            .unwrap();
            sim::run(whole.specs(), &mut NoopObserver).unwrap();
            let agreed = whole.agreed.get().unwrap();
            assert!(agreed.warnings.is_empty(), "{topology}, {seed}: {:?}", agreed.warnings);
        }
    }
}

/// 200 rows whose two targets are of the size `unit`, and far from 0.
fn prices(folder: &Path, unit: f64) -> String {
    let row = |i: u32| {
        let (a, b) = (f64::from(i * 7 % 23) / 23.0, f64::from(i * 5 % 17) / 17.0);
        let (one, two) = (a * a + b, (a - b).abs());
        format!("{a},{b},{},{}\n", unit * (10.0 + one), unit * (two - 3.0))
    };
    let text = "a,b,one,two\n".to_string() + &(0..200).map(row).collect::<String>();
    write(folder, "prices.csv", &text)
}

#[test]
fn a_perceptron_learns_numbers_of_any_size_in_their_units() {
    let folder = tempfile::tempdir().unwrap();
    let trained = |unit: f64| {
        let whole = whole(&format!(
            "run.rounds = 300\ntopology.file = 'ring:4'\nrule.kind = 'd-psgd'\noptimizer.step = \
             0.1\nmodel = {{ kind = 'mlp', task = 'regression', hidden = [16] }}\ndata = {{ source \
             = '{}', target = 'one,two', split = 'iid', test_share = 0.2 }}",
            prices(folder.path(), unit)
        ))
        .unwrap();
        let mean = run(&whole).unwrap();
        let (loss, score) = (whole.train_loss(&mean).unwrap(), whole.score(&mean).unwrap());
        let targets = whole.agreed.get().unwrap().preprocessing.targets.clone();
        // Half the variance of both targets is the loss of their means. With 16 hidden units the
        // scale is that of the data.
        let scale = targets.clone().unwrap();
        let means = 0.5 * scale.deviation.iter().map(|one| one * one).sum::<f64>();
        assert!(loss < 0.2 * means && score.loss < 0.2 * means, "{unit}: {loss}, {means}");
        let model = whole.model.clone().with_targets(targets);
        let rows = whole.shards[0].ready().unwrap();
        let predicted = model.predict(&mean, rows.features.view()).unwrap();
        let Target::Values(values) = &rows.target else { panic!("numbers") };
        // The loss is that of the predictions, in the units of the data.
        let squares = (&predicted - values).mapv(|one| f64::from(one).powi(2)).sum();
        let own = model.evaluate(&mean, &rows).unwrap().loss;
        let expected = 0.5 * squares / rows.rows() as f64;
        assert!((own / expected - 1.0).abs() < 1e-3, "{unit}: {own} instead of {expected}");
        // The loss of the gradient's batch is in these units, too.
        let mut gradient = vec![0.0; mean.len()];
        let mut objective = model.objective(rows.clone()).unwrap();
        let batch = objective.gradient(&mean, Batch::All, &mut gradient);
        assert!((batch / own - 1.0).abs() < 1e-9);
        (loss / (unit * unit), mean)
    };
    let (one, model) = trained(1.0);
    for unit in [1e-6, 1e5] {
        let (loss, other) = trained(unit);
        assert!((loss / one - 1.0).abs() < 0.01, "{unit}: {loss} instead of {one}");
        // The same scaled numbers, up to their rounding, give the same parameters.
        let far = model.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 0.01, "{unit}: {far}");
    }
}

#[test]
fn a_wide_perceptron_learns_numbers_at_steps_that_suit_classes() {
    let folder = tempfile::tempdir().unwrap();
    for step in [0.3, 0.1] {
        let whole = whole(&format!(
            "run.rounds = 300\ntopology.file = 'complete:2'\nrule.kind = 'd-psgd'\n\
             optimizer.step = {step}\nmodel = {{ kind = 'mlp', task = 'regression' }}\ndata = {{ \
             source = '{}', target = 'one,two', split = 'iid', standardize = true }}",
            prices(folder.path(), 100.0)
        ))
        .unwrap();
        let loss = whole_loss(&whole);
        // Of always predicting the means: half the variance of both.
        let Target::Values(values) = &whole.shards[0].raw().target else { panic!("numbers") };
        let means = 0.5 * (0..2).map(|k| f64::from(values.column(k).var(0.0))).sum::<f64>();
        assert!(loss < 0.5 * means, "step {step}: {loss}, {means}");
    }
}

fn whole_loss(whole: &Whole) -> f64 {
    whole.train_loss(&run(whole).unwrap()).unwrap()
}

#[test]
fn a_loss_that_explodes_ends_the_run_at_once() {
    let run = |settings: &str| {
        let text = format!(
            "run.rounds = 50\ntopology.file = 'complete:2'\nrule.kind = 'd-psgd'\ndata.source = \
             'breast-cancer'\n{settings}"
        );
        run(&whole(&text).unwrap())
    };
    for settings in [
        "optimizer.step = 1e30\nmodel.kind = 'softmax'",
        "optimizer.step = 1e18\nmodel.kind = 'mlp'",
    ] {
        match run(settings) {
            Err(RunError::Failed { failure: Failure::Loss { round, loss }, .. }) => {
                assert!(
                    round.0 < 3 && (loss.is_nan() || loss >= 1e6),
                    "{settings}: round {round}, loss {loss}"
                );
            }
            Err(other) => panic!("{settings}: {other}"),
            Ok(_) => panic!("{settings}: the loss did not matter"),
        }
    }
    // Features of thousands make losses of thousands, which may fall again.
    run("optimizer.step = 0.1\nmodel.kind = 'softmax'").unwrap();
}
