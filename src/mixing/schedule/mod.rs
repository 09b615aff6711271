//! Topologies that change from round to round: in each round a node exchanges with few neighbours,
//! and over a period with all of them.
//!
//! A [`Schedule`] is a list of doubly stochastic matrices `W_0 ... W_(T-1)` on the links of a
//! topology; round t uses `W_(t mod T)`. It is made once and is data from then on: any node knows
//! the neighbours of any node in any round ([`Schedule::turn`]). W may be directed, so senders and
//! receivers are kept apart.
//!
//! ```text
//!   one-peer-exponential, n = 4        base-2, n = 3
//!   t = 0  0>1>2>3>0    W = (I + P)/2      t = 0  0-1  2     1/2
//!   t = 1  0>2>0 1>3>1  W = (I + P^2)/2    t = 1  0-2  1     2/3
//!                                          t = 2  0-1  2     1/2
//! ```
//!
//! The convergence of a round no longer follows from an eigenvalue of one matrix. [`Rate::rho`] is
//! the factor per round by which a period shrinks disagreement, `|W_(T-1) ... W_0 - J|^(1/T)` in
//! the spectral norm, and 0 if a period ends in exact agreement; for a random schedule it is
//! measured.
//!
//! To add a schedule, write one file and one line of [`REGISTRY`].

mod base_2;
mod epidemic;
mod fixed;
mod mix;
mod one_peer;
mod random_matching;
mod rate;

use std::sync::OnceLock;

use super::{Topology, TopologyError};
use crate::{
    config::ConfigError,
    registry::{Named, Registry},
    units::{NodeId, Round},
};
pub use mix::{Mix, Turn};
pub use rate::Rate;

/// Every schedule, in the order of lists.
pub static REGISTRY: Registry<Recipe> = Registry::new(
    "schedule",
    &[
        fixed::FIXED,
        one_peer::ONE_PEER_EXPONENTIAL,
        base_2::BASE_2,
        random_matching::RANDOM_MATCHING,
        epidemic::EPIDEMIC,
    ],
);

/// The schedules that files may name.
pub type Recipes = &'static Registry<Recipe>;

impl Named for Recipe {
    fn name(&self) -> &str {
        self.name
    }
}

/// The schedule of a topology that does not change.
pub(crate) const STATIC: &str = "static";

/// The name of the key, for errors.
const KEY: &str = "topology.schedule";

/// A generator of schedules: the matrices of a period on a given topology.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Its name in files and on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// Authors, title, year.
    pub paper: &'static str,
    /// What the number after its name is, and an example; `None` if it has none.
    pub number: Option<(&'static str, u64)>,
    /// The topologies with this many nodes that have all links of the schedule.
    pub remedy: fn(nodes: usize) -> String,
    /// The matrices of one period, at least one. They may use links that the topology lacks: that
    /// is checked later. `number` is the one after its name, or 0 if it has none. If there is no
    /// such schedule on this topology: the problem and the remedy.
    pub rounds: fn(topology: &Topology, number: u64, seed: u64) -> Result<Vec<Mix>, String>,
    /// The rate of agreement, if it is known without the matrices' products.
    pub rate: fn(topology: &Topology) -> Option<Rate>,
    /// Whether a period is a random sample: then its rate is measured on parts of it.
    pub is_random: bool,
}

impl Recipe {
    /// Values that most schedules share, for `..Recipe::BLANK`.
    pub const BLANK: Recipe = Recipe {
        name: "",
        about: "",
        paper: "",
        number: None,
        remedy: |_| "any topology".into(),
        rounds: |_, _, _| Err("it has no rounds".into()),
        rate: |_| None,
        is_random: false,
    };

    /// How files give it, with an example of its number.
    pub fn example(&self) -> String {
        match self.number {
            None => self.name.into(),
            Some((_, example)) => format!("{}:{example}", self.name),
        }
    }
}

/// Finds a recipe by name, with the number after it: `base-2`, `epidemic:4`.
///
/// # Errors
/// If there is none, or its number is missing or wrong; the error lists what is accepted.
pub(crate) fn find(recipes: Recipes, text: &str) -> Result<(&'static Recipe, u64), ConfigError> {
    let refused = |problem: String| ConfigError::new(KEY, format!("\"{text}\""), problem);
    let (name, number) = match text.split_once(':') {
        Some((name, number)) => (name, Some(number)),
        None => (text, None),
    };
    let recipe = recipes
        .find(name)
        .ok_or_else(|| refused(recipes.expected(name)).with_accepted(recipes.names()))?;
    match (recipe.number, number) {
        (None, None) => Ok((recipe, 0)),
        (None, Some(_)) => Err(refused(format!("{name} takes no number: write \"{name}\""))),
        (Some((what, _)), number) => {
            let number = number.and_then(|number| number.parse().ok()).ok_or_else(|| {
                let example = recipe.example();
                refused(format!("expected the number of {what}, such as \"{example}\""))
            })?;
            Ok((recipe, number))
        }
    }
}

/// The links and weights of every round.
#[derive(Debug)]
pub struct Schedule {
    name: String,
    recipe: &'static Recipe,
    rounds: Vec<Mix>,
    rate: OnceLock<Rate>,
}

impl Schedule {
    /// The schedule of this name (`base-2`, `epidemic:4`) on a topology. `seed` is for random
    /// schedules.
    ///
    /// # Errors
    /// If there is no such schedule, or the topology lacks a link of it: the link, and a topology
    /// that has it.
    pub fn new(name: &str, topology: &Topology, seed: u64) -> Result<Schedule, TopologyError> {
        Schedule::new_in(&REGISTRY, name, topology, seed)
    }

    /// As [`Schedule::new`], with these recipes.
    pub(crate) fn new_in(
        recipes: Recipes,
        name: &str,
        topology: &Topology,
        seed: u64,
    ) -> Result<Schedule, TopologyError> {
        let (recipe, number) = find(recipes, name)?;
        let refused = |problem: String| ConfigError::new(KEY, format!("\"{name}\""), problem);
        let rounds = (recipe.rounds)(topology, number, seed).map_err(refused)?;
        assert!(!rounds.is_empty(), "{name}: a period has a round");
        for mix in &rounds {
            if let Some((a, b)) = mix.arcs().find(|&(a, b)| topology.link(a, b).is_none()) {
                let (a, b) = (&topology.node(a).name, &topology.node(b).name);
                let remedy = (recipe.remedy)(topology.nodes());
                let lacks = topology.name();
                let problem =
                    format!("needs the link {a} - {b}, which `{lacks}` lacks: use {remedy}");
                return Err(refused(problem).into());
            }
        }
        Ok(Schedule { name: name.into(), recipe, rounds, rate: OnceLock::new() })
    }

    /// The topology's own W in every round.
    ///
    /// # Panics
    /// Never: a topology has the links of its W.
    pub fn fixed(topology: &Topology) -> Schedule {
        Schedule::new(STATIC, topology, 0).expect("a topology has its own links")
    }

    /// One node's part of a round.
    pub fn turn(&self, round: Round, node: NodeId) -> Turn<'_> {
        self.mix(round).turn(node)
    }

    /// W of a round, that of its place in the period.
    pub fn mix(&self, round: Round) -> &Mix {
        &self.rounds[(round.0 % self.period()) as usize]
    }

    /// The number of rounds after which it repeats.
    pub fn period(&self) -> u64 {
        self.rounds.len() as u64
    }

    /// The number of its nodes.
    pub fn nodes(&self) -> usize {
        self.rounds[0].nodes()
    }

    /// Its name in files, with its number.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The generator that made its matrices.
    pub fn recipe(&self) -> &'static Recipe {
        self.recipe
    }

    /// Whether W is the topology's own in every round.
    pub fn is_static(&self) -> bool {
        self.name() == STATIC
    }

    /// Whether some node receives from another in a round without sending to it.
    pub fn is_directed(&self) -> bool {
        self.rounds.iter().any(|mix| mix.arcs().any(|(i, j)| mix.weight(j, i) == 0.0))
    }

    /// The rate of agreement, computed at the first call. `topology` is the one that it was made
    /// for.
    pub fn rate(&self, topology: &Topology) -> &Rate {
        self.rate.get_or_init(|| Rate::of(self.recipe, &self.rounds, topology))
    }
}
