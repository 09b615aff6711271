//! Programs that have the key of one node: a folder that was copied together with its key, say.
//!
//! A program that was started again never says hello after its successor has. One that does runs
//! beside it: from then on both are known to this process as rivals. The one that was started first
//! stays, the other is refused until the first has been gone for a while, and both are told. The
//! first one signs that it runs, for the number of the second: without that the second waits, as a
//! neighbour could say falsely that there are two.
//!
//! A program whose connection takes the place of a link that was up may be such a second one: it is
//! asked to come again, so that the first one can.

use std::{
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use libp2p::PeerId;
use litemap::LiteMap;

use super::session::random;

/// How long a program must have been gone before its rival takes its place.
const GONE: Duration = Duration::from_secs(60);

/// How long a program whose link was up until another connected has to return.
const RETURN_GRACE: Duration = Duration::from_secs(3);

/// The programs of one key that are remembered.
const MOST: usize = 8;

/// A running program of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Drawn at random when the program starts.
    pub id: u64,
    /// When it was started, in milliseconds after this process first asked.
    pub started: i64,
    /// From where it was seen last.
    pub address: String,
}

/// The number of this process, and since when it acts for a key.
static OWN: LazyLock<(u64, Instant)> = LazyLock::new(|| (random(), Instant::now()));

/// This process begins to act for a key. What counts is when it did so first: a site may wait for
/// others for hours before its node says hello.
pub(crate) fn begin() {
    LazyLock::force(&OWN);
}

/// Milliseconds that this process has run.
fn age() -> u64 {
    OWN.1.elapsed().as_millis() as u64
}

/// The number of this process, and for how many milliseconds it has run.
pub(crate) fn own() -> (u64, u64) {
    (OWN.0, age())
}

impl Program {
    /// One that has run for so many milliseconds.
    pub(crate) fn new(id: u64, ran: u64, address: String) -> Program {
        let started = (age() as i64).saturating_sub(i64::try_from(ran).unwrap_or(i64::MAX));
        Program { id, started, address }
    }
}

struct Seen {
    program: Program,
    /// Whether it is linked now, and when that was last so.
    linked: bool,
    last: Instant,
    /// When a connection of another one took the place of its link.
    replaced: Option<Instant>,
    /// Whether another one runs beside it.
    rival: bool,
    /// What it has signed about another one, by its number.
    proof: Option<(u64, Vec<u8>)>,
}

impl Seen {
    /// What it has signed about that program; empty if it has signed nothing.
    fn proof_for(&self, id: u64) -> Vec<u8> {
        let proof = self.proof.as_ref().filter(|(of, _)| *of == id);
        proof.map_or_else(Vec::new, |(_, proof)| proof.clone())
    }
}

/// What a program is told that says hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    Welcome,
    /// It may come again in a moment.
    Later,
    /// This one stays in its place, and has signed this about it, if anything.
    Refused(Program, Vec<u8>),
}

/// The programs of each neighbour of each node of this process, in the order of their last hellos.
static KNOWN: Mutex<LiteMap<(PeerId, PeerId), Vec<Seen>>> = Mutex::new(LiteMap::new());

fn known() -> MutexGuard<'static, LiteMap<(PeerId, PeerId), Vec<Seen>>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The programs of a neighbour that a node of this process has met, over all its attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs {
    own: PeerId,
    peer: PeerId,
}

impl Programs {
    /// Those of this neighbour, as this node knows them.
    pub(crate) fn of(own: PeerId, peer: PeerId) -> Programs {
        Programs { own, peer }
    }

    /// A program has said hello.
    pub(crate) fn meet(&self, mut program: Program, now: Instant) -> Met {
        let mut known = known();
        let all = known.entry((self.own, self.peer)).or_default();
        let place = all.iter().position(|seen| seen.program.id == program.id);
        let (mut rival, mut proof) = (false, None);
        if let Some(place) = place {
            let before = all.remove(place);
            (rival, proof) = (before.rival || place < all.len(), before.proof);
            all[place..].iter_mut().for_each(|later| later.rival = true);
            if program.address.is_empty() {
                program.address = before.program.address;
            }
        } else if all.len() == MOST {
            all.remove(0);
        }
        let age = (program.started, program.id);
        let stays = |other: &&Seen| {
            let here = other.linked || now.saturating_duration_since(other.last) < GONE;
            let older = (other.program.started, other.program.id) < age;
            rival && other.rival && here && older
        };
        let stays = all.iter().rfind(stays);
        let stays = stays.map(|first| (first.program.clone(), first.proof_for(program.id)));
        let may_return = |other: &Seen| {
            let since = other.replaced.map(|when| now.saturating_duration_since(when));
            !rival && since.is_some_and(|since| since < RETURN_GRACE)
        };
        let later = all.iter().any(may_return);
        all.push(Seen { program, linked: false, last: now, replaced: None, rival, proof });
        match stays {
            Some((first, proof)) => Met::Refused(first, proof),
            None if later => Met::Later,
            None => Met::Welcome,
        }
    }

    /// The link with a program has ended because a connection took its place.
    pub(crate) fn set_replaced(&self, id: u64, now: Instant) {
        let mut known = known();
        let all = known.entry((self.own, self.peer)).or_default();
        if let Some(seen) = all.iter_mut().find(|seen| seen.program.id == id) {
            seen.replaced = Some(now);
        }
    }

    /// The link with a program is up, or no longer.
    pub(crate) fn set_linked(&self, id: u64, linked: bool, now: Instant) {
        let mut known = known();
        let all = known.entry((self.own, self.peer)).or_default();
        if let Some(seen) = all.iter_mut().find(|seen| seen.program.id == id) {
            (seen.linked, seen.last) = (linked, now);
        }
    }

    /// A program has signed that it runs, for another one.
    pub(crate) fn set_proof(&self, id: u64, other: u64, proof: Vec<u8>) {
        let mut known = known();
        let all = known.entry((self.own, self.peer)).or_default();
        if let Some(seen) = all.iter_mut().find(|seen| seen.program.id == id) {
            seen.proof = Some((other, proof));
        }
    }

    /// The rival of a program, if it has one, and what the program has signed about it.
    pub(crate) fn rival_of(&self, id: u64) -> Option<(Program, Vec<u8>)> {
        let known = known();
        let all = known.get(&(self.own, self.peer))?;
        let one = all.iter().find(|seen| seen.program.id == id && seen.rival)?;
        let other = all.iter().rfind(|seen| seen.program.id != id && seen.rival)?;
        Some((other.program.clone(), one.proof_for(other.program.id)))
    }

    /// Whether several programs run with this key.
    pub(crate) fn are_rivals(&self) -> bool {
        let known = known();
        known.get(&(self.own, self.peer)).is_some_and(|all| all.iter().any(|seen| seen.rival))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(id: u64, started: i64) -> Program {
        Program { id, started, address: format!("address {id}") }
    }

    #[test]
    fn programs_that_follow_each_other_are_no_rivals_and_the_first_of_two_stays() {
        let programs = Programs::of(PeerId::random(), PeerId::random());
        let now = Instant::now();
        let at = |after: u64| now + Duration::from_secs(after);
        let meet = |id, started, after| match programs.meet(program(id, started), at(after)) {
            Met::Refused(first, _) => first.id,
            Met::Welcome => 0,
            Met::Later => panic!("no link was up"),
        };
        // Started again twice; each says hello over several connections.
        for (id, after) in [(1, 0), (1, 1), (2, 2), (2, 3), (3, 4)] {
            assert_eq!(meet(id, 100 * id as i64, after), 0);
        }
        assert!(!programs.are_rivals() && programs.rival_of(3).is_none());
        // A copy of 3: whichever of them returns, 3 stays, as it was started first.
        assert_eq!(meet(4, 400, 5), 0, "it may have been started again");
        assert_eq!(meet(3, 300, 6), 0);
        assert!(programs.are_rivals());
        assert_eq!(programs.rival_of(3), Some((program(4, 400), Vec::new())));
        assert_eq!(meet(4, 400, 7), 3);
        assert_eq!(meet(4, 400, 65), 3);
        // Linked for long, or gone for long.
        programs.set_linked(3, true, now);
        assert_eq!(meet(4, 400, 600), 3);
        programs.set_linked(3, false, at(601));
        assert_eq!((meet(4, 400, 602), meet(4, 400, 700)), (3, 0));
        // The second of two came first to this node.
        let programs = Programs::of(PeerId::random(), PeerId::random());
        assert_eq!(programs.meet(program(8, 800), now), Met::Welcome);
        assert_eq!(programs.meet(program(7, 700), now), Met::Welcome);
        let refused = |proof: &[u8]| Met::Refused(program(7, 700), proof.to_vec());
        assert_eq!(programs.meet(program(8, 800), now), refused(&[]));
        // What it signs is about one program.
        programs.set_proof(7, 9, vec![1]);
        assert_eq!(programs.meet(program(8, 800), now), refused(&[]));
        programs.set_proof(7, 8, vec![2]);
        assert_eq!(programs.meet(program(8, 800), now), refused(&[2]));
        assert_eq!(programs.meet(program(7, 700), now), Met::Welcome);
        assert_eq!(programs.meet(program(8, 800), now), refused(&[2]));
        assert_eq!(programs.rival_of(7), Some((program(8, 800), vec![2])));
    }

    #[test]
    fn a_program_that_takes_the_place_of_a_link_waits_for_the_first_one() {
        let now = Instant::now();
        let at = |after: u64| now + Duration::from_secs(after);
        for comes_back in [true, false] {
            let programs = Programs::of(PeerId::random(), PeerId::random());
            assert_eq!(programs.meet(program(1, 100), now), Met::Welcome);
            programs.set_linked(1, true, now);
            programs.set_linked(1, false, at(9));
            programs.set_replaced(1, at(9));
            assert_eq!(programs.meet(program(2, 200), at(9)), Met::Later);
            if comes_back {
                assert_eq!(programs.meet(program(1, 100), at(10)), Met::Welcome);
                let refused = Met::Refused(program(1, 100), Vec::new());
                assert_eq!(programs.meet(program(2, 200), at(11)), refused);
            } else {
                assert_eq!(programs.meet(program(2, 200), at(11)), Met::Later);
                assert_eq!(programs.meet(program(2, 200), at(12)), Met::Welcome);
            }
        }
    }
}
