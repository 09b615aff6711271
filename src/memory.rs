//! The memory that the process can still allocate, as the system reports it, so that a run that
//! does not fit is refused before it starts.
//!
//! Linux: the least of available memory plus free swap, of what the limits of the process's control
//! groups (version 2) leave, and of what its limit of address space leaves. On other systems the
//! amount is unknown and nothing is refused.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{config::ConfigError, units::Bytes};

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// Whether the checks are off.
static UNLIMITED: AtomicBool = AtomicBool::new(false);

/// Turns the checks off: the user may know better than the system reports.
pub fn trust() {
    UNLIMITED.store(true, Ordering::Relaxed);
}

/// Whether the checks of memory and of disk space are off.
pub fn is_unlimited() -> bool {
    UNLIMITED.load(Ordering::Relaxed)
}

/// Bytes that this process can still allocate; `None` if the system does not report them, or after
/// [`trust`].
pub(crate) fn available() -> Option<u64> {
    if is_unlimited() {
        return None;
    }
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| of_machine(&text));
    let swap = machine.map_or(0, |(_, swap)| swap);
    let groups = read("/proc/self/cgroup").and_then(|text| {
        let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?.to_string();
        of_groups(Path::new(GROUPS), &own, swap)
    });
    [machine.map(|(memory, swap)| memory.saturating_add(swap)), groups, address_space()]
        .into_iter()
        .flatten()
        .min()
}

/// Checks that `need` bytes can be allocated.
///
/// # Errors
/// If they cannot. The message says `what` needs them, and gives the `remedy`.
pub fn require(
    need: u64,
    place: &str,
    value: &str,
    what: &str,
    remedy: &str,
) -> Result<(), ConfigError> {
    compare(need, available(), place, value, what, remedy)
}

/// Checks that the limit of address space leaves room for `need` bytes more, which `what` reserves
/// but need not use. `remedy` may name another one than raising the limit.
///
/// # Errors
/// If it does not; the message names the limit.
pub fn require_address_space(need: u64, what: &str, remedy: &str) -> Result<(), ConfigError> {
    let left = address_space().filter(|_| !is_unlimited());
    match left {
        Some(left) if left < need => {
            let (need, left) = (Bytes(need), Bytes(left));
            let problem = format!(
                "{what} reserves up to {need}, and the limit of this process (ulimit -v) leaves \
                 {left}: raise it{remedy}; --no-space-check starts nevertheless"
            );
            Err(ConfigError::at("address space", problem))
        }
        _ => Ok(()),
    }
}

/// Bytes that the limit of address space leaves, if there is one.
fn address_space() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    of_address_space(&limits, &fs::read_to_string("/proc/self/status").ok()?)
}

fn compare(
    need: u64,
    available: Option<u64>,
    place: &str,
    value: &str,
    what: &str,
    remedy: &str,
) -> Result<(), ConfigError> {
    match available {
        Some(available) if need > available => {
            let (need, available) = (Bytes(need), Bytes(available));
            let problem = format!(
                "{what} needs about {need} of memory, and {available} are available: {remedy}"
            );
            Err(ConfigError::new(place, value, problem))
        }
        _ => Ok(()),
    }
}

/// Available memory and free swap according to `/proc/meminfo`.
fn of_machine(text: &str) -> Option<(u64, u64)> {
    let of = |key: &str| kibibytes(text, key);
    Some((of("MemAvailable:")?, of("SwapFree:").unwrap_or(0)))
}

/// The value, in bytes, of a line such as `VmSize: 1234 kB`.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes that the control group `own` below `root` and its parents leave; `None` if none has a
/// limit.
fn of_groups(root: &Path, own: &str, swap: u64) -> Option<u64> {
    let folder = root.join(own);
    let around = folder.ancestors().take_while(|folder| folder.starts_with(root));
    around.filter_map(|folder| of_group(folder, swap)).min()
}

fn of_group(folder: &Path, swap: u64) -> Option<u64> {
    let number =
        |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let left = number("memory.max")?.saturating_sub(number("memory.current")?);
    // Page cache counts as used, but the kernel frees it before an allocation fails.
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let of = |key: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    let files = ["inactive_file", "active_file", "slab_reclaimable"].map(of);
    let swapped = number("memory.swap.current").unwrap_or(0);
    let swap =
        number("memory.swap.max").map_or(swap, |most| most.saturating_sub(swapped).min(swap));
    Some(files.into_iter().chain([swap]).fold(left, u64::saturating_add))
}

/// Bytes that the limit of address space (`ulimit -v`) leaves; `None` if there is no limit.
fn of_address_space(limits: &str, status: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(kibibytes(status, "VmSize:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_is_available() {
        let text = "MemTotal:       24576000 kB\nMemFree:  1 kB\nMemAvailable:   2000 \
                    kB\nSwapFree:   48 kB\n";
        assert_eq!(of_machine(text), Some((2_048_000, 49_152)));
        assert_eq!(of_machine("MemAvailable: 3 kB\n"), Some((3072, 0)));
        for bad in [
            "",
            "MemFree: 1 kB",
            "MemAvailable:",
            "MemAvailable: x kB",
            "MemAvailable: 18446744073709551615 kB",
        ] {
            assert_eq!(of_machine(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_tightest_group_around_a_process_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let left = |swap| of_groups(folder.path(), "a/b", swap);
        assert_eq!(left(0), None);
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "5000\n");
        assert_eq!(left(0), None);
        write("a/memory.max", "9000\n");
        write("a/memory.current", "8000\n");
        assert_eq!((left(0), left(70)), (Some(1000), Some(1070)));
        write("a/memory.stat", "anon 7\nfile 600\nactive_file 500\ninactive_file 100\n");
        write("a/memory.swap.max", "50\n");
        write("a/memory.swap.current", "20\n");
        assert_eq!((left(0), left(70)), (Some(1600), Some(1630)));
        write("a/b/memory.max", "5600\n");
        assert_eq!(left(0), Some(600));
    }

    #[test]
    fn a_limit_of_address_space_counts_what_is_mapped() {
        let line = |limit: &str| {
            format!(
                "Max data size  1  2 bytes\nMax address space         {limit}  unlimited  bytes\n"
            )
        };
        assert_eq!(of_address_space(&line("5000"), "VmSize:\t   2 kB\n"), Some(2952));
        assert_eq!(of_address_space(&line("unlimited"), "VmSize:\t   2 kB\n"), None);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_figures() {
        let check = |need, available| {
            compare(need, available, "model", "9 parameters", "one copy", "take fewer")
        };
        assert!(check(10, None).is_ok() && check(10, Some(10)).is_ok());
        assert_eq!(
            check(2_000_000, Some(1_500)).unwrap_err().to_string(),
            "model = 9 parameters: one copy needs about 2.00 MB of memory, and 1.5 kB are \
             available: take fewer"
        );
    }
}
