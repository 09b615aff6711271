//! The interpreter of plans: the position of a node in the program of its rounds.
//!
//! A node runs it with frames, a prediction with their sizes.

use super::{
    flights::Flights,
    plan::{At, Plan, Step},
};
use crate::units::Round;

/// The action that a step of the program requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait,
    /// The step is done; continue.
    Continue,
    /// Begin the gradient of this round.
    Gradient(Round),
    /// A flight is complete, with its last exchange: apply it to the model.
    Land(At),
    /// All steps of this round are done.
    RoundDone(Round),
}

/// The position of a node in its rounds.
#[derive(Debug, Default)]
pub(crate) struct Program {
    round: Round,
    /// The next step of the round.
    step: usize,
    /// Whether the current [`Step::Launch`] has launched its flight.
    launched: bool,
    /// Whether the gradient is being computed.
    computing: bool,
    /// How many parts of this round's update are final.
    parts: usize,
}

impl Program {
    /// At the beginning of a round.
    pub(crate) fn at(round: Round) -> Program {
        Program { round, ..Program::default() }
    }

    pub(crate) fn round(&self) -> Round {
        self.round
    }

    /// Whether the gradient is being computed: the model is lent.
    pub(crate) fn is_computing(&self) -> bool {
        self.computing
    }

    /// Whether the next step begins a gradient.
    pub(crate) fn is_at_gradient(&self, plan: &dyn Plan) -> bool {
        plan.steps().get(self.step) == Some(&Step::Gradient)
    }

    /// Records that this part of the update is final, and so are those before it.
    pub(crate) fn finish_part(&mut self, part: u8) {
        self.parts = usize::from(part) + 1;
    }

    /// Records that the gradient is computed.
    pub(crate) fn finish_gradient(&mut self) {
        self.computing = false;
    }

    /// Takes the next step of the round. `may_begin` says whether the round's gradient may begin.
    pub(crate) fn advance<F>(
        &mut self,
        plan: &dyn Plan,
        flights: &mut Flights<F>,
        may_begin: impl FnOnce(Round) -> bool,
    ) -> Next {
        let round = self.round;
        let next = match plan.steps().get(self.step) {
            Some(&Step::Launch(flight)) if !self.launched => {
                flights.launch(At { round, flight, exchange: 0 }, plan);
                self.launched = true;
                return Next::Continue;
            }
            Some(&Step::Launch(flight)) => {
                self.launched = !flights.opened(round, flight);
                wait_unless(!self.launched)
            }
            Some(Step::Gradient) if !may_begin(round) => Next::Wait,
            Some(Step::Gradient) => {
                (self.computing, self.parts) = (true, 0);
                Next::Gradient(round)
            }
            Some(&Step::Part(part)) => wait_unless(self.parts > usize::from(part)),
            Some(Step::Join) => wait_unless(!self.computing),
            Some(&Step::Land { flight, lag }) => match round.0.checked_sub(u64::from(lag)) {
                Some(launched) => land(plan, flights, Round(launched), flight),
                None => Next::Continue,
            },
            None => {
                (self.round, self.step) = (Round(round.0 + 1), 0);
                return Next::RoundDone(round);
            }
        };
        self.step += usize::from(next != Next::Wait);
        next
    }

    /// After the last round: lands the remaining flights, in order. `None` when all have landed.
    pub(crate) fn land_rest<F>(&self, plan: &dyn Plan, flights: &mut Flights<F>) -> Option<Next> {
        let lands = plan.steps().iter().filter_map(|step| match *step {
            Step::Land { flight, lag } => Some((flight, u64::from(lag))),
            _ => None,
        });
        for (flight, lag) in lands {
            for round in self.round.0.saturating_sub(lag)..self.round.0 {
                if flights.contains(Round(round), flight) {
                    return Some(land(plan, flights, Round(round), flight));
                }
            }
        }
        None
    }
}

fn wait_unless(done: bool) -> Next {
    if done { Next::Continue } else { Next::Wait }
}

fn land<F>(plan: &dyn Plan, flights: &mut Flights<F>, round: Round, flight: u8) -> Next {
    let exchange = plan.exchanges(flight).saturating_sub(1);
    if flights.land(round, flight) {
        Next::Land(At { round, flight, exchange })
    } else {
        Next::Wait
    }
}
