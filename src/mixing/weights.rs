//! Computes link weights from a graph. A node can compute them from its neighbours' degrees, except
//! `best-constant`, which needs the spectrum of the graph.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

use super::{FamilyMember, Graph, MixingMatrix, Spectrum};

/// The kinds of link weights. `w_ii = 1 - sum_j w_ij` in every case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Weights {
    /// `w_ij = 1 / (1 + max(d_i, d_j))`, with d the degrees (Xiao and Boyd 2004; the +1 keeps
    /// `lambda_n > -1` on every graph).
    #[default]
    Metropolis,
    /// `w_ij = 1 / d_max` (Xiao and Boyd 2004). On a regular bipartite graph, such as an even ring,
    /// it never mixes and is refused.
    MaxDegree,
    /// `(I + W) / 2` of the Metropolis W: no negative eigenvalue, as D2 requires.
    LazyMetropolis,
    /// `W = I - a L` with `a = 2 / (lambda_2(L) + lambda_n(L))`, the fastest constant (Xiao and
    /// Boyd 2004, section 4.1); a is rounded to 9 significant digits so that every machine has the
    /// same bits. A hub's own weight may be negative.
    BestConstant,
    /// Each link has its own.
    Given,
}

impl Weights {
    /// Every kind, in the order of lists.
    pub const ALL: [Weights; 5] = [
        Weights::Metropolis,
        Weights::MaxDegree,
        Weights::LazyMetropolis,
        Weights::BestConstant,
        Weights::Given,
    ];

    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Weights::Metropolis => "metropolis",
            Weights::MaxDegree => "max-degree",
            Weights::LazyMetropolis => "lazy-metropolis",
            Weights::BestConstant => "best-constant",
            Weights::Given => "given",
        }
    }

    /// A description in one line, for lists.
    pub fn about(self) -> &'static str {
        match self {
            Weights::Metropolis => {
                "1 / (1 + max(d_i, d_j)): local information only, mixes on every connected graph"
            }
            Weights::MaxDegree => {
                "1 / d_max: refused if it cannot mix (regular bipartite graphs, such as even \
                 rings)"
            }
            Weights::LazyMetropolis => {
                "(I + W) / 2 of metropolis: no negative eigenvalue, half the gap"
            }
            Weights::BestConstant => {
                "I - a L with the fastest constant a = 2 / (lambda_2(L) + lambda_n(L))"
            }
            Weights::Given => "each link brings its own weight",
        }
    }

    /// The weight of each link, in the order of [`Graph::links`]; `None` for [`Weights::Given`],
    /// whose weights the graph does not have. `shape` supplies the Laplacian's eigenvalues if they
    /// are known.
    ///
    /// # Errors
    /// If `best-constant` is requested on a graph that is not connected, or whose spectrum did not
    /// converge.
    pub(crate) fn of_links(
        self,
        graph: &Graph,
        shape: Option<&FamilyMember>,
    ) -> Result<Option<Vec<f64>>, ConfigError> {
        let metropolis = |factor: f64| {
            let weight = |&(a, b)| factor / (1 + graph.degree(a).max(graph.degree(b))) as f64;
            graph.links().iter().map(weight).collect()
        };
        let constant = |weight: f64| vec![weight; graph.links().len()];
        Ok(match self {
            Weights::Metropolis => Some(metropolis(1.0)),
            Weights::LazyMetropolis => Some(metropolis(0.5)),
            Weights::MaxDegree => {
                Some(constant(1.0 / graph.degrees().max().unwrap_or(1).max(1) as f64))
            }
            Weights::BestConstant => Some(constant(best_constant(graph, shape)?)),
            Weights::Given => None,
        })
    }
}

/// `2 / (lambda_2(L) + lambda_n(L))`, rounded to 9 significant digits. 1 for a graph without links.
fn best_constant(graph: &Graph, shape: Option<&FamilyMember>) -> Result<f64, ConfigError> {
    if graph.links().is_empty() {
        return Ok(1.0);
    }
    let refused = |problem: &str| ConfigError::new("weights", "best-constant", problem);
    let (least, greatest) = match shape.and_then(FamilyMember::laplacian_range) {
        Some(range) => range,
        None => {
            // W = I - L / (2 d_max) is a mixing matrix for any graph; its eigenvalues are those of
            // L, scaled.
            let scale = 2.0 * graph.degrees().max().unwrap_or(1) as f64;
            let probe =
                MixingMatrix::new(graph.clone(), &vec![1.0 / scale; graph.links().len()], false)
                    .map_err(|error| refused(&error.to_string()))?;
            let spectrum = Spectrum::of(&probe, None);
            if !spectrum.converged {
                let problem =
                    "the Laplacian's spectrum did not converge on this graph: use metropolis";
                return Err(refused(problem));
            }
            ((1.0 - spectrum.lambda_2) * scale, (1.0 - spectrum.lambda_n) * scale)
        }
    };
    Ok(round_9(2.0 / (least + greatest)))
}

/// `x` rounded to 9 significant digits, by its decimal form.
pub(super) fn round_9(x: f64) -> f64 {
    format!("{x:.8e}").parse().expect("a number's own decimal form parses")
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Weights {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Weights, ConfigError> {
        Weights::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<_> = Weights::ALL.iter().map(|kind| kind.name()).collect();
            ConfigError::new(
                "weights",
                format!("\"{text}\""),
                format!("expected one of {}", names.join(", ")),
            )
            .with_accepted(names)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for kind in Weights::ALL {
            assert_eq!(kind.name().parse::<Weights>().unwrap(), kind);
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert!("uniform".parse::<Weights>().unwrap_err().to_string().contains("metropolis"));
    }

    #[test]
    fn rounding_keeps_nine_digits() {
        assert_eq!(round_9(0.123_456_789_49), 0.123_456_789);
        assert_eq!(round_9(1.0 / 3.0), 0.333_333_333);
        assert_eq!(round_9(0.0), 0.0);
    }

    #[test]
    fn path_of_four_by_hand() {
        let graph = Graph::new(4, [(0, 1), (1, 2), (2, 3)]).unwrap();
        let of = |kind: Weights| kind.of_links(&graph, None).unwrap().unwrap();
        assert_eq!(of(Weights::Metropolis), [1.0 / 3.0; 3]);
        assert_eq!(of(Weights::LazyMetropolis), [0.5 / 3.0; 3]);
        assert_eq!(of(Weights::MaxDegree), [0.5; 3]);
        // lambda(L) = 2 - 2 cos(pi k / 4): 2 - sqrt 2 and 2 + sqrt 2, so a = 1/2.
        assert_eq!(of(Weights::BestConstant), [0.5; 3]);
        assert_eq!(Weights::Given.of_links(&graph, None).unwrap(), None);
    }
}
