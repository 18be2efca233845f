//! `trellis run` from a shell: refused arguments, the request, and a whole training in one process.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const PROJECT: &str = "\
[project]
name = 'app'
version = '1.0.0'
[tool.flwr.app]
publisher = 'me'
[tool.flwr.app.components]
serverapp = 'app.server:app'
clientapp = 'app.client:app'
[tool.flwr.app.config]
num-server-rounds = 7
min-fit-clients = 2
learning-rate = 0.1
seed = 3
";

fn home() -> TempDir {
    let home = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir_all(home.path().join("app/app")).expect("a directory");
    fs::create_dir(home.path().join("tmp")).expect("a directory");
    fs::write(home.path().join("app/pyproject.toml"), PROJECT).expect("a file");
    fs::write(home.path().join("app/app/client.py"), "app = None\n").expect("a file");
    home
}

fn run(home: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.env_clear().env("HOME", home.path()).env("TMPDIR", home.path().join("tmp"));
    command.current_dir(home.path()).stdin(Stdio::null()).arg("run").args(arguments);
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn good(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn planned(home: &TempDir, arguments: &[&str]) -> Value {
    let output = run(home, &[arguments, &["--dry-run", "-o", "json"]].concat());
    serde_json::from_str(good(&output)).expect("JSON")
}

#[test]
fn every_mistake_is_told_at_once_and_nothing_is_sent() {
    let home = home();
    let wrong = ["--rounds", "many", "--strategy", "FedAgv", "--set", "learning-rat=1", "--set", "seed"];
    let output = run(&home, &[&["app"], &wrong[..], &["--nodes", "1", "--detach"]].concat());
    let told = text(&output.stderr);
    for part in [
        "problems with the arguments, nothing was done",
        "--rounds: \"many\" cannot be used",
        "to do: give a whole number from 1",
        "--strategy: \"FedAgv\" cannot be used",
        "--set learning-rat: there is no such key",
        "to do: did you mean learning-rate?",
        "--set: \"seed\" has not the form KEY=VALUE",
        "the training waits for 2 nodes, but there are 1",
        "--detach: a federation in this process ends with it",
    ] {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
}

#[test]
fn flags_of_the_other_place_are_refused() {
    let home = home();
    let elsewhere = ["--superlink", "127.0.0.1:1", "--nodes", "3", "--models", "m", "--initial-model", "/first.npz"];
    let output = run(&home, &elsewhere);
    let told = text(&output.stderr);
    for part in
        ["--nodes is for a federation in this process", "--models is for", "refers to the machine of the SuperLink"]
    {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_is_no_app_is_told() {
    let home = home();
    for (arguments, expected) in [
        (&["native:mpl"][..], "there is no built-in app native:mpl"),
        (&["nowhere"], "nowhere/pyproject.toml cannot be read"),
        (&["native:mlp", "--app-server"], "a built-in app has no ServerApp"),
        (&["native:mlp", "--set", "hidden=none"], "native:mlp: hidden"),
        (&["native:mlp", "--superlink", "127.0.0.1:1", "--set", "dataset=csv:x"], "cannot name files of the nodes"),
        (&["app", "--app-server", "--fraction-train", "0.5"], "--fraction-train: there is no such key"),
    ] {
        let output = run(&home, arguments);
        let told = text(&output.stderr);
        assert!(told.contains(expected), "{expected} is not in\n{told}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

/// Official nodes refuse a key that the app lacks, and an app that is new to them costs time.
#[test]
fn settings_become_keys_of_the_app_and_values_do_not_change_the_bundle() {
    let home = home();
    let one = planned(&home, &["app", "--rounds", "2", "--fraction-train", "0.5", "--set", "learning-rate=1"]);
    let two = planned(&home, &["app", "--rounds", "9", "--fraction-train", "0.9", "--set", "learning-rate=2"]);
    assert_eq!(one["fab_hash"], two["fab_hash"]);
    assert_eq!(
        one["values"],
        json!({"num-server-rounds": 2, "fraction-train": 0.5, "learning-rate": 1.0,
        "min-available-nodes": 5})
    );
    assert_eq!((&one["app"], &one["native"]), (&json!("me/app"), &json!(true)));
    // Under the name that the app has for it, and of the type that the app expects.
    let aliased = planned(&home, &["app", "--native-server", "--min-train-nodes", "3", "--seed", "8"]);
    assert_eq!(aliased["values"], json!({"min-available-nodes": 5, "min-fit-clients": 3, "seed": 8}));
    // Elsewhere it is not known how many nodes there are.
    let elsewhere = planned(&home, &["app", "--native-server", "--rounds", "2", "--superlink", "127.0.0.1:1"]);
    assert_eq!(elsewhere["values"], json!({"num-server-rounds": 2}));
    // Keys of the app are for its own ServerApp, which trains by default.
    let untouched = planned(&home, &["app", "--rounds", "2"]);
    assert_eq!((&untouched["native"], &untouched["values"]), (&json!(false), &json!({"num-server-rounds": 2})));
    assert_eq!(planned(&home, &["app", "--app-server", "--rounds", "2"])["fab_hash"], untouched["fab_hash"]);
    assert_ne!(untouched["fab_hash"], one["fab_hash"]);
}

#[test]
fn a_network_learns_digits_in_one_process() {
    let home = home();
    let words = ["--strategy", "krum", "--rounds", "3", "--nodes", "3", "--seed", "1", "--set", "hidden=16"];
    let output = run(&home, &words);
    let lines: Vec<&str> = good(&output).lines().collect();
    assert!(lines[0].contains("started: trellis/mlp"), "{lines:?}");
    let rounds: Vec<&&str> = lines.iter().filter(|line| line.starts_with("round ")).collect();
    assert_eq!(rounds.len(), 3, "{lines:?}");
    assert!(rounds[2].starts_with("round 3/3") && rounds[2].contains("3/3 nodes"), "{lines:?}");
    let model = lines.last().and_then(|line| line.strip_prefix("model: ")).expect("the model's place");
    assert!(Path::new(model).starts_with(home.path().join(".local/state/trellis/models/_in-process")), "{model}");
    assert!(Path::new(model).join("model.safetensors").is_file(), "{model}");
    assert_eq!(fs::read_dir(home.path().join("tmp")).expect("a directory").count(), 0, "no temporary files");
}

/// Nodes have stable ids in the state directory, and the sampling depends on the ids.
#[test]
fn the_same_seed_and_nodes_give_the_same_weights() {
    let home = home();
    let weights = |models: &str| {
        let words = ["native:logistic", "--rounds", "2", "--nodes", "4", "--fraction-train", "0.5", "--seed", "5"];
        let output = run(&home, &[&words[..], &["-o", "json", "--state-dir", "state", "--models", models]].concat());
        let last: Value = serde_json::from_str(good(&output).lines().last().expect("a line")).expect("JSON");
        assert_eq!((&last["event"], &last["status"]), (&json!("ended"), &json!("completed")));
        fs::read(Path::new(last["model"].as_str().expect("a path")).join("model.safetensors")).expect("a model")
    };
    assert_eq!(weights("one"), weights("two"));
}

#[test]
fn a_serverapp_without_an_assignment_says_what_it_lacks() {
    let output = Command::new(env!("CARGO_BIN_EXE_trellis")).env_clear().arg("serverapp").output().expect("it runs");
    let told = text(&output.stderr);
    for name in ["TRELLIS_APP_TOKEN", "TRELLIS_APP_ADDRESS", "TRELLIS_MODELS"] {
        assert!(told.contains(&format!("environment variable {name}: it is not set")), "{told}");
    }
    assert_eq!(output.status.code(), Some(2));
}
