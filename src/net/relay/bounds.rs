//! How much a relay says about one node: nodes that ask again and again fill no log.

use std::time::Instant;

use litemap::LiteMap;

use super::RelayEvent;

/// Events that a node may cause at once, and in a minute in the long run.
const AT_ONCE: f64 = 20.0;
const A_MINUTE: f64 = 10.0;

/// What each node may still cause.
#[derive(Debug, Default)]
pub(super) struct Bounds(LiteMap<String, Bound>);

#[derive(Debug)]
struct Bound {
    left: f64,
    last: Instant,
    omitted: u64,
}

impl Bounds {
    /// Shows an event, with the number of those that were left out before, or leaves it out.
    pub(super) fn pass(
        &mut self,
        event: RelayEvent,
        now: Instant,
        show: &mut dyn FnMut(RelayEvent),
    ) {
        let node = event.node().to_string();
        let bound = self.0.entry(node.clone());
        let bound = bound.or_insert(Bound { left: AT_ONCE, last: now, omitted: 0 });
        let minutes = now.saturating_duration_since(bound.last).as_secs_f64() / 60.0;
        bound.left = (bound.left + minutes * A_MINUTE).min(AT_ONCE);
        bound.last = now;
        if bound.left < 1.0 {
            bound.omitted += 1;
            return;
        }
        bound.left -= 1.0;
        let count = std::mem::take(&mut bound.omitted);
        if count > 0 {
            show(RelayEvent::Omitted { node, count });
        }
        show(event);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_node_that_asks_again_and_again_fills_no_log() {
        let (mut bounds, start, mut shown) = (Bounds::default(), Instant::now(), Vec::new());
        let refused = |from: &str| RelayEvent::Refused {
            from: from.into(),
            to: "rome".into(),
            reason: "no place".into(),
        };
        // 1,000 a second for a minute.
        for count in 0..60_000 {
            let now = start + Duration::from_millis(count);
            bounds.pass(refused("oslo"), now, &mut |event| shown.push(event));
        }
        assert!((29..=40).contains(&shown.len()), "{} lines", shown.len());
        bounds.pass(refused("bern"), start, &mut |event| shown.push(event));
        assert_eq!(shown.last(), Some(&refused("bern")), "another node is heard");
        let later = start + Duration::from_secs(120);
        bounds.pass(refused("oslo"), later, &mut |event| shown.push(event));
        let of = |event: &RelayEvent| match event {
            RelayEvent::Omitted { count, .. } => *count,
            RelayEvent::Refused { from, .. } if from == "oslo" => 1,
            _ => 0,
        };
        assert_eq!(shown.iter().map(of).sum::<u64>(), 60_001, "every line is shown or counted");
    }
}
