//! Programs of others, each with a limit on its time and its output in a file: nothing waits for ever, and what a failed one
//! said is part of the error.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Lines of a failed program's output that are told.
const TOLD_LINES: usize = 12;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("{program} cannot be started")]
    Start { program: String, source: io::Error },
    #[error("{program} ended with {status}:\n{told}")]
    Failed { program: String, status: ExitStatus, told: String },
    #[error("{program} did not end within {} s; it said last:\n{told}", .limit.as_secs())]
    Late { program: String, limit: Duration, told: String },
}

/// One program to be run to its end.
#[derive(Debug)]
pub struct Run {
    command: Command,
    program: String,
    log: PathBuf,
    limit: Duration,
}

impl Run {
    /// Its output goes to a file in `logs` that has its name.
    pub fn new(program: impl AsRef<OsStr>, logs: &Path, limit: Duration) -> Self {
        let program = program.as_ref();
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).env("LC_ALL", "C.UTF-8");
        Self { command, log: logs.join(format!("{name}.log")), program: name, limit }
    }

    pub fn args<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, words: I) -> Self {
        self.command.args(words.into_iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// To its end; what it printed.
    pub fn finish(mut self) -> Result<String, CommandError> {
        let start = |source| CommandError::Start { program: self.program.clone(), source };
        let output = File::create(&self.log).map_err(start)?;
        let errors = output.try_clone().map_err(start)?;
        tracing::debug!(command = ?self.command, "running");
        let mut child = self.command.stdout(output).stderr(errors).spawn().map_err(start)?;
        match wait(&mut child, self.limit).map_err(start)? {
            Some(status) if status.success() => Ok(fs::read_to_string(&self.log).unwrap_or_default()),
            Some(status) => Err(CommandError::Failed { told: self.told(), program: self.program, status }),
            None => Err(CommandError::Late { told: self.told(), program: self.program, limit: self.limit }),
        }
    }

    fn told(&self) -> String {
        last_lines(&String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()), TOLD_LINES)
    }
}

/// Until it ends or the time is over; then it is killed.
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(LOOK_EVERY);
    }
}

pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_says_why_and_one_that_hangs_is_ended() {
        let logs = tempfile::tempdir().expect("a directory");
        let shell = |text: &str, limit| Run::new("sh", logs.path(), limit).args(["-c", text]).finish();
        assert_eq!(shell("echo well", Duration::from_secs(10)).expect("it ends"), "well\n");
        let failed = shell("echo no >&2; exit 3", Duration::from_secs(10)).unwrap_err();
        assert_eq!(failed.to_string(), "sh ended with exit status: 3:\nno");
        let late = shell("sleep 60", Duration::from_millis(10)).unwrap_err();
        assert!(matches!(late, CommandError::Late { .. }), "{late}");
        let absent = Run::new("/nonexistent/program", logs.path(), Duration::from_secs(1)).finish().unwrap_err();
        assert!(matches!(absent, CommandError::Start { .. }), "{absent}");
    }
}
