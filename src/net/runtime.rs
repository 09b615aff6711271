//! The threads on which hosts run.

use std::time::Duration;

use crate::{drive::RunError, memory, threads};

/// How long the tasks of a runtime have to end.
pub(crate) const SHUTDOWN: Duration = Duration::from_secs(1);

/// Address space for the network and for each of its nodes, in bytes, beside that of threads.
const SPACE: u64 = 32 << 20;
const SPACE_OF_NODE: u64 = 4 << 20;

/// A node's own threads: its core, its learner, the writer of checkpoints.
const THREADS_OF_NODE: usize = 3;

/// A runtime for hosts: one thread per processor.
///
/// # Errors
/// If the system cannot start threads.
pub fn runtime() -> Result<tokio::runtime::Runtime, RunError> {
    runtime_for(1)
}

/// The same for so many nodes of this process, whose own threads are possible, too.
pub(crate) fn runtime_for(nodes: usize) -> Result<tokio::runtime::Runtime, RunError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Two more belong to the command, and to what resolves names.
    let count = processors + 3 + THREADS_OF_NODE * nodes;
    let need = SPACE + nodes as u64 * SPACE_OF_NODE + threads::address_space(count, processors);
    let what = format!("a network with {nodes} of its nodes in this process, in {count} threads,");
    let heaps = ", or set MALLOC_ARENA_MAX=2 in the environment";
    memory::require_address_space(need, &what, heaps).map_err(RunError::Setup)?;
    let wrong = |error: std::io::Error| {
        RunError::Host(format!("the network's threads cannot be started: {error}"))
    };
    // Otherwise the runtime, and the timers of libp2p, panic if the system refuses one.
    threads::check(count).map_err(wrong)?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors)
        .enable_all()
        .thread_name("gradvine-net")
        .build()
        .map_err(wrong)
}
