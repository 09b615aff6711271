//! What must hold of the rules, and what must fail when a bug is planted.

use std::sync::LazyLock;

use common::{
    Run, consensus, difference,
    hook::{Hook, Hooked},
    widen,
};
use gradvine::{
    compress::Payload,
    drive::{Ended, NoopObserver, RunError},
    gossip::{
        Failure,
        plan::At,
        rule::{self, Rule},
    },
    sim,
    units::NodeId,
};

const IDENTITY: &str = "kind = 'identity'";
const FOUR_BITS: &str = "kind = 'min-max'\nbits = 4";

const VARIANTS: [&str; 8] = [
    "kind = 'd-psgd'\norder = 'cta'",
    "kind = 'choco'\ngamma = 'measured'",
    "kind = 'choco'\norder = 'iclr'",
    "kind = 'c-sgd'\nlayers = true",
    "kind = 'delayed'\ndelay = 7\nperiod = 2",
    "kind = 'stale-synchronous'\nstaleness = 0",
    "kind = 'compressed-c-sgd'\ndouble = true",
    "kind = 'sketched-sgd'\nvariant = 'practical'",
];

/// Every rule at its defaults, and the variants, each with a compressor that it runs with.
pub(crate) static ALL: LazyLock<Vec<(String, &str)>> = LazyLock::new(|| {
    let defaults = rule::RULES.iter().map(|entry| format!("kind = '{}'", entry.name));
    let rules = defaults.chain(VARIANTS.map(String::from));
    let with = |rule: String| {
        let compressor = compressor(&rule);
        (rule, compressor)
    };
    rules.map(with).collect()
});

fn entry(rule: &str) -> &'static rule::Entry {
    let table: toml::Table = toml::from_str(rule).unwrap();
    rule::find(table["kind"].as_str().unwrap()).unwrap()
}

/// The first of these that the rule takes.
fn compressor(rule: &str) -> &'static str {
    let all = [
        IDENTITY,
        "kind = 'min-max'\nbits = 8",
        "kind = 'top-k'\nk = 4",
        "kind = 'count-sketch'\ncolumns = 20",
    ];
    let compresses = entry(rule).compresses;
    let takes = |compressor: &&str| {
        let run = Run::new(&format!("{}:8", home(rule)), rule, compressor);
        (compresses == (*compressor != IDENTITY)) && run.try_prepare().is_ok()
    };
    all.into_iter().find(takes).unwrap_or_else(|| panic!("{rule} takes none of {all:?}"))
}

/// A family on which the rule runs.
pub(crate) fn home(rule: &str) -> &'static str {
    entry(rule).home
}

fn same(a: &Run, b: &Run) {
    let difference = difference(&widen(&a.models()), &b.models());
    assert!(difference < 1e-5, "{} and {}: {difference:e}", a.rule, b.rule);
}

#[test]
fn with_the_identity_the_cta_family_is_d_psgd_cta() {
    let cta = Run::new("ring:8", "kind = 'd-psgd'\norder = 'cta'", IDENTITY);
    for rule in [
        "kind = 'dcd'",
        "kind = 'ecd'",
        "kind = 'naive'",
        "kind = 'choco'\norder = 'iclr'\ngamma = 1.0",
    ] {
        same(&cta, &Run::new("ring:8", rule, IDENTITY));
    }
}

#[test]
fn with_the_identity_the_atc_family_is_d_psgd_atc_from_any_start() {
    for rule in [
        "kind = 'deep-squeeze'\neta = 1.0",
        "kind = 'choco'\ngamma = 1.0",
        "kind = 'deep-squeeze'",
        "kind = 'choco'",
        "kind = 'choco-edge'",
        "kind = 'noloco'\nouter_step = 1.0\nouter_momentum = 0.0",
        "kind = 'gasloc'\nouter_step = 1.0\nouter_momentum = 0.0",
        "kind = 'qg-dsgdm'\nmomentum = 0.0",
    ] {
        let mut atc = Run::new("ring:8", "kind = 'd-psgd'", IDENTITY);
        let mut other = Run::new("ring:8", rule, IDENTITY);
        (atc.same_start, other.same_start) = (false, false);
        same(&atc, &other);
    }
}

#[test]
fn on_the_complete_graph_atc_is_centralized_sgd_and_cta_is_not() {
    let run = Run::new("complete:6", "kind = 'd-psgd'", IDENTITY);
    let problems = run.problems();
    let mut x: Vec<f64> = run.start(0).iter().map(|&x| f64::from(x)).collect();
    for _ in 0..run.rounds {
        let mut gradient = vec![0.0; x.len()];
        for problem in &problems {
            gradient.iter_mut().zip(problem.gradient(&x)).for_each(|(g, p)| *g += p / 6.0);
        }
        x.iter_mut().zip(&gradient).for_each(|(x, g)| *x -= run.step * g);
    }
    let centralized = vec![x; 6];
    assert!(difference(&centralized, &run.models()) < 1e-5);
    let cta = Run::new("complete:6", "kind = 'd-psgd'\norder = 'cta'", IDENTITY);
    assert!(difference(&centralized, &cta.models()) > 1e-3);
}

/// The mean of the models, per coordinate.
fn mean(models: &[Vec<f32>]) -> Vec<f64> {
    (0..models[0].len())
        .map(|k| models.iter().map(|x| f64::from(x[k])).sum::<f64>() / models.len() as f64)
        .collect()
}

/// How far the mean moves in rounds without gradients.
fn drift(rule: &str, compressor: &str) -> f64 {
    let mut run = Run::new("ring:8", rule, compressor);
    (run.step, run.same_start, run.rounds) = (0.0, false, 50);
    let starts: Vec<Vec<f32>> = (0..8).map(|node| run.start(node)).collect();
    let (before, after) = (mean(&starts), mean(&run.models()));
    before.iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn the_mean_moves_by_the_mean_gradient_alone_under_any_compressor() {
    for compressor in [
        FOUR_BITS,
        "kind = 'top-k'\nk = 4",
        "kind = 'sign'",
        "kind = 'qsgd'\nlevels = 4\nscaled = true",
    ] {
        for rule in [
            "kind = 'deep-squeeze'",
            "kind = 'choco'",
            "kind = 'choco'\norder = 'iclr'",
            "kind = 'choco-edge'",
            "kind = 'choco'\ngamma = 'measured'",
            "kind = 'compressed-gasloc'",
            "kind = 'compressed-gasloc'\ngossip_step = 'measured'",
        ] {
            let drift = drift(rule, compressor);
            assert!(drift < 2e-6, "{rule} with {compressor}: the mean drifted by {drift:e}");
        }
    }
    assert!(
        drift("kind = 'naive'", FOUR_BITS) > 1e-4,
        "naive compression does not keep the mean: this test can fail"
    );
}

#[test]
fn gossip_alone_reaches_agreement_at_the_rate_of_rho() {
    let mut run = Run::new("ring:8", "kind = 'd-psgd'", IDENTITY);
    (run.step, run.same_start, run.rounds) = (0.0, false, 40);
    let starts: Vec<Vec<f32>> = (0..8).map(|node| run.start(node)).collect();
    let shrunk = consensus(&run.models()) / consensus(&starts);
    let rho = run.topology.spectrum().rho;
    assert!(
        shrunk <= rho.powi(80) * 1.01,
        "{shrunk:e} after 40 rounds, rho^80 = {:e}",
        rho.powi(80)
    );
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_does_not() {
    for (rule, compressor) in &*ALL {
        let run = Run::new(&format!("{}:8", home(rule)), rule, compressor);
        assert_eq!(run.ended().unwrap(), run.ended().unwrap(), "{rule}");
    }
    let run = Run::new("ring:8", "kind = 'dcd'", FOUR_BITS);
    let mut specs = run.specs();
    specs.iter_mut().for_each(|spec| spec.config.seed = 4);
    let other: Vec<Vec<f32>> =
        sim::run(specs, &mut NoopObserver).unwrap().into_iter().map(|ended| ended.model).collect();
    assert_ne!(run.models(), other);
}

#[test]
fn every_node_forms_the_same_exact_mean() {
    for topology in ["ring:8", "star:5", "path:7", "complete:1"] {
        let ended = Run::new(topology, "kind = 'choco'", FOUR_BITS).ended().unwrap();
        let models: Vec<Vec<f32>> = ended.iter().map(|ended| ended.model.clone()).collect();
        let exact: Vec<f32> = mean(&models).into_iter().map(|x| x as f32).collect();
        for ended in &ended {
            assert_eq!(ended.mean, exact, "{topology}");
            assert_eq!(ended.records, vec![30u64.to_le_bytes().to_vec(); models.len()]);
        }
    }
}

// Negative controls
// ------------------------------------------------------------------------------------------

#[test]
fn naive_compression_stalls_where_dcd_and_choco_and_deep_squeeze_do_not() {
    let floor = |rule: &str, step: f64| {
        let mut run = Run::new("ring:8", rule, "kind = 'min-max'\nbits = 3");
        (run.rounds, run.step) = (1500, step);
        run.suboptimality(&run.models())
    };
    let naive = floor("kind = 'naive'", 0.05);
    assert!(
        floor("kind = 'naive'", 0.0125) > 0.5 * naive,
        "a smaller step does not help naive compression"
    );
    for rule in ["kind = 'dcd'", "kind = 'choco'", "kind = 'deep-squeeze'"] {
        let other = floor(rule, 0.05);
        assert!(other < 0.1 * naive, "{rule}: {other:e} against naive {naive:e}");
    }
}

#[test]
fn error_feedback_on_an_expanding_compressor_is_refused_and_diverges_where_it_is_allowed() {
    let coarse = "kind = 'qsgd'\nlevels = 1\nbucket = 0";
    for rule in ["kind = 'deep-squeeze'", "kind = 'choco'"] {
        let run = Run::new("ring:8", rule, coarse);
        let refused = run.refusal();
        assert!(
            refused.contains("nominal delta") && refused.contains("run.allow_unstable"),
            "{refused}"
        );
        let step = if rule.contains("choco") { "gamma = 0.3" } else { "eta = 0.3" };
        let run = Run::new("ring:8", &format!("{rule}\n{step}"), coarse);
        let run = Run { rounds: 3000, ..run };
        assert!(run.diverges(), "{rule} should diverge with {coarse}");
    }
}

struct Planted {
    bug: Bug,
    frames: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    /// The tenth frame is dropped.
    LostFrame,
    /// The owner keeps the exact difference, not what it sent.
    OwnerForgetsItsOwn,
    /// The eighth frame is applied twice.
    TwiceApplied,
    /// Every frame of this round is dropped.
    LostRound(u64),
}

impl Hook for Planted {
    fn sent(&mut self, at: &At, _own: &Payload<'_>) -> bool {
        !(self.bug == Bug::OwnerForgetsItsOwn && at.round.0 == 2)
    }

    fn received(&mut self, at: &At, _from: NodeId) -> usize {
        self.frames += 1;
        match self.bug {
            Bug::LostFrame if self.frames == 10 => 0,
            Bug::LostRound(round) if round == at.round.0 => 0,
            Bug::TwiceApplied if self.frames == 8 => 2,
            _ => 1,
        }
    }
}

/// How a run ends in which node 3 has a bug.
fn with_a_bug(run: &Run, bug: Bug) -> Result<Vec<Ended>, RunError> {
    let plant = |id: NodeId, inner: Box<dyn Rule>| -> Box<dyn Rule> {
        if id == NodeId(3) {
            Box::new(Hooked { inner, hook: Planted { bug, frames: 0 } })
        } else {
            inner
        }
    };
    sim::run(run.specs_with(plant), &mut NoopObserver)
}

#[test]
fn a_copy_that_differs_is_found_in_the_next_round_of_sixteen_whenever_it_went_wrong() {
    for rule in ["kind = 'dcd'", "kind = 'choco'", "kind = 'choco-edge'"] {
        let run = Run { rounds: 100, ..Run::new("ring:8", rule, FOUR_BITS) };
        for round in [0, 1, 15, 16, 17, 31, 32, 40, 65, 96] {
            match with_a_bug(&run, Bug::LostRound(round)) {
                Err(RunError::Failed { node: NodeId(3), failure: Failure::Replica { at, .. } }) => {
                    assert_eq!(
                        at.round.0,
                        round.next_multiple_of(16),
                        "{rule}: what was lost in round {round}"
                    );
                }
                other => panic!("{rule}: what was lost in round {round} is not found: {other:?}"),
            }
        }
        assert!(with_a_bug(&run, Bug::LostRound(97)).is_ok(), "no comparison follows");
    }
}

#[test]
fn a_copy_that_differs_from_its_owner_is_found() {
    // Not ecd: its estimates forget, and at t = 2 wholly.
    for rule in [
        "kind = 'dcd'",
        "kind = 'choco'",
        "kind = 'choco-edge'",
        "kind = 'beer'",
        "kind = 'compressed-gasloc'",
        "kind = 'compressed-qg-dsgdm'",
    ] {
        let run = Run::new("ring:8", rule, FOUR_BITS);
        assert!(run.ended().is_ok(), "{rule} keeps its copies");
        for bug in [Bug::LostFrame, Bug::OwnerForgetsItsOwn, Bug::TwiceApplied] {
            let result = with_a_bug(&run, bug);
            let found =
                matches!(result, Err(RunError::Failed { failure: Failure::Replica { .. }, .. }));
            assert!(found, "{rule}: the planted bug must be found, got {result:?}");
        }
    }
}

/// By how much 400 rounds without gradients multiply the disagreement of nodes that start apart.
fn growth(schedule: &str, topology: &str, rule: &str) -> f64 {
    let mut run = Run::scheduled(topology, schedule, rule, IDENTITY);
    (run.step, run.same_start, run.allow_unstable) = (0.0, false, true);
    let at = |rounds: u64| match (Run { rounds, ..run.clone() }).ended() {
        Ok(ended) => consensus(&ended.into_iter().map(|end| end.model).collect::<Vec<_>>()),
        // A node whose model has grown out of all bounds ends its run.
        Err(RunError::Failed { failure: Failure::Diverged { .. }, .. }) => f64::INFINITY,
        Err(other) => panic!("{other}"),
    };
    at(400) / at(1)
}

/// What the documentation of `gasloc` states.
#[test]
fn gasloc_agrees_faster_with_momentum_and_on_random_pairs_within_its_bound() {
    let apart = |schedule: &str, topology: &str, momentum: f64| {
        let rule = format!("kind = 'gasloc'\nouter_momentum = {momentum:?}");
        growth(schedule, topology, &rule)
    };
    for momentum in [0.0, 0.5, 0.9] {
        assert!(apart("static", "ring:8", momentum) < 1e-3, "{momentum}");
    }
    assert!(apart("static", "ring:32", 0.8) < 0.1 * apart("static", "ring:32", 0.0));
    assert!(apart("random-matching", "complete:32", 0.6) < 1e-3);
    assert!(apart("random-matching", "complete:32", 0.9) > 1e3);
}

/// What the documentation of `compressed-gasloc` states.
#[test]
fn compressed_gasloc_is_gasloc_with_an_exact_compressor_and_choco_without_momentum() {
    for constants in ["", "outer_step = 0.9\nouter_momentum = 0.8"] {
        let of = |kind: &str| format!("kind = '{kind}'\n{constants}");
        let [exact, copies] = ["gasloc", "compressed-gasloc"].map(of);
        same(&Run::new("ring:8", &exact, IDENTITY), &Run::new("ring:8", &copies, IDENTITY));
    }
    let plain = "kind = 'compressed-gasloc'\nouter_step = 1.0\nouter_momentum = 0.0\n\
                 gossip_step = 0.4";
    let choco = "kind = 'choco'\ngamma = 0.4";
    let top = "kind = 'top-k'\nk = 10";
    same(&Run::new("torus:3x3", choco, top), &Run::new("torus:3x3", plain, top));
}

/// Nesterov's method has two usual forms: that of `diloco`, and that of the mean of `gasloc`.
#[test]
fn the_mean_of_gasloc_moves_as_diloco_where_gradients_are_the_same() {
    for (step, momentum) in [(0.7, 0.9), (1.0, 0.5)] {
        let constants = format!("outer_step = {step:?}\nouter_momentum = {momentum}");
        let models = |kind: &str| {
            // One node: W is 1, and the models are the same.
            Run::new("complete:1", &format!("kind = '{kind}'\n{constants}"), IDENTITY).models()
        };
        let off = difference(&widen(&models("diloco")), &models("gasloc"));
        assert!(off < 1e-5, "{step} {momentum}: {off:e}");
    }
}

/// The bounds that the documentation of `noloco` states, tried a little below and above.
#[test]
fn noloco_agrees_within_its_bounds_and_not_beyond() {
    let apart = |schedule: &str, topology: &str, momentum: f64, pull: f64| {
        let rule = format!("kind = 'noloco'\nouter_momentum = {momentum:?}\npull = {pull:?}");
        growth(schedule, topology, &rule)
    };
    for momentum in [0.0_f64, 0.5, 0.8] {
        // complete:2 has the eigenvalues 1 and 0, an even ring with weights 1/3 has -1/3.
        let bound = 2.0 * (1.0 + momentum);
        assert!(apart("static", "complete:2", momentum, 0.95 * bound) < 1e-3, "{momentum}");
        assert!(apart("static", "complete:2", momentum, 1.05 * bound) > 1e3, "{momentum}");
        assert!(apart("static", "ring:8", momentum, 0.95 * bound / (4.0 / 3.0)) < 1e-3);
        assert!(apart("static", "ring:8", momentum, 1.05 * bound / (4.0 / 3.0)) > 1e3);
        let bound = 2.0 * (1.0 - momentum * momentum);
        assert!(apart("random-matching", "complete:32", momentum, 0.8 * bound) < 1e-3);
        assert!(apart("random-matching", "complete:32", momentum, 1.3 * bound) > 1e3);
    }
}
