//! A watchdog for memory limits, used if the kernel enforces none. It polls the app ten times a second, which is cheap, and the
//! app with its child processes once a second. An app that grows faster can still harm the machine, so cgroups are preferred.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Scanning all processes of the machine is expensive, so it is done once per this number of polls.
const POLLS_PER_SCAN: u32 = 10;

/// Polls until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    killed: Arc<AtomicBool>,
    _stop: mpsc::Sender<()>,
}

impl Watchdog {
    /// Watches the leader of a process group.
    pub fn start(pid: u32, limit_bytes: u64) -> io::Result<Watchdog> {
        let leader = Process::read(pid).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the app has ended"))?;
        let killed = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = mpsc::channel();
        let flag = Arc::clone(&killed);
        thread::Builder::new().name("app memory".into()).spawn(move || {
            let mut glances = 0;
            while stopped.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                glances += 1;
                let is_large = Process::read(pid).is_some_and(|app| app.resident_bytes > limit_bytes);
                if !is_large && glances % POLLS_PER_SCAN != 0 {
                    continue;
                }
                let processes = all();
                // Another process may have the pid by now.
                if !processes.iter().any(|process| process.pid == pid && process.started == leader.started) {
                    return;
                }
                let family = family(&processes, pid);
                if exceeds(&family, limit_bytes) {
                    flag.store(true, Ordering::Release);
                    end(&family, pid);
                    return;
                }
            }
        })?;
        Ok(Watchdog { killed, _stop: stop })
    }

    pub fn has_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    group: u32,
    /// Ticks since the boot; together with the pid this identifies the process.
    started: u64,
    resident_bytes: u64,
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        Process::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses the line; the second field is a name in brackets, which may contain anything.
    fn parse(stat: &str) -> Option<Process> {
        let (pid, rest) = stat.split_once(" (")?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Field numbers in proc(5) start at 3 here.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Process {
            pid: pid.parse().ok()?,
            parent: field(4)? as u32,
            group: field(5)? as u32,
            started: field(22)?,
            resident_bytes: field(24)? * rustix::param::page_size() as u64,
        })
    }

    /// The proportional set size: shared pages are divided among processes. Slow for large processes.
    fn fair_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).ok()?;
        let kibibytes = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        Some(kibibytes.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
    }
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// The process group of a process, and all descendants of its members.
fn family(processes: &[Process], leader: u32) -> Vec<&Process> {
    let (mut family, mut others): (Vec<&Process>, Vec<&Process>) =
        processes.iter().partition(|process| process.pid == leader || process.group == leader);
    let mut looked_at = 0;
    while let Some(parent) = family.get(looked_at).map(|process| process.pid) {
        let (children, rest) = others.into_iter().partition::<Vec<_>, _>(|process| process.parent == parent);
        family.extend(children);
        others = rest;
        looked_at += 1;
    }
    family
}

/// Forked workers share most of their memory with the app, which must be counted once. Reading the proportional size is slow, so
/// it happens only if the resident sizes exceed the limit.
fn exceeds(family: &[&Process], limit_bytes: u64) -> bool {
    let at_most: u64 = family.iter().map(|process| process.resident_bytes).sum();
    at_most > limit_bytes
        && family.iter().map(|process| process.fair_bytes().unwrap_or(process.resident_bytes)).sum::<u64>()
            > limit_bytes
}

fn end(family: &[&Process], leader: u32) {
    let pid = |number: u32| Pid::from_raw(number as i32).filter(|_| number > 1);
    if family.iter().any(|process| process.pid == leader && process.group == leader) {
        let _gone = pid(leader).map(|group| kill_process_group(group, Signal::KILL));
    }
    for process in family {
        let _gone = pid(process.pid).map(|pid| kill_process(pid, Signal::KILL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc() {
        let line = "314 (a (b) c) S 1 300 300 0 -1 4194560 93 0 0 0 0 0 0 0 20 0 1 0 12345 2891776 261 18446744073709551615 1 1";
        let resident_bytes = 261 * rustix::param::page_size() as u64;
        let want = Process { pid: 314, parent: 1, group: 300, started: 12345, resident_bytes };
        assert_eq!(Process::parse(line), Some(want));
        for line in ["", "314", "314 (x", "314 (x) S 1"] {
            assert_eq!(Process::parse(line), None);
        }
        let own = Process::read(std::process::id()).unwrap();
        assert!(own.resident_bytes > 0 && own.fair_bytes().unwrap() > 0);
        assert!(all().iter().any(|process| process.pid == own.pid && process.started == own.started));
    }

    #[test]
    fn families() {
        let process = |pid, parent, group| Process { pid, parent, group, started: 0, resident_bytes: 10 };
        let processes = [
            process(1, 0, 1),
            process(10, 1, 10),  // The app,
            process(11, 10, 10), // a child,
            process(12, 1, 10),  // one whose parent is gone,
            process(13, 11, 13), // a grandchild that left the group,
            process(14, 13, 13), // and its child.
            process(20, 1, 20),
            process(21, 20, 20),
        ];
        let family = family(&processes, 10);
        let mut pids: Vec<u32> = family.iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [10, 11, 12, 13, 14]);
        // None of these processes exists, so their proportional size cannot be read.
        assert!(!exceeds(&family, 50));
    }
}
