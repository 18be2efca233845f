//! The default limit of concurrent ServerApps.

use std::thread::available_parallelism;

/// ServerApps mostly wait for nodes, but load their imports at the same time when runs are submitted together.
const SERVER_APPS_PER_CORE: usize = 4;
/// A Python ServerApp with a deep learning framework uses about this much memory.
const SERVER_APP_BYTES: u64 = 512 << 20;
/// Even the smallest machine runs a short training beside a long one.
const MIN_SERVER_APPS: usize = 2;

/// Returns the limit for this machine.
pub fn default_server_apps() -> usize {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    server_apps(available_parallelism().map_or(1, usize::from), memory_bytes(&meminfo))
}

fn server_apps(cores: usize, memory_bytes: Option<u64>) -> usize {
    let by_memory =
        memory_bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes / SERVER_APP_BYTES).unwrap_or(usize::MAX));
    (cores * SERVER_APPS_PER_CORE).min(by_memory).max(MIN_SERVER_APPS)
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_and_memory_limit_the_server_apps() {
        assert_eq!(memory_bytes("MemTotal:  2097152 kB\nMemFree: 1 kB\n"), Some(2 << 30));
        assert_eq!(
            [(2, Some(64 << 30)), (16, Some(8 << 30)), (1, Some(1)), (2, None)]
                .map(|(cores, memory)| { server_apps(cores, memory) }),
            [8, 16, 2, 8]
        );
    }
}
