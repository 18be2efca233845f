//! The SuperLink as a program: output and exit codes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_trellis");

/// A command in an empty environment, at home in `home`.
fn command(program: impl AsRef<Path>, home: &TempDir) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env_clear().env("HOME", home.path()).current_dir(home.path()).stdin(Stdio::null());
    command
}

fn superlink(home: &TempDir, arguments: &[&str]) -> Output {
    command(BINARY, home).arg("superlink").args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn every_mistake_is_told_at_once() {
    let home = home();
    fs::write(home.path().join("link.toml"), "flet-api-address = 'h:1'\nssl-certfile = 'gone.pem'\n").expect("file");
    let output = command(BINARY, &home)
        .args(["superlink", "--config", "link.toml", "--databse", "x", "--insecure", "--enable-supernode-auth"])
        .env("TRELLIS_ISOLATION", "docker")
        .output()
        .expect("the binary runs");
    let gone = home.path().join("gone.pem");
    let expected = format!(
        "\
trellis superlink: 6 problems with the arguments, nothing was started

  1. unknown flag --databse
     where: command line
     to do: did you mean --database?

  2. unknown key \"flet-api-address\"
     where: link.toml line 1
     to do: did you mean fleet-api-address?

  3. --insecure contradicts --ssl-certfile
     where: command line, --insecure; link.toml line 2, ssl-certfile
     to do: keep one of them; --insecure=false overrides the environment and the file

  4. --ssl-certfile: {} cannot be read: No such file or directory (os error 2)
     where: link.toml line 2, ssl-certfile
     to do: give the path of a readable PEM file

  5. --enable-supernode-auth needs TLS, and --insecure turns it off
     where: command line, --enable-supernode-auth; command line, --insecure
     to do: replace --insecure by --ssl-certfile, --ssl-keyfile and --ssl-ca-certfile

  6. --isolation cannot be \"docker\"
     where: environment variable TRELLIS_ISOLATION
     to do: use subprocess or process

All flags: trellis superlink --help
",
        gone.display()
    );
    assert_eq!(text(&output.stderr), expected);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let home = home();
    let file = "insecure = true\ncontrol-api-address = 'file:1'\nfleet-api-address = 'file:2'\n\
                serverappio-api-address = 'file:3'\nallow-insecure-network = true\n";
    fs::write(home.path().join("link.toml"), file).expect("file");
    let output = command(BINARY, &home)
        .args(["superlink", "--print-config", "--serverappio-api-address", "flag:3"])
        .env("TRELLIS_CONFIG", "link.toml")
        .env("TRELLIS_FLEET_API_ADDRESS", "env:2")
        .env("TRELLIS_SERVERAPPIO_API_ADDRESS", "env:3")
        .env("TRELLIS_KEEPALIVE_INTERVAL", "10s")
        .output()
        .expect("the binary runs");
    let printed = text(&output.stdout);
    let lines: Vec<String> =
        printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in [
        "control-api-address = \"file:1\" # link.toml line 2",
        "fleet-api-address = \"env:2\" # environment variable TRELLIS_FLEET_API_ADDRESS",
        "serverappio-api-address = \"flag:3\" # command line",
        "host = \"127.0.0.1\" # default",
        "port = 8000 # default",
        "keepalive-interval = \"10s\" # environment variable TRELLIS_KEEPALIVE_INTERVAL",
        "account-auth = \"on\" # default",
        "insecure = true # link.toml line 1",
        "isolation = \"subprocess\" # default",
        "# health-server-address = # not set",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected} is not in:\n{printed}");
    }
    assert_eq!(output.status.code(), Some(0));

    fs::write(home.path().join("printed.toml"), printed).expect("file");
    let again = superlink(&home, &["--print-config", "--config", "printed.toml"]);
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap_or_default().trim().to_owned()).collect()
    };
    assert_eq!(values(text(&again.stdout)), values(printed), "{}", text(&again.stderr));
}

#[test]
fn by_the_name_of_flower_it_is_the_superlink() {
    let home = home();
    let link = home.path().join("flower-superlink");
    std::os::unix::fs::symlink(BINARY, &link).expect("link");
    let run = |argument: &str| command(&link, &home).arg(argument).output().expect("the binary runs");

    let help = run("--help");
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("\nUsage: flower-superlink [OPTIONS]\n"), "{}", text(&help.stdout));
    assert!(text(&help.stdout).contains("\n    flower-superlink --insecure\n"), "{}", text(&help.stdout));
    assert!(!text(&help.stdout).contains("trellis superlink"), "{}", text(&help.stdout));

    let version = format!("trellis {} (serves Flower 1.25 to 1.42, over gRPC and HTTP)\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&run("--version").stdout), version);
    assert_eq!(text(&run("-V").stdout), version);

    let refusal = run("--unknown");
    assert_eq!(refusal.status.code(), Some(2));
    assert!(text(&refusal.stderr).starts_with("flower-superlink: 2 problems with the arguments"));
}

#[test]
fn help_has_what_a_user_looks_for() {
    let home = home();
    let help = superlink(&home, &["--help"]);
    let help = text(&help.stdout);
    for expected in [
        "\nUsage: trellis superlink [OPTIONS]\n",
        "\nAddresses (",
        "--fleet-api-address <ADDRESS>",
        "\nSecurity (",
        "\nState:\n",
        "\nApps:\n",
        "\nLimits:\n",
        "\nConnections:\n",
        "--endpoint <HOST>",
        "connection is closed for pinging too often",
        "\nLog (on stderr, and in a file if --log-file is given):\n",
        "\nConfiguration and inspection:\n",
        "--print-config",
        "--executor-config <CONFIG>",
        "\nExamples:\n",
        "TRELLIS_FLEET_API_ADDRESS=",
        "\nExit codes:\n",
    ] {
        assert!(help.contains(expected), "{expected:?} is not in:\n{help}");
    }
    assert!(!help.contains("crash-points"), "{help}");
    let asked = command(BINARY, &home).args(["help", "superlink"]).output().expect("the binary runs");
    assert_eq!(text(&asked.stdout), help);
    let short = superlink(&home, &["-h"]);
    assert!(!text(&short.stdout).contains("--executor"), "{}", text(&short.stdout));

    let top = command(BINARY, &home).arg("--help").output().expect("the binary runs");
    assert!(text(&top.stdout).contains("\n  superlink  "), "{}", text(&top.stdout));
    let unknown = command(BINARY, &home).arg("supperlink").output().expect("the binary runs");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("'superlink'"), "{}", text(&unknown.stderr));
}

/// Arguments for a SuperLink of its own: any free ports, no app processes.
fn private<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let free = "127.0.0.1:0";
    let addresses = ["--control-api-address", free, "--fleet-api-address", free, "--serverappio-api-address", free];
    [&["superlink", "--insecure", "--isolation", "process", "--port", "0"], addresses.as_slice(), more].concat()
}

/// Starts a SuperLink and reads its log up to the line after which it handles signals.
fn started(home: &TempDir, more: &[&str]) -> (Child, String, impl FnOnce() -> String + use<>) {
    let mut child =
        command(BINARY, home).args(private(more)).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut log = BufReader::new(child.stderr.take().expect("stderr"));
    let mut read = String::new();
    while !read.contains("starting SuperLink") {
        assert_ne!(log.read_line(&mut read).expect("UTF-8"), 0, "it ended: {read}");
    }
    let rest = move || {
        let mut rest = String::new();
        log.read_to_string(&mut rest).expect("UTF-8");
        rest
    };
    (child, read, rest)
}

#[test]
fn it_stops_gracefully_on_a_signal_and_logs_json() {
    for signal in [Signal::TERM, Signal::INT] {
        let home = home();
        let (mut child, mut log, rest) = started(&home, &["--database", ":memory:", "--log-format", "json"]);
        kill_process(Pid::from_child(&child), signal).expect("signal");
        log += &rest();
        assert_eq!(child.wait().expect("exit").code(), Some(0), "{log}");
        for line in log.lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert!(["timestamp", "level", "message"].iter().all(|key| event[key].is_string()), "{line}");
        }
        assert!(log.contains("\"control\":\"127.0.0.1:0\""), "{log}");
    }
}

#[test]
fn the_log_is_in_the_file_too() {
    let home = home();
    let more = ["--database", ":memory:", "--log-file", "link.log", "--log-format", "json"];
    let (mut child, mut log, rest) = started(&home, &more);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("signal");
    log += &rest();
    assert_eq!(child.wait().expect("exit").code(), Some(0), "{log}");
    let messages = |log: &str| -> Vec<String> {
        let message =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["message"].to_string();
        log.lines().map(message).collect()
    };
    let file = fs::read_to_string(home.path().join("link.log")).expect("the log file");
    assert_eq!(messages(&file), messages(&log));
    assert!(messages(&file).iter().any(|message| message.contains("starting SuperLink")), "{file}");

    let refused = command(BINARY, &home).args(private(&["--log-file", "gone/link.log"])).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("gone/link.log cannot be written: "), "{}", text(&refused.stderr));
}

#[test]
fn an_empty_secret_is_none() {
    let home = home();
    fs::write(home.path().join("secret"), "").expect("file");
    let output =
        command(BINARY, &home).args(private(&["--superexec-auth-secret-file", "secret"])).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("secret cannot be read: it is empty"), "{}", text(&output.stderr));
}

#[test]
fn plaintext_on_a_network_needs_a_second_flag() {
    let home = home();
    let arguments = ["--insecure", "--print-config", "--fleet-api-address", "0.0.0.0:9092"];
    let refused = superlink(&home, &arguments);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--allow-insecure-network"), "{}", text(&refused.stderr));
    let warned = superlink(&home, &[arguments.as_slice(), &["--allow-insecure-network"]].concat());
    assert_eq!(warned.status.code(), Some(0));
    let warning = "warning: serving without TLS on the network (--fleet-api-address 0.0.0.0:9092): ";
    assert!(text(&warned.stderr).contains(warning), "{}", text(&warned.stderr));
}

#[test]
fn the_state_is_told_by_exit_codes() {
    let home = home();
    let check = |more: &[&str]| superlink(&home, &[&["--check-state", "--state-dir", "state"], more].concat());
    assert_eq!(check(&[]).status.code(), Some(1));

    let (mut child, _, rest) = started(&home, &["--state-dir", "state"]);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("signal");
    let log = rest();
    assert_eq!(child.wait().expect("exit").code(), Some(0), "{log}");
    let current = check(&[]);
    assert_eq!(current.status.code(), Some(0), "{}", text(&current.stdout));

    // 2 would mean that the state needs an upgrade.
    assert_eq!(check(&["--zzz"]).status.code(), Some(255));
}

#[test]
fn what_keeps_it_from_serving_is_told() {
    let home = home();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let arguments = private(&["--database", ":memory:", "--health-server-address", &address]);
    let output = command(BINARY, &home).args(arguments).output().expect("the binary runs");
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    let last = log.lines().last().expect("a log");
    assert!(last.contains("ERROR") && last.contains("in use"), "{log}");
}
