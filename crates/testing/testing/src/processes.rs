//! Processes of a test: found by the directory of the test, killed by pid.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time limit for a killed process to disappear.
const END_LIMIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Returns the processes that work below a directory, or name it in their arguments or environment. Environment
/// variables of the test do not mark ServerApps, which get only listed variables.
pub fn of(directory: &Path) -> Vec<u32> {
    let name = directory.as_os_str();
    let belongs = |pid: &u32| {
        let process = Path::new("/proc").join(pid.to_string());
        let names_it = |file: &str| std::fs::read(process.join(file)).is_ok_and(|text| contains(&text, name));
        let works_there = || std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory));
        names_it("environ") || names_it("cmdline") || works_there()
    };
    all().filter(|pid| *pid != std::process::id()).filter(belongs).collect()
}

/// Kills the processes of a directory. If another process restarts a killed one, it is killed next.
pub fn end(directory: &Path) {
    let began = Instant::now();
    loop {
        let left = of(directory);
        if left.is_empty() {
            return;
        }
        if began.elapsed() > END_LIMIT {
            assert!(std::thread::panicking(), "processes of {directory:?} do not end: {left:?}");
            return;
        }
        left.into_iter().for_each(kill);
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns processes with this value of a variable.
pub fn with_variable(name: &str, value: &str) -> Vec<u32> {
    let entry = format!("{name}={value}");
    let has_it = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    };
    all().filter(has_it).collect()
}

pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

pub fn terminate(pid: u32) {
    signal(pid, Signal::TERM);
}

/// Ignores a process that has already ended.
fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn all() -> impl Iterator<Item = u32> {
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok())
}

fn contains(text: &[u8], name: &OsStr) -> bool {
    text.windows(name.len()).any(|part| part == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper(change: impl Fn(&mut Command) -> &mut Command) -> Child {
        change(Command::new("sleep").arg("600").env_clear()).spawn().expect("sleep")
    }

    #[test]
    fn a_process_without_a_variable_of_the_test_is_killed_too() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("state");
        std::fs::create_dir(&state).expect("a directory");
        let mut ours = [
            sleeper(|command| command.env("TRELLIS_APP_OF", &state)),
            sleeper(|command| command.current_dir(&state)),
            Command::new("sh").args(["-c", "sleep 600; exit"]).arg(&state).spawn().expect("a shell"),
        ];
        let mut other = sleeper(|command| command.env("HOME", "/"));
        end(directory.path());
        assert_eq!(of(directory.path()), Vec::<u32>::new());
        for child in &mut ours {
            assert!(!child.wait().expect("it is a child").success());
        }
        assert!(other.try_wait().expect("a child").is_none(), "a process of another test");
        other.kill().and_then(|()| other.wait()).expect("it ends");
    }
}
