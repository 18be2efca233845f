//! A home for one test. Every process that is started for it ends with it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use trellis_testing::processes;

const LIMIT: Duration = Duration::from_secs(120);
const GLANCE: Duration = Duration::from_millis(20);

pub struct Scene {
    directory: TempDir,
}

impl Scene {
    pub fn new() -> Scene {
        Scene { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("a file");
        self.path(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_trellis")), arguments)
    }

    /// Of a copy of the program.
    pub fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.directory.path()).env("TRELLIS_HOME", self.home());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.current_dir(self.directory.path()).stdin(Stdio::null()).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// The output of a command that must succeed.
    pub fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {told}{}", self.server_log());
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.good(&[arguments, &["-o", "json"]].concat())).expect("JSON")
    }

    /// Exit code and stderr.
    pub fn bad(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        let told = String::from_utf8(output.stderr).expect("UTF-8");
        assert_ne!(output.status.code(), Some(0), "{arguments:?} works: {told}");
        (output.status.code().expect("an exit code"), told)
    }

    /// `server.json` of a server that serves.
    pub fn serving(&self) -> Option<Value> {
        let text = std::fs::read(self.home().join("server.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn server_log(&self) -> String {
        std::fs::read_to_string(self.home().join("server.log")).unwrap_or_default()
    }

    /// The processes of this scene that run `trellis WORD`; all of them without.
    pub fn processes(&self, word: Option<&str>) -> Vec<u32> {
        let runs = |pid: &u32, word: &str| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(word.as_bytes())
        };
        let ours = processes::of(self.directory.path()).into_iter();
        ours.filter(|pid| word.is_none_or(|word| runs(pid, word))).collect()
    }

    /// The only process that runs `trellis WORD`, when there is one.
    pub fn process(&self, word: &str) -> u32 {
        eventually(&format!("one process of trellis {word}"), || match self.processes(Some(word))[..] {
            [pid] => Some(pid),
            _ => None,
        })
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        processes::end(self.directory.path());
    }
}

/// Polls until there is a result.
pub fn eventually<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < LIMIT, "waited {} s for {what}", LIMIT.as_secs());
        // Another process cannot notify.
        std::thread::sleep(GLANCE);
    }
}
