//! A real SuperLink on free ports, and the commands that call it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use trellis_testing::processes;

pub struct SuperLink {
    home: TempDir,
    process: Process,
    pub http: String,
}

/// ServerApps outlive their SuperLink, and would wait for the next one.
impl Drop for SuperLink {
    fn drop(&mut self) {
        self.process.end();
        processes::end(self.home.path());
    }
}

/// Ends with the test, however that ends.
struct Process(Child);

impl Process {
    fn end(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// How commands reach it.
pub enum Security {
    /// As the commands decide by themselves.
    Unsaid,
    Plaintext,
    Tls,
}

impl SuperLink {
    /// With TLS (an authority and a certificate of its own) and accounts.
    pub fn with_tls_and_accounts() -> SuperLink {
        let home = home();
        good(&trellis(&home, &["pki", "init", "--dir", "ca"]));
        good(&trellis(&home, &["pki", "issue", "--dir", "ca", "--endpoint", "localhost", "--out", "tls"]));
        good(&trellis(&home, &["pki", "trust", "--dir", "ca", "--out", "trust.crt"]));
        let files = ["--ssl-certfile", "tls/server.pem", "--ssl-keyfile", "tls/server.key", "--ssl-ca-certfile"];
        let more = ["tls/ca.crt", "--account-auth", "on", "--enable-supernode-auth", "--host", "127.0.0.1"];
        SuperLink::start(home, &[files.as_slice(), &more].concat())
    }

    /// A SuperLink without TLS and accounts.
    pub fn to_try_out() -> SuperLink {
        SuperLink::start(home(), &["--insecure"])
    }

    /// The same, but with accounts.
    pub fn with_accounts() -> SuperLink {
        SuperLink::start(home(), &["--insecure", "--account-auth", "on"])
    }

    fn start(home: TempDir, more: &[&str]) -> SuperLink {
        let free = "127.0.0.1:0";
        let addresses = ["--control-api-address", free, "--fleet-api-address", free, "--serverappio-api-address", free];
        let settings = ["superlink", "--isolation", "process", "--port", "0", "--state-dir", "state"];
        let log = ["--log-format", "json"];
        let mut child = command(&home, &[settings.as_slice(), &addresses, &log, more].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let process = Process(child);
        let (mut read, mut http) = (String::new(), None);
        while !read.contains("SuperLink is ready") {
            let line = lines.next().unwrap_or_else(|| panic!("it ended:\n{read}")).expect("UTF-8");
            let event: Value = serde_json::from_str(&line).expect("JSON");
            if event["message"] == "HTTP API is listening" {
                http = event["address"].as_str().map(str::to_owned);
            }
            read += &line;
            read.push('\n');
        }
        // Reads the rest of the log: a full pipe would stop the SuperLink.
        std::thread::spawn(move || lines.for_each(drop));
        SuperLink { http: http.unwrap_or_else(|| panic!("no HTTP API:\n{read}")), home, process }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A command that does not call it.
    pub fn alone(&self, arguments: &[&str]) -> Command {
        command(&self.home, arguments)
    }

    /// A command that calls it, with the token in a file.
    pub fn command(&self, security: &Security, token_file: Option<&str>, arguments: &[&str]) -> Command {
        let mut command = command(&self.home, arguments);
        command.args(["--superlink", &self.http]);
        match security {
            Security::Unsaid => &mut command,
            Security::Plaintext => command.arg("--insecure"),
            Security::Tls => command.args(["--root-certificates", "trust.crt"]),
        };
        if let Some(file) = token_file {
            command.args(["--token-file", file]);
        }
        command
    }
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn command(home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.env_clear().env("HOME", home.path()).current_dir(home.path()).stdin(Stdio::null()).args(arguments);
    command
}

fn trellis(home: &TempDir, arguments: &[&str]) -> Output {
    command(home, arguments).output().expect("the binary runs")
}

/// The output of a command that must succeed.
pub fn good(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// The error of a command that must be refused.
pub fn refused(output: &Output) -> String {
    let told = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{told}");
    told
}
