//! `trellis pki` from a shell: output, files, exit codes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_trellis");

struct Shell {
    home: TempDir,
}

impl Shell {
    fn new() -> Shell {
        Shell { home: tempfile::tempdir().expect("a temporary directory") }
    }

    fn with_ca() -> Shell {
        let shell = Shell::new();
        shell.good("init --dir ca --name clinic");
        shell
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(BINARY);
        command.env_clear().current_dir(self.home.path()).stdin(Stdio::null());
        command.arg("pki").args(line.split_whitespace());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("the binary runs")
    }

    /// The output of a command that must succeed.
    fn good(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.good(&format!("{line} -o json"))).expect("JSON")
    }

    /// The error of a command that must be refused.
    fn bad(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{line}: {}", text(&output.stderr));
        text(&output.stderr).to_owned()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.home.path().join(path)).expect(path)
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

const ISSUE: &str = "issue --dir ca --endpoint link.example.org:9092 --endpoint [2001:db8::7]:9092 --out tls";

#[test]
fn from_nothing_to_a_certificate() {
    let shell = Shell::new();
    let made = shell.json("init --dir ca --name clinic --validity 5y");
    assert_eq!((made["name"].as_str(), made["rotation"]["state"].as_str()), (Some("clinic"), Some("steady")));
    let issued = shell.json(ISSUE);
    assert_eq!((issued["issued"].as_bool(), issued["reason"].as_str()), (Some(true), Some("there was none")));
    let names: Vec<_> = issued["leaf"]["names"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    assert_eq!(names, ["link.example.org", "2001:db8::7", "localhost", "127.0.0.1", "::1"]);

    for (path, mode) in [("ca", 0o700), ("tls", 0o700), ("tls/server.key", 0o600), ("tls/server.pem", 0o644)] {
        let found = shell.home.path().join(path).metadata().expect(path).permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{path}");
    }
    assert_eq!(shell.json(&format!("{ISSUE} --renew"))["issued"].as_bool(), Some(false));
    let fewer = shell.json(&format!("{ISSUE} --renew --no-localhost"));
    assert_eq!(fewer["reason"].as_str(), Some("the endpoints changed"));

    let shown = shell.json("show --dir ca");
    assert_eq!(shown["leaves"][0]["fingerprint_sha256"], fewer["leaf"]["fingerprint_sha256"]);
    assert_eq!(shown["trusted"][0]["key_type"].as_str(), Some("ECDSA P-384"));
    assert_eq!(shown["next_step"]["flag"].as_str(), Some("--begin"));
    let file = shell.json("show tls/server.pem");
    assert_eq!(file["certificates"][0]["fingerprint_sha256"], fewer["leaf"]["fingerprint_sha256"]);
    let people = shell.good("show --dir ca");
    for expected in
        ["authority clinic in ca", "rotation      steady", "CA (signing): CN=clinic CA ", "names       link"]
    {
        assert!(people.contains(expected), "{expected} is not in\n{people}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let shell = Shell::with_ca();
    let told = shell.bad("issue --dir ca --endpoint 0.0.0.0:9092 --endpoint http://link --validity soon --out ca/tls");
    let real = shell.home.path().canonicalize().expect("a path");
    let expected = format!(
        "\
trellis pki issue: 4 problems, nothing was changed

  1. \"soon\" is not a duration
     where: --validity
     to do: write it like 30d, 12h or 10y

  2. \"http://link\" is not an endpoint: write the host alone, without scheme and path
     where: --endpoint
     to do: write it like link.example.org, 10.0.0.7:9092 or [2001:db8::7]:9092

  3. 0.0.0.0 is an address to listen on; clients cannot connect to it
     where: --endpoint
     to do: give the hosts and addresses that clients use

  4. {0}/ca/tls and the authority in {0}/ca must not contain each other
     where: --out
     to do: give a separate directory: its readers must not read the authority's key
",
        real.display()
    );
    assert_eq!(told, expected);
    let told = shell.bad("init --dir ca --validity x");
    assert!(told.contains("\"x\" is not a duration"), "{told}");
    assert!(shell.bad("init --dir ca").contains("an authority exists already"));
    assert!(shell.bad("show --dir nowhere").contains("there is no authority in this directory"));
    assert!(shell.bad("show nowhere.pem ca/state.json").contains("2 problems"));
    assert!(shell.bad("issue --dir ca --out tls").contains("--endpoint"));
}

#[test]
fn what_the_machine_refuses_is_another_code() {
    let shell = Shell::with_ca();
    fs::write(shell.home.path().join("file"), "").expect("a file");
    let output = shell.run("issue --dir ca --endpoint host --out file/tls");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("trellis pki issue: cannot "), "{}", text(&output.stderr));
    fs::create_dir(shell.home.path().join("directory")).expect("a directory");
    let output = shell.run("trust --dir ca --out directory");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let left: Vec<_> =
        fs::read_dir(shell.home.path()).expect("a list").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 3, "nothing half-done is left: {left:?}");
}

#[test]
fn a_rotation_step_by_step() {
    let shell = Shell::with_ca();
    shell.good(ISSUE);
    let old = shell.good("trust --dir ca");
    assert!(shell.bad("rotate --dir ca --switch").contains("switch is not possible while the rotation is steady"));
    assert!(shell.good("rotate --dir ca --begin").contains("next step     --switch"));
    assert!(shell.good("rotate --dir ca --begin").starts_with("no change\n"));
    assert!(shell.good("rotate --dir ca").contains("before that   every SuperNode"));
    let renewed = shell.json(&format!("{ISSUE} --renew"));
    assert_eq!((renewed["issued"].as_bool(), renewed["trust_renewed"].as_bool()), (Some(false), Some(true)));
    assert_eq!(shell.read("tls/ca.crt"), shell.good("trust --dir ca"));
    shell.good("rotate --dir ca --switch");
    let told = shell.bad("rotate --dir ca --finish");
    assert!(told.contains("to do: issue it again"), "{told}");
    assert_eq!(shell.json(&format!("{ISSUE} --renew"))["reason"].as_str(), Some("another CA signs now"));
    assert_eq!(shell.json("rotate --dir ca --finish")["rotation"]["state"].as_str(), Some("steady"));
    let new = shell.good("trust --dir ca");
    assert_eq!((new.matches("BEGIN").count(), new == old), (1, false));
    let both = shell.run("rotate --dir ca --begin --finish");
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn the_bundle_in_every_form() {
    let (shell, partner) = (Shell::with_ca(), Shell::with_ca());
    let own = shell.good("trust --dir ca");
    let line = shell.good("trust --dir ca -o base64");
    assert_eq!(line.lines().count(), 1);
    use base64::Engine as _;
    let decoded = base64::engine::general_purpose::STANDARD.decode(line.trim()).expect("base64");
    assert_eq!(text(&decoded), own);

    let foreign = partner.good("trust --dir ca");
    fs::write(shell.home.path().join("partner.crt"), &foreign).expect("a file");
    shell.good("trust --dir ca --add partner.crt --out bundle.crt");
    assert_eq!(shell.read("bundle.crt"), format!("{own}{foreign}"));
    let mode = shell.home.path().join("bundle.crt").metadata().expect("a file").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o644);
    let listed = shell.json("trust --dir ca");
    assert_eq!(listed["trusted"].as_array().map(Vec::len), Some(2));
    let fingerprint = listed["trusted"][1]["fingerprint_sha256"].as_str().expect("a fingerprint").to_owned();
    assert_eq!(shell.good(&format!("trust --dir ca --remove {fingerprint}")), own);
    assert!(shell.bad(&format!("trust --dir ca --remove {fingerprint}")).contains("no added CA has the fingerprint"));
    assert!(shell.bad("trust --dir ca --add ca/state.json").contains("it holds no certificate in PEM"));
}

#[test]
fn a_watch_renews_when_the_authority_changes_and_stops_when_told() {
    let shell = Shell::with_ca();
    let line = format!("{ISSUE} --watch -o json");
    let mut child = shell.command(&line).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let pid = Pid::from_child(&child);
    let mut log = BufReader::new(child.stderr.take().expect("stderr"));
    let mut wait_for = |message: &str| -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).expect("UTF-8"), 0, "it ended without {message}");
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            if event["message"] == message {
                return event;
            }
        }
    };
    assert_eq!(wait_for("certificate issued")["reason"], "there was none");
    wait_for("watching");
    shell.good("rotate --dir ca --begin");
    kill_process(pid, Signal::HUP).expect("signal");
    wait_for("trust bundle renewed");
    assert_eq!(shell.read("tls/ca.crt").matches("BEGIN").count(), 2);
    shell.good("rotate --dir ca --switch");
    kill_process(pid, Signal::HUP).expect("signal");
    assert_eq!(wait_for("certificate issued")["reason"], "another CA signs now");
    shell.good("rotate --dir ca --finish");
    kill_process(pid, Signal::TERM).expect("signal");
    assert_eq!(child.wait().expect("an exit").code(), Some(0));
}

#[test]
fn the_directory_can_come_from_the_environment() {
    let shell = Shell::with_ca();
    let output = shell.command("trust").env("TRELLIS_PKI_DIR", "ca").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).starts_with("-----BEGIN CERTIFICATE-----\n"));
}

#[test]
fn help_has_what_a_user_looks_for() {
    let shell = Shell::new();
    let help = shell.good("--help");
    for expected in ["\nUsage: trellis pki <COMMAND>\n", "\n  init ", "\n  rotate ", "\nExamples:\n", "\nExit codes:\n"]
    {
        assert!(help.contains(expected), "{expected:?} is not in:\n{help}");
    }
    for command in ["init", "issue", "show", "trust"] {
        assert!(shell.good(&format!("{command} --help")).contains("\nExamples:\n"), "{command}");
    }
    assert!(shell.good("rotate --help").contains("The steps, in order."));
    let top = Command::new(BINARY).arg("--help").output().expect("the binary runs");
    assert!(text(&top.stdout).contains("\n  pki  "), "{}", text(&top.stdout));
}
