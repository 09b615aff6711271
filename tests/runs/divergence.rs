//! A run that diverges reports it, in any of its rounds: no record, summary or model of it is
//! silently wrong.

use std::fmt::Write as _;

use gradvine::{
    drive::{NoopObserver, RunError},
    experiment::Experiment,
    gossip::Failure,
    run::{Summary, Whole, record::Closing},
    sim,
};

#[test]
fn every_length_of_a_diverging_run_ends_with_a_readable_summary_or_with_its_divergence() {
    let (mut read, mut diverged, mut not_finite) = (0, 0, 0);
    for rounds in 1..=9 {
        let sets = [
            format!("run.rounds={rounds}"),
            "optimizer.step=1000".into(),
            "topology.file=ring:8".into(),
        ];
        let whole = Whole::new(Experiment::default_with(&sets).unwrap()).unwrap();
        match sim::run(whole.specs(), &mut NoopObserver) {
            Ok(ended) => {
                assert!(
                    ended.iter().all(|one| one
                        .model
                        .iter()
                        .chain(&one.mean)
                        .all(|x| x.is_finite()))
                );
                let summary = Summary::new(&whole.design, &ended[0].records).unwrap();
                let again: Summary =
                    serde_json::from_str(&serde_json::to_string(&summary).unwrap()).unwrap();
                assert_eq!(again.digest, summary.digest);
                let mut closings =
                    ended[0].records.iter().map(|record| Closing::from_bytes(record).unwrap());
                let loses = |closing: Closing| {
                    let losses = [closing.train_loss_of_mean, closing.distance_squared];
                    let scores = [closing.test, closing.test_of_mean]
                        .into_iter()
                        .flatten()
                        .map(|score| score.loss);
                    losses.into_iter().chain(scores).any(f64::is_nan)
                };
                not_finite += u32::from(closings.any(loses));
                read += 1;
            }
            Err(RunError::Failed { failure: Failure::Diverged { round, value, .. }, .. }) => {
                assert!(round.0 < rounds && !value.is_finite());
                diverged += 1;
            }
            Err(RunError::Failed { failure: Failure::Loss { round, loss }, .. }) => {
                assert!(round.0 < rounds && (loss.is_nan() || loss > 1e9));
                diverged += 1;
            }
            Err(other) => panic!("{rounds} rounds: {other}"),
        }
    }
    println!(
        "{read} readable, of which {not_finite} with a loss that is not finite; {diverged} diverged"
    );
    // A loss that is not finite ends a run, except after its last update.
    assert!(read > 0 && diverged > 0, "the step no longer covers both ends");
}

/// The rows of one of five nodes are a million times as large, as if they had another unit. Its
/// neighbours would diverge in the next round, all at once, so it is found before it sends.
#[test]
fn a_node_that_diverges_by_its_own_rows_is_named_before_it_spoils_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = |node: usize| folder.path().join(format!("{node}.csv")).display().to_string();
    for node in 0..5 {
        let factor = if node == 2 { 1e6 } else { 1.0 };
        let mut text = String::from("x,z,y\n");
        for row in 0..60 {
            let (x, z) = (f64::from(row * 37 % 60 - 30) / 30.0, f64::from(row % 7) / 7.0);
            writeln!(text, "{},{},{}", factor * x, factor * z, u8::from(x > z)).unwrap();
        }
        std::fs::write(file(node), text).unwrap();
    }
    let sources: Vec<String> = (0..5).map(file).collect();
    for (hidden, step) in [("[16]", 0.1), ("[64]", 0.02), ("[16,16]", 0.1)] {
        let mut sets = vec![
            format!("data.sources={sources:?}"),
            format!("model.hidden={hidden}"),
            format!("optimizer.step={step}"),
        ];
        let plain = [
            "model.kind=mlp",
            "data.test_share=0",
            "data.standardize=false",
            "topology.file=ring:5",
        ];
        let rule = ["rule.kind=d-psgd", "compressor.kind=identity", "run.rounds=20"];
        sets.extend(plain.into_iter().chain(rule).map(String::from));
        let whole = Whole::new(Experiment::default_with(&sets).unwrap()).unwrap();
        match sim::run(whole.specs(), &mut NoopObserver) {
            Err(RunError::Failed { node, failure: Failure::Loss { round, loss } }) => {
                assert_eq!((node.0, round.0), (2, 0), "{hidden}: {loss}");
            }
            other => panic!("{hidden}: {:?}", other.map(|ended| ended.len())),
        }
    }
}
