//! How long a link waits, and how many messages it takes.

use std::time::{Duration, Instant};

use crate::experiment::Experiment;

/// Time limits of a link.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For streams and hellos, once connected.
    pub handshake: Duration,
    /// Between two heartbeats; a link breaks after three without a byte.
    pub heartbeat: Duration,
    /// For the neighbours' goodbyes, once this node has finished.
    pub goodbye: Duration,
    /// For a link that broke during the run to return; `None` for ever.
    pub absence: Option<Duration>,
}

impl Deadlines {
    /// The time limits of an experiment's links.
    pub(crate) fn of(experiment: &Experiment) -> Deadlines {
        Deadlines {
            absence: experiment.absence.deadline(),
            heartbeat: Duration::from_secs_f64(experiment.absence.heartbeat_s),
            ..Deadlines::default()
        }
    }
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            handshake: Duration::from_secs(10),
            heartbeat: Duration::from_secs(5),
            goodbye: Duration::from_secs(30),
            absence: Some(Duration::from_secs(600)),
        }
    }
}

/// The messages of a neighbour that carry no news for the run: so many at once, and so many a
/// second.
const MOST_MESSAGES: f64 = 1000.0;
const MESSAGES_A_SECOND: f64 = 100.0;

/// Limits the messages of a connection.
#[derive(Debug)]
pub(crate) struct Budget {
    left: f64,
    last: Instant,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: MOST_MESSAGES, last: Instant::now() }
    }
}

impl Budget {
    /// Takes one message at this time.
    ///
    /// # Errors
    /// If there were too many.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), String> {
        let since = now.saturating_duration_since(self.last).as_secs_f64();
        self.left = (self.left + since * MESSAGES_A_SECOND).min(MOST_MESSAGES) - 1.0;
        self.last = now;
        if self.left < 0.0 {
            return Err(format!(
                "it sent more than {MOST_MESSAGES} messages without content, and more than \
                 {MESSAGES_A_SECOND} a second: a node needs fewer than 10"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_refused_and_a_chatty_neighbour_is_not() {
        let begin = Instant::now();
        let mut budget = Budget { left: MOST_MESSAGES, last: begin };
        for message in 0..10_000 {
            budget.take(begin + Duration::from_millis(20 * message)).expect("50 a second");
        }
        let now = begin + Duration::from_secs(300);
        let taken = (0..).take_while(|_| budget.take(now).is_ok()).count();
        assert_eq!(taken, MOST_MESSAGES as usize);
    }
}
