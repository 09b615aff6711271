//! Virtual time: events in the order of their times, and of their posting where times are equal.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use crate::units::Time;

/// What is going to happen, and the time until which it has.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    now: Time,
    events: BinaryHeap<Reverse<Posted<E>>>,
    posted: u64,
}

impl<E> Queue<E> {
    /// An empty queue that begins at this time.
    pub(crate) fn new(now: Time) -> Queue<E> {
        Queue { now, events: BinaryHeap::new(), posted: 0 }
    }

    /// The time of the event that was taken last.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn post(&mut self, time: Time, event: E) {
        self.events.push(Reverse(Posted { time, number: self.posted, event }));
        self.posted += 1;
    }

    /// Takes the next event; its time is now.
    pub(crate) fn next(&mut self) -> Option<E> {
        let Reverse(posted) = self.events.pop()?;
        self.now = posted.time;
        Some(posted.event)
    }

    /// All events, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.events.iter().map(|Reverse(posted)| &posted.event)
    }
}

#[derive(Debug)]
struct Posted<E> {
    time: Time,
    number: u64,
    event: E,
}

impl<E> PartialEq for Posted<E> {
    fn eq(&self, other: &Posted<E>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Posted<E> {}

impl<E> PartialOrd for Posted<E> {
    fn partial_cmp(&self, other: &Posted<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Posted<E> {
    fn cmp(&self, other: &Posted<E>) -> Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_as_posted() {
        let mut queue = Queue::new(Time(5));
        for (time, event) in [(9, 'c'), (7, 'a'), (9, 'd'), (7, 'b')] {
            queue.post(Time(time), event);
        }
        assert_eq!((queue.now(), queue.iter().count()), (Time(5), 4));
        let all: Vec<(char, Time)> =
            std::iter::from_fn(|| queue.next().map(|event| (event, queue.now()))).collect();
        assert_eq!(all, [('a', Time(7)), ('b', Time(7)), ('c', Time(9)), ('d', Time(9))]);
    }
}
