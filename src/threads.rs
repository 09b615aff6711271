//! Threads that the system may refuse: the error names the limits of this process.

use std::{
    env, fs, io,
    sync::mpsc,
    thread::{self, Builder, JoinHandle, Scope, ScopedJoinHandle},
};

/// Starts a thread.
///
/// # Errors
/// If the system refuses it; the error names the limits.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(work).map_err(|error| refused(&error))
}

/// Starts a thread that ends in this scope.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.into()).spawn_scoped(scope, work).map_err(|error| refused(&error))
}

/// Checks that the system lets this process start so many more threads, for libraries that panic
/// if it does not.
///
/// # Errors
/// As [`spawn`].
pub fn check(count: usize) -> io::Result<()> {
    thread::scope(|scope| {
        let mut waiting = Vec::with_capacity(count);
        for _ in 0..count {
            let (end, ended) = mpsc::channel::<()>();
            // Ends when `end` is dropped.
            spawn_scoped(scope, "gradvine-check", move || ended.recv().is_ok())?;
            waiting.push(end);
        }
        Ok(())
    })
}

/// The address space that so many threads reserve: their stacks, and heaps of their own as the GNU
/// C library makes them (`mallopt(3)`: `M_ARENA_MAX`). Little of it becomes memory.
pub(crate) fn address_space(count: usize, processors: usize) -> u64 {
    const STACK: usize = 2 << 20;
    let text = env::var("MALLOC_ARENA_MAX").ok();
    let most = text.and_then(|text| text.parse().ok()).filter(|most| *most > 0);
    (count * STACK + heaps(count, processors, most)) as u64
}

fn heaps(count: usize, processors: usize, most: Option<usize>) -> usize {
    const HEAP: usize = 64 << 20;
    let has_heaps = cfg!(all(target_env = "gnu", target_pointer_width = "64"));
    // The first of them is that of the process.
    let most = most.map_or(8 * processors, |most| most - 1);
    if has_heaps { count.min(most) * HEAP } else { 0 }
}

/// The system's error for a thread that it refuses, with the limits that may be the cause.
pub fn refused(error: &io::Error) -> io::Error {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let limits = limits(&read("/proc/self/limits"), &pids_limit());
    let which = if limits.is_empty() { String::new() } else { format!("; {}", limits.join("; ")) };
    let text = format!("the system refuses a thread: {error}{which}");
    io::Error::new(error.kind(), text)
}

/// The limits that this process has, and how they are raised.
fn limits(of_process: &str, pids: &str) -> Vec<String> {
    let value = |name: &str| {
        let line = of_process.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let mut all = Vec::new();
    if let Some(bytes) = value("Max address space") {
        all.push(format!("the address space is limited to {} KiB (ulimit -v)", bytes / 1024));
    }
    if let Some(count) = value("Max processes") {
        all.push(format!("this user may have {count} threads (ulimit -u)"));
    }
    if let Ok(count) = pids.trim().parse::<u64>() {
        all.push(format!("the control group may have {count} (TasksMax= of systemd)"));
    }
    all
}

/// The limit of this process's control group (version 2); empty if there is none.
fn pids_limit() -> String {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    fs::read_to_string(format!("/sys/fs/cgroup/{group}/pids.max")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_limits() {
        let of_process = "Limit  Soft Limit  Hard Limit  Units\n\
                          Max processes  94000  94000  processes\n\
                          Max address space  409600000  unlimited  bytes\n";
        let all = limits(of_process, "512\n");
        assert_eq!(all[0], "the address space is limited to 400000 KiB (ulimit -v)");
        assert!(all[1].contains("94000 threads") && all[2].contains("512 (TasksMax="), "{all:?}");
        assert!(limits("Max processes  unlimited  unlimited", "max\n").is_empty());
        let error = refused(&io::ErrorKind::WouldBlock.into());
        assert!(error.to_string().starts_with("the system refuses a thread: "), "{error}");
    }

    #[test]
    #[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
    fn heaps_are_as_many_as_threads_or_as_the_library_makes() {
        // Measured with 2 processors: 9, 13 and 21 threads of runs reserved 667, 1079 and 1152 MB.
        let mebibytes = |count, most| heaps(count, 2, most) >> 20;
        assert_eq!([9, 13, 21].map(|count| mebibytes(count, None)), [576, 832, 1024]);
        assert_eq!((mebibytes(9, Some(2)), mebibytes(9, Some(1))), (64, 0));
    }

    #[test]
    fn threads_that_are_granted_can_be_started() {
        check(3).unwrap();
        assert_eq!(spawn("test", || 5).unwrap().join().unwrap(), 5);
        let sum = thread::scope(|scope| spawn_scoped(scope, "test", || 6).unwrap().join().unwrap());
        assert_eq!(sum, 6);
    }
}
