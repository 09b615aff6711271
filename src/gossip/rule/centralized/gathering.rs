//! Rules that gather one compressed vector of every node: their constant, and what they share of a
//! [`Party`].

use crate::gossip::rule::prelude::*;

params! {
    /// The constants of such a rule that has no others.
    pub(super) struct Params {
        pub(super) collective: Option<Kind> = None,
    }
}

/// The pattern that `collective` asks for, or the first of a server and all-to-all whose links
/// exist; `collective` then names it.
pub(super) fn choose(
    rule: &str,
    collective: &mut Option<Kind>,
    setting: &Setting<'_>,
) -> Result<Pattern, ConfigError> {
    let allowed = &[Kind::Server, Kind::AllToAll];
    let (kind, pattern) = Pattern::choose(rule, *collective, None, allowed, setting.topology)?;
    *collective = Some(kind);
    Ok(pattern)
}

/// What a rule gathers, and what it does with the mean.
pub(crate) trait Gathers: Send {
    /// Takes the update, with the sum of the step sizes in it.
    fn gradient(&mut self, _local: &mut Local, _step: f32) {}

    /// The name of its error memory, and the memory, if it has one.
    fn memory(&mut self) -> Option<(&'static str, &mut Vec<f32>)> {
        None
    }

    /// The vector that it sends: the memory or, without one, the update. The memory then keeps what
    /// was not sent.
    ///
    /// # Errors
    /// If a value is not finite.
    fn vector<'a>(&'a mut self, local: &'a mut Local) -> Result<&'a [f32], NonFinite> {
        Ok(match self.memory() {
            Some((_, error)) => error.as_slice(),
            None => &local.update,
        })
    }

    /// Makes the direction of the step from the mean, in place.
    fn direct(&self, _mean: &mut [f32]) {}

    /// The multiple of the direction that the model moves by.
    fn step(&self) -> f32;

    /// At the server: takes the step that it sends to the others.
    fn sent_mean(&mut self, gather: &mut Gather, own: &Payload<'_>, x: &mut [f32]) {
        gather.sent_result(own, self.step(), x);
    }
}

/// The rule of one node.
pub(crate) struct Gathered<G> {
    pub(crate) rule: G,
    pub(crate) gather: Gather,
}

impl<G: Gathers> Party for Gathered<G> {
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        if at.exchange == 0 {
            return out.vector(self.rule.vector(local)?);
        }
        let mean = self.gather.mean();
        self.rule.direct(mean);
        out.vector(mean)
    }

    fn sent(&mut self, local: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        if at.exchange > 0 {
            return self.rule.sent_mean(&mut self.gather, own, &mut local.x);
        }
        if let Some((_, error)) = self.rule.memory() {
            own.add_into(-1.0, error);
        }
        self.gather.sent(own);
    }

    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.gather.received(at, from, p, self.rule.step(), &mut local.x);
        Ok(())
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&SameModel)
    }
}

impl<G: Gathers> Rule for Gathered<G> {
    fn gradient(&mut self, local: &mut Local, _: Round, step: f32) {
        self.rule.gradient(local, step);
    }

    fn land(&mut self, local: &mut Local, _: &At) {
        let rule = &self.rule;
        self.gather.land(rule.step(), &mut local.x, |mean| rule.direct(mean));
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        if let Some((name, error)) = self.rule.memory() {
            visitor.vector(name, error);
        }
        self.gather.state(visitor);
    }
}
