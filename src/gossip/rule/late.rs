//! Mixing that lands t rounds late, around a rule of gossip: our extension, no paper's.
//!
//! The next gradients are computed while the mixing of a round is in flight, as the delayed update
//! does with centralized SGD:
//!
//! ```text
//! x_i(n+1) = z_i(n) + eta sum_j W_ij (c_j(n-t) - c_i(n-t))
//! ```
//! with what the rule sends, c, and its model after the update, z. Both ends of a link use values
//! of one round, so the mean of the models moves as without a delay. Along an eigenvector of W the
//! disagreement follows z(n+1) = z(n) - a z(n-t), a = eta (1 - l), which decays if and only if
//! 0 < a < 2 cos(t pi / (2 t + 1)) (Levin and May 1976, A note on difference-delay equations): eta
//! must fall with t. State: t + 1 vectors more.
//!
//! Rules with copies of neighbours (DCD, CHOCO) and rules whose proof needs the differences of one
//! round (D2, gradient tracking, BEER) have no delay: with a late landing they are other
//! algorithms, and no proof shows that these are sound. On a schedule the bound is not known
//! either.

use super::prelude::*;

/// A rule whose frames only add to the model.
pub(super) trait Additive: Rule {
    /// The weight at which a neighbour's frame is added.
    fn weight(&mut self, at: &At, from: NodeId) -> f32;
}

/// A rule whose mixing lands later.
pub(super) struct Late<R> {
    inner: R,
    /// The mixing of a round, until it lands; that of round n at n mod (t + 1).
    flights: Vec<Vec<f32>>,
}

impl<R: Additive> Late<R> {
    /// The rule for vectors of `len` numbers, whose mixing lands `delay` rounds late.
    pub(super) fn new(inner: R, delay: u32, len: usize) -> Late<R> {
        Late { inner, flights: vec![vec![0.0; len]; delay as usize + 1] }
    }

    fn flight(&mut self, round: Round) -> &mut Vec<f32> {
        let place = round.0 % self.flights.len() as u64;
        &mut self.flights[place as usize]
    }

    /// Lets the rule mix with the round's flight in the place of the model.
    fn mix<T>(
        &mut self,
        local: &mut Local,
        round: Round,
        mix: impl FnOnce(&mut R, &mut Local) -> T,
    ) -> T {
        std::mem::swap(&mut local.x, self.flight(round));
        let mixed = mix(&mut self.inner, local);
        std::mem::swap(&mut local.x, self.flight(round));
        mixed
    }
}

impl<R: Additive> Party for Late<R> {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        self.inner.outgoing(local, at, out)
    }

    fn sent(&mut self, local: &mut Local, at: &At, to: Option<NodeId>, own: &Payload<'_>) {
        self.mix(local, at.round, |inner, local| inner.sent(local, at, to, own));
    }

    fn target<'a>(&'a mut self, _: &'a mut Local, at: &At, from: NodeId) -> Target<'a> {
        Some((self.inner.weight(at, from), self.flight(at.round)))
    }

    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.mix(local, at.round, |inner, local| inner.received(local, at, from, p))
    }
}

impl<R: Additive> Rule for Late<R> {
    fn gradient(&mut self, local: &mut Local, round: Round, step: f32) {
        self.inner.gradient(local, round, step);
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        for (x, mixed) in local.x.iter_mut().zip(self.flight(at.round)) {
            *x += std::mem::take(mixed);
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        self.inner.state(visitor);
        visit_all(visitor, "late", &mut self.flights);
    }
}

/// The eta below which disagreement decays on a static topology, if C loses nothing: 2 cos(t pi /
/// (2 t + 1)) / (1 - l_n). None without a delay.
///
/// # Errors
/// If the topology follows a schedule.
pub(super) fn limit(delay: u32, setting: &Setting<'_>) -> Result<Option<f64>, ConfigError> {
    if delay == 0 {
        return Ok(None);
    }
    if !setting.schedule.is_static() {
        let problem = format!(
            "how small eta must be for late landings is known for one W only, and the schedule \
             is \"{}\": use 0, or topology.schedule = \"static\"",
            setting.schedule.name()
        );
        return Err(ConfigError::new("rule.delay", delay, problem));
    }
    let t = f64::from(delay);
    // A single node has no disagreement.
    let away = (1.0 - setting.topology.spectrum().lambda_n).max(f64::MIN_POSITIVE);
    Ok(Some(2.0 * libm::cos(t * std::f64::consts::PI / (2.0 * t + 1.0)) / away))
}
