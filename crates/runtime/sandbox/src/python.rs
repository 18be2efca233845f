//! Finds the files of an interpreter that an app must be able to read.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Prints prefixes, search path, loaded libraries, and the directory of user packages.
const PROGRAM: &str = include_str!("python.py");

/// Timeout for starting an interpreter, sufficient for a cold and slow disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interpreter {
    /// The resolved program: the configured path may be a wrapper script.
    pub executable: PathBuf,
    /// Files and directories that the interpreter reads.
    pub paths: Vec<PathBuf>,
    /// Paths that the interpreter needs to start: the program, its prefixes, its library.
    pub vital: Vec<PathBuf>,
    /// Directory of packages installed for the user (PYTHONUSERBASE): apps have a different home directory.
    pub user_base: Option<PathBuf>,
}

impl Interpreter {
    /// Queries an interpreter. It must be trusted: it runs outside the sandbox.
    pub fn ask(python: &Path, environment: &[(OsString, OsString)]) -> io::Result<Interpreter> {
        let mut command = Command::new(python);
        command.args(["-c", PROGRAM]).current_dir("/").env_clear();
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        // To find packages of the user; only Python itself uses it here.
        command.envs(std::env::var_os("HOME").map(|home| ("HOME", home)));
        let output = output_in_time(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        // A package may print other lines first.
        let answer = output.stdout.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice(answer).map_err(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("no message");
            io::Error::other(format!("it does not say where its files are ({}): {last}; {error}", output.status))
        })
    }
}

/// The output of a program, which is short. Kills the program after the timeout.
fn output_in_time(command: &mut Command) -> io::Result<Output> {
    let mut child = command.spawn()?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > ANSWER_TIMEOUT {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not say where its files are in time"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    child.wait_with_output()
}

/// The directories of a variable like LD_LIBRARY_PATH.
pub fn directories(variable: Option<&OsStr>) -> Vec<PathBuf> {
    let all = variable.map(std::env::split_paths).into_iter().flatten();
    all.filter(|path| path.is_absolute()).collect()
}
