//! Collectives one after another, in one flight.

use super::Collective;
use crate::{
    compress::Format,
    gossip::plan::{At, Meeting, Plan, Step},
    units::NodeId,
};

/// The plan of a rule whose round is several collectives: the exchanges of the second follow those
/// of the first, and so on.
pub struct Series {
    parts: Vec<Collective>,
}

impl Series {
    /// The gradient, then these collectives.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(parts: Vec<Collective>) -> Series {
        assert!(!parts.is_empty(), "a round without a collective");
        Series { parts }
    }

    /// The collective of an exchange, and the position in it. Past the end: the end of the last
    /// one.
    fn part(&self, at: &At) -> (&Collective, At) {
        let mut exchange = at.exchange;
        for part in &self.parts[..self.parts.len() - 1] {
            let exchanges = part.exchanges(at.flight);
            if exchange < exchanges {
                return (part, At { exchange, ..*at });
            }
            exchange -= exchanges;
        }
        (&self.parts[self.parts.len() - 1], At { exchange, ..*at })
    }
}

impl Plan for Series {
    fn steps(&self) -> &[Step] {
        self.parts[0].steps()
    }

    fn exchanges(&self, flight: u8) -> u16 {
        self.parts.iter().map(|part| part.exchanges(flight)).sum()
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        let (part, at) = self.part(at);
        part.meet(node, &at, out);
    }

    fn format(&self, at: &At, from: NodeId) -> &Format {
        let (part, at) = self.part(at);
        part.format(&at, from)
    }
}
