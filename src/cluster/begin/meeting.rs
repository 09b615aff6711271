//! Two programs that meet on a new connection: whether their session continues.

/// What a link does with its session on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// It continues with the same program.
    Continues,
    Begins,
    /// It starts from the beginning: the neighbour's program was started again before the run
    /// began.
    BeginsAnew,
    /// The neighbour's program was started again, and has lost its frames.
    Lost,
}

/// Compares the incarnation of the neighbour's program with the one that is known (0: none).
/// `started` says whether the run has started.
pub(crate) fn meet(known: u64, incarnation: u64, started: bool) -> Meeting {
    match known {
        _ if known == incarnation => Meeting::Continues,
        0 => Meeting::Begins,
        _ if started => Meeting::Lost,
        _ => Meeting::BeginsAnew,
    }
}
