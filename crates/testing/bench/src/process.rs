//! Kernel data about a process and the machine: CPU time, memory, descriptors, cores.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The kernel reports times to user space in ticks of 10 ms (USER_HZ).
const TICK_MS: u64 = 10;

/// Returns the CPU time of a process: user and system, of all threads and reaped children.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_cpu_time(&stat).ok_or_else(|| unexpected("stat", pid))
}

/// Memory of a process in bytes: resident now, and its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub resident: u64,
    pub peak: u64,
}

pub fn memory(pid: u32) -> io::Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    parse_memory(&status).ok_or_else(|| unexpected("status", pid))
}

/// Counts the open files and connections of a process.
pub fn open_descriptors(pid: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Raises the descriptor limit of this process and its servers as far as allowed: each connection takes one on each
/// side. Returns the new limit.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
}

fn unexpected(file: &str, pid: u32) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/{file} does not read as expected"))
}

fn parse_cpu_time(stat: &str) -> Option<Duration> {
    // The command name is in parentheses and may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>()).sum::<Result<u64, _>>().ok()?;
    Some(Duration::from_millis(ticks * TICK_MS))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some(Memory { resident: kib("VmRSS:")? * 1024, peak: kib("VmHWM:")? * 1024 })
}

/// Describes this machine in one line: cores, processor, kernel.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory_gib = meminfo_total_kib(&meminfo).unwrap_or(0) / (1024 * 1024);
    format!("{cores} cores, {}, {memory_gib} GiB, Linux {}", cpu_model(&cpuinfo), kernel.trim())
}

fn cpu_model(cpuinfo: &str) -> &str {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown processor", |(_, model)| model.trim())
}

fn meminfo_total_kib(meminfo: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_adds_user_system_and_waited_for_children() {
        let stat = "4242 (odd) name (x) S 1 4242 4242 0 -1 4194560 900 7 1 0 150 50 20 3 20 0 9 0 1234 5678 90";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_millis((150 + 50 + 20 + 3) * 10)));
        assert_eq!(parse_cpu_time("4242 (cut) S 1 2 3"), None);
        assert_eq!(parse_cpu_time(""), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmPeak:\t 9000 kB\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\nThreads:\t3\n";
        assert_eq!(parse_memory(status), Some(Memory { resident: 1024 * 1024, peak: 2048 * 1024 }));
        assert_eq!(parse_memory("Name:\tkthread\n"), None);
    }

    #[test]
    fn missing_facts_of_the_machine_are_no_error() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n"), "Some CPU @ 3 GHz");
        assert_eq!(cpu_model("processor\t: 0\n"), "unknown processor");
        assert_eq!(meminfo_total_kib("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2048));
        assert_eq!(meminfo_total_kib("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        assert!(memory(pid).unwrap().resident > 0);
        assert!(cpu_time(pid).is_ok());
        assert!(open_descriptors(pid).unwrap() > 2);
    }
}
