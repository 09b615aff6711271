//! A run that diverges reports it, in any of its rounds: no record, summary or model of it is
//! silently wrong.

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
