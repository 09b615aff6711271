//! Whether enough nodes took part in a run.

use crate::{
    experiment::RunParams,
    run::{EndError, Summary},
};

impl Summary {
    /// Checks that as many nodes took part in as many rounds as a run requires, and that no node's
    /// record is missing. An interrupted run requires nothing.
    ///
    /// # Errors
    /// [`EndError::Short`], with the nodes that fell short.
    pub fn check_participation(&self, run: &RunParams) -> Result<(), EndError> {
        if self.interrupted {
            return Ok(());
        }
        let rounds = self.rounds_of(run.rounds);
        let nodes = self.participation.len() + self.away.len();
        let (least, share) = match &run.require {
            Some(require) => (require.nodes as usize, require.share),
            None => (nodes, 1.0),
        };
        let needed = (share * rounds as f64).ceil() as u64;
        let short = self.short_of(needed);
        if nodes - short.len() < least {
            let shown: Vec<String> =
                short.iter().map(|(name, part)| format!("node {name} in {part}")).collect();
            let share = match needed < rounds {
                true => format!("{needed} of {rounds} rounds, the least that run.require asks for"),
                false => format!("all {rounds} rounds"),
            };
            let text = format!(
                "{} of {nodes} nodes took part in {share}, at least {least} have to: {} \
                 (summary.json has the history)",
                nodes - short.len(),
                shown.join(", ")
            );
            return Err(EndError::Short(text.into()));
        }
        if !self.unusable.is_empty() {
            let names = self.unusable.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let text = format!(
                "the models are saved, but the records of some nodes cannot be used, so that the \
                 summary lacks them and has no digest: {names}"
            );
            return Err(EndError::Short(text.into()));
        }
        Ok(())
    }

    /// Names the nodes whose records cannot be used, as warnings.
    pub fn record_warnings(&self) -> impl Iterator<Item = String> {
        let warning = |(name, why): (&String, &String)| {
            format!("the record of node {name} cannot be used: {why}")
        };
        self.unusable.iter().map(warning)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{
        experiment::{Experiment, RunParams},
        mixing::Topology,
        run::{Design, Participation, Summary},
    };

    /// A summary of three nodes that have done so many of ten rounds, and the run's parameters.
    fn summary(rounds: [u64; 3], require: &str) -> (Summary, RunParams) {
        let mut sets = vec!["run.rounds=10".to_string()];
        sets.extend((!require.is_empty()).then(|| format!("run.require={require}")));
        let experiment = Experiment::default_with(&sets).unwrap();
        let run = experiment.run.clone();
        let topology = Topology::parse("ring:3", 0).unwrap();
        let design = Design::new(experiment, Arc::new(topology), 4, 2).unwrap();
        let mut summary = Summary::blank(&design);
        summary.rounds = 10;
        for (name, rounds) in ["a", "b", "c"].into_iter().zip(rounds) {
            let part = Participation { rounds, ..Participation::default() };
            summary.add(name, part, 1.0);
        }
        (summary, run)
    }

    #[test]
    fn nodes_that_fell_short_are_named() {
        let (all, run) = summary([10, 10, 10], "");
        assert!(all.check_participation(&run).is_ok());
        let (short, run) = summary([10, 9, 10], "");
        let error = short.check_participation(&run).unwrap_err().to_string();
        let expected = "2 of 3 nodes took part in all 10 rounds, at least 3 have to: node b in 9 \
                        (summary.json has the history)";
        assert_eq!(error, expected);
        let (short, run) = summary([10, 8, 7], "{nodes=2,share=0.9}");
        let error = short.check_participation(&run).unwrap_err().to_string();
        let expected = "1 of 3 nodes took part in 9 of 10 rounds, the least that run.require asks \
                        for, at least 2 have to: node b in 8, node c in 7 (summary.json has the \
                        history)";
        assert_eq!(error, expected);
        let (enough, run) = summary([10, 9, 10], "{nodes=2,share=1.0}");
        assert!(enough.check_participation(&run).is_ok());
    }

    #[test]
    fn a_record_that_cannot_be_used_is_missing() {
        let (mut summary, run) = summary([10, 10, 10], "");
        summary.unusable.insert("b".into(), "its digest differs".into());
        assert!(summary.check_participation(&run).unwrap_err().to_string().ends_with("digest: b"));
        assert_eq!(
            summary.record_warnings().collect::<Vec<_>>(),
            ["the record of node b cannot be used: its digest differs"]
        );
        summary.interrupted = true;
        assert!(summary.check_participation(&run).is_ok());
    }
}
