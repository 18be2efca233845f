//! The SuperNode as a program: output and exit codes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_trellis");
/// Longer than any start, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command in an empty environment, at home in `home`.
fn command(program: impl AsRef<Path>, home: &TempDir) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env_clear().env("HOME", home.path()).current_dir(home.path()).stdin(Stdio::null());
    command
}

fn supernode(home: &TempDir, arguments: &[&str]) -> Output {
    command(BINARY, home).arg("supernode").args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A directory with the program under Flower's name.
fn by_the_name_of_flower(home: &TempDir) -> std::path::PathBuf {
    let link = home.path().join("flower-supernode");
    std::os::unix::fs::symlink(BINARY, &link).expect("link");
    link
}

#[test]
fn every_mistake_is_told_at_once() {
    let home = home();
    fs::write(home.path().join("node.toml"), "superlnk = 'h:1'\nnode-config = 'name=ward7'\n").expect("file");
    let output = command(BINARY, &home)
        .args(["supernode", "--config", "node.toml", "--insecure", "--max-retires", "3", "--gpus", "0"])
        .env("TRELLIS_ISOLATION", "docker")
        .output()
        .expect("the binary runs");
    let expected = "\
trellis supernode: 5 problems with the arguments, nothing was started

  1. unknown flag --max-retires
     where: command line
     to do: did you mean --max-retries?

  2. unknown key \"superlnk\"
     where: node.toml line 1
     to do: did you mean superlink?

  3. --node-config: the value of name, ward7, is neither true, false, a number nor a quoted text
     where: node.toml line 2, node-config
     to do: if it is a text, quote it: name=\"ward7\"

  4. --isolation cannot be \"docker\"
     where: environment variable TRELLIS_ISOLATION
     to do: use subprocess or process

  5. --gpus 0 could mean no GPU, or the first one
     where: command line, --gpus
     to do: write --gpus none, or --cuda-visible-devices 0

All flags: trellis supernode --help
";
    assert_eq!(text(&output.stderr), expected);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let home = home();
    fs::write(home.path().join("node.toml"), "superlink = 'file:1'\ndisk-limit = '1GiB'\nbackoff-max = '5s'\n")
        .unwrap();
    let output = command(BINARY, &home)
        .args(["supernode", "--insecure", "--config", "node.toml", "--superlink", "flag:1", "--print-config"])
        .envs([("TRELLIS_SUPERLINK", "environment:1"), ("TRELLIS_DISK_LIMIT", "2GiB"), ("FLWR_HOME", "/flwr")])
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed: Vec<String> =
        text(&output.stdout).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "superlink = \"flag:1\" # command line",
        "disk-limit = \"2GiB\" # environment variable TRELLIS_DISK_LIMIT",
        "flwr-dir = \"/flwr\" # environment variable FLWR_HOME",
        "backoff-max = \"5s\" # node.toml line 3",
        "max-retries = \"unlimited\" # default",
        "# app-timeout = # not set",
    ] {
        assert!(printed.iter().any(|found| found == line), "{line}\n{}", text(&output.stdout));
    }
}

#[test]
fn what_a_site_was_given_counts_less_than_what_is_said_here() {
    let home = home();
    // Of node 0: superlink = "far:1", name = "lab-0", insecure = true.
    let settings = "c3VwZXJsaW5rID0gImZhcjoxIgpuYW1lID0gImxhYi0wIgppbnNlY3VyZSA9IHRydWUK";
    let secret = format!("kind: Secret\ndata:\n  address: ZmFyOjE=\n  node-0.toml: {settings}\n");
    fs::write(home.path().join("lab.yaml"), secret).expect("file");
    fs::write(home.path().join("node.toml"), "name = 'ward'\n").expect("file");
    let mounted = home.path().join("join");
    fs::create_dir(&mounted).expect("directory");
    fs::write(mounted.join("node-0.toml"), "superlink = 'far:1'\ninsecure = true\n").expect("file");
    let printed = |arguments: &[&str]| {
        let output = supernode(&home, &[arguments, &["--print-config"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let joined = printed(&["--join", "lab.yaml"]);
    for line in ["superlink = \"far:1\" #", "name = \"lab-0\" #", "insecure = true #", "/join/node-0.toml line 1"] {
        assert!(joined.contains(line), "{line}\n{joined}");
    }
    let beside = printed(&["--join", "lab.yaml", "--config", "node.toml", "--superlink", "near:2"]);
    assert!(beside.contains("superlink = \"near:2\" #") && beside.contains("name = \"ward\" #"), "{beside}");
    assert!(printed(&["--join", "join", "--node", "0"]).contains("superlink = \"far:1\" #"));
    assert!(joined.contains(".local/state/trellis/supernode/join/node-0.toml line 1"), "{joined}");
    assert!(!home.path().join(".local").exists(), "what is only printed leaves nothing behind");

    let refused = supernode(&home, &["--join", "lab.yaml", "--node", "3", "--gpus", "0"]);
    assert_eq!(refused.status.code(), Some(2));
    let told = text(&refused.stderr);
    assert!(told.contains("2 problems") && told.contains("lab.yaml: there is no entry node-3.toml"), "{told}");
    assert!(told.contains("where: command line, --join"), "{told}");
    let alone = supernode(&home, &["--insecure", "--node", "3"]);
    assert!(text(&alone.stderr).contains("requires --join"), "{}", text(&alone.stderr));
}

#[test]
fn zero_retries_mean_what_the_name_of_the_program_says() {
    let home = home();
    let arguments = ["--insecure", "--max-retries", "0", "--print-config"];
    let ours = supernode(&home, &arguments);
    assert!(text(&ours.stdout).contains("max-retries = \"unlimited\""), "{}", text(&ours.stdout));
    let flowers = command(by_the_name_of_flower(&home), &home).args(arguments).output().expect("the binary runs");
    assert!(text(&flowers.stdout).contains("max-retries = \"never\""), "{}", text(&flowers.stdout));
    assert!(text(&flowers.stderr).contains("warning: --max-retries 0 means here what it means in Flower"));
}

#[test]
fn help_has_what_a_user_looks_for() {
    let home = home();
    let help = supernode(&home, &["--help"]);
    let help = text(&help.stdout);
    for expected in [
        "\nUsage: trellis supernode [OPTIONS]\n",
        "\n  status  ",
        "\nSuperLink:\n",
        "--root-certificates <FILE>",
        "\nRetries, if the SuperLink cannot be reached:\n",
        "0 has two meanings",
        "\nApps:\n",
        "\nWarm apps:\n",
        "--gpu-memory-fraction <SHARE>",
        "\nLog (on stderr, and in a file if --log-file is given):\n",
        "--print-config",
        "--grpc-rere",
        "\nExamples:\n",
        "TRELLIS_SUPERLINK=",
        "\nExit codes:\n",
    ] {
        assert!(help.contains(expected), "{expected:?} is not in:\n{help}");
    }
    let asked = command(BINARY, &home).args(["help", "supernode"]).output().expect("the binary runs");
    assert_eq!(text(&asked.stdout), help);
    let short = supernode(&home, &["-h"]);
    assert!(!text(&short.stdout).contains("--grpc-rere"), "{}", text(&short.stdout));
    let status = supernode(&home, &["status", "--help"]);
    assert!(text(&status.stdout).contains("Usage: trellis supernode status [OPTIONS]"), "{}", text(&status.stdout));
    let flowers = command(by_the_name_of_flower(&home), &home).arg("--help").output().expect("the binary runs");
    assert!(text(&flowers.stdout).contains("\nUsage: flower-supernode [OPTIONS]\n"), "{}", text(&flowers.stdout));
    assert!(text(&flowers.stdout).contains("\n    flower-supernode --insecure\n"), "{}", text(&flowers.stdout));
}

#[test]
fn completions_know_it() {
    let home = home();
    let output = command(BINARY, &home).args(["completions", "bash"]).output().expect("the binary runs");
    assert!(
        ["supernode", "--max-concurrent-apps", "supernode__"].iter().all(|word| text(&output.stdout).contains(word))
    );
}

#[test]
fn where_no_node_runs_that_is_said() {
    let home = home();
    let output = supernode(&home, &["status"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "trellis supernode status: no SuperNode runs with the state directory {}\n  to do: start one with `trellis \
         supernode`, or name its directory with --state-dir\n",
        home.path().join(".local/state/trellis/supernode").display()
    );
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(supernode(&home, &["status", "--color"]).status.code(), Some(2));
}

/// A node whose SuperLink accepts connections and never answers.
struct Node {
    child: Child,
    log: BufReader<ChildStderr>,
    _superlink: TcpListener,
}

impl Node {
    fn start(home: &TempDir) -> Node {
        let superlink = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = superlink.local_addr().expect("its address").to_string();
        let mut child = command(BINARY, home)
            .args(["supernode", "--insecure", "--superlink", &address, "--client-app", "native:echo"])
            .args(["--state-dir", "state", "--log-format", "json"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let log = BufReader::new(child.stderr.take().expect("stderr"));
        Node { child, log, _superlink: superlink }
    }

    fn stop(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("signal");
        let mut log = String::new();
        self.log.read_to_string(&mut log).expect("UTF-8");
        assert_eq!(self.child.wait().expect("exit").code(), Some(0), "{log}");
        log
    }
}

/// The answer of a node that is about to start.
fn first_status(home: &TempDir, format: &str) -> Output {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = supernode(home, &["status", "--state-dir", "state", "-o", format]);
        if output.status.code() != Some(1) {
            return output;
        }
        assert!(Instant::now() < deadline, "{}", text(&output.stderr));
    }
}

#[test]
fn a_node_without_its_superlink_says_so() {
    let home = home();
    let mut node = Node::start(&home);
    let mut line = String::new();
    while !line.contains("starting SuperNode") {
        line.clear();
        assert_ne!(node.log.read_line(&mut line).expect("UTF-8"), 0, "it ended");
    }
    let started: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&started["role"], &started["retries"]), (&"supernode".into(), &"unlimited".into()), "{line}");

    let output = first_status(&home, "json");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(status["pid"], node.child.id());
    assert_ne!(status["link"]["state"], "connected");
    let table = first_status(&home, "table");
    assert!(text(&table.stdout).contains("Replies      none waiting\n"), "{}", text(&table.stdout));

    let second = supernode(&home, &["--insecure", "--state-dir", "state", "--client-app", "native:echo"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("--state-dir"), "{}", text(&second.stderr));

    let log = node.stop();
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
    assert_eq!(supernode(&home, &["status", "--state-dir", "state"]).status.code(), Some(1), "it is gone");
}
