//! Who is at the other end of a socket: apps of the same user can connect to the sockets of the process that started them, as
//! long as the kernel has no rule for that.

use std::fs;

/// Whether a process is restricted by more system call filters than this one: an app, or something that an app started. A
/// process that is gone counts as one; on kernels that do not tell (before 5.9) none does.
pub fn is_app(pid: u32) -> bool {
    let filters = |pid: &str| -> Option<Option<u32>> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        Some(line.and_then(|count| count.trim().parse().ok()))
    };
    match (filters(&pid.to_string()), filters("self")) {
        (None, _) => true,
        (Some(Some(theirs)), Some(Some(ours))) => theirs > ours,
        _ => false,
    }
}
