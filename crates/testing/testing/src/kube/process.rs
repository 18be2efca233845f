//! Processes of a control plane, which end with the test process, and their logs.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::programs::name;

const PIDS: &str = "pids";

/// Waits for the end of its input, which is the end of the test process or the drop of the watchdog. Then kills the
/// processes that still run in the directory, and removes the directory. A pid counts only while the process works in
/// that directory.
const SCRIPT: &str = r#"
    cat > /dev/null
    for pid in $(cat "$1/pids" 2> /dev/null); do
        if [ "$(readlink "/proc/$pid/cwd")" = "$1" ]; then kill -9 "$pid"; fi
    done
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        rm -rf "$1" 2> /dev/null && break
        sleep 0.1
    done
"#;

/// Cleans up processes and files, even if the test panics or is killed.
pub(super) struct Watchdog {
    child: Child,
    input: Option<ChildStdin>,
}

impl Watchdog {
    pub fn of(directory: &Path) -> Watchdog {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "watchdog"]).arg(directory);
        // A separate process group: a terminal interrupt must not reach it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a shell");
        let input = child.stdin.take();
        Watchdog { child, input }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

pub(super) struct Process(Mutex<Child>);

impl Process {
    /// Starts a program in the directory with the log `<name>.log`. The watchdog must know the directory.
    pub fn start(program: &Path, arguments: &[String], directory: &Path, _watched: &Watchdog) -> Process {
        let log = appended(&directory.join(format!("{}.log", name(program))));
        let mut command = Command::new(program);
        command.args(arguments).current_dir(directory).process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        let child = command.spawn().unwrap_or_else(|why| panic!("{}: {why}", program.display()));
        let mut pids = appended(&directory.join(PIDS));
        std::io::Write::write_all(&mut pids, format!("{}\n", child.id()).as_bytes())
            .expect("a line of the list of processes");
        Process(Mutex::new(child))
    }

    pub fn has_ended(&self) -> bool {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn appended(path: &Path) -> File {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

pub(super) fn log_tails(directory: &Path, lines: usize) -> String {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut logs: Vec<PathBuf> = entries.filter(|path| is_program_log(path)).collect();
    logs.sort();
    logs.iter().map(|path| tail(path, lines)).collect()
}

fn is_program_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log") && !path.ends_with(super::AUDIT_LOG)
}

fn tail(path: &Path, lines: usize) -> String {
    let content = fs::read(path).unwrap_or_default();
    let content = String::from_utf8_lossy(&content);
    let all: Vec<&str> = content.lines().collect();
    let shown = &all[all.len().saturating_sub(lines)..];
    format!("--- {}: last {} of {} lines\n{}\n", name(path), shown.len(), all.len(), shown.join("\n"))
}
