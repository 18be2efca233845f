//! Runs external programs with a timeout and a log file. The error of a failed program contains its last output.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of output lines in an error.
const TOLD_LINES: usize = 12;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("{program} cannot be started")]
    Start { program: String, source: io::Error },
    #[error("{program} ended with {status}:\n{output}")]
    Failed { program: String, status: ExitStatus, output: String },
    #[error("{program} timed out after {} s; its last output:\n{output}", .limit.as_secs())]
    Late { program: String, limit: Duration, output: String },
}

/// A program to run until it ends.
#[derive(Debug)]
pub struct Run {
    command: Command,
    program: String,
    log: PathBuf,
    limit: Duration,
}

impl Run {
    /// Name of the log file in `logs`.
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

    /// Runs the program; returns its output.
    pub fn finish(mut self) -> Result<String, CommandError> {
        let start = |source| CommandError::Start { program: self.program.clone(), source };
        let output = File::create(&self.log).map_err(start)?;
        let errors = output.try_clone().map_err(start)?;
        tracing::debug!(command = ?self.command, "running");
        let mut child = self.command.stdout(output).stderr(errors).spawn().map_err(start)?;
        match wait(&mut child, self.limit).map_err(start)? {
            Some(status) if status.success() => Ok(fs::read_to_string(&self.log).unwrap_or_default()),
            Some(status) => Err(CommandError::Failed { output: self.output(), program: self.program, status }),
            None => Err(CommandError::Late { output: self.output(), program: self.program, limit: self.limit }),
        }
    }

    fn output(&self) -> String {
        last_lines(&String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()), TOLD_LINES)
    }
}

/// Waits until the program ends, and kills it at the timeout.
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
        sleep(POLL_INTERVAL);
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
    fn failed_and_hanging_programs_are_reported() {
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
