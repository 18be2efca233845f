//! Identifies the peer of a socket. On kernels without a rule for unix sockets, apps of the same user can connect to
//! the sockets of the process that started them.

use std::fs;

/// Whether a process has more system call filters than this one: an app or a child of an app. Returns true for a
/// process that no longer exists, and false for any process on kernels before 5.9, which do not report filters.
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
