//! External programs of the packaging tests, and paths in the repository.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use trellis_testing::kube::{ControlPlane, Parts, shared};

pub const TRELLIS: &str = env!("CARGO_BIN_EXE_trellis");

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

pub fn chart() -> PathBuf {
    repository().join("deploy/chart/trellis-operator")
}

/// The output of a command that must succeed.
pub fn good(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    assert!(output.status.success(), "{command:?}\n{}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn trellis<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    good(Command::new(TRELLIS).args(arguments))
}

/// `$HELM`, the one that `tests/provision_kube.py helm` installed, or that of the machine. `None`, with a message, if there is none.
pub fn helm() -> Option<PathBuf> {
    let given = std::env::var_os("HELM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_machine = || std::env::split_paths(&path).map(|place| place.join("helm")).find(|file| file.is_file());
    let found = given.or_else(cached_helm).or_else(of_machine);
    if found.is_none() {
        eprintln!("SKIP: Helm is not here, the chart was not tried; tests/provision_kube.py helm makes it");
    }
    found
}

fn cached_helm() -> Option<PathBuf> {
    let entries = fs::read_dir(cache()).ok()?.flatten();
    let places = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("helm"));
    places.map(|entry| entry.path().join("helm")).find(|file| file.is_file())
}

fn cache() -> PathBuf {
    let given = std::env::var_os("TRELLIS_TEST_CACHE").map(PathBuf::from);
    given.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/trellis-test"))
}

pub fn plane() -> Option<&'static ControlPlane> {
    shared(Parts::WithControllers)
}

/// A request to the API server that must succeed.
pub fn kubectl(plane: &ControlPlane, arguments: &[&str], input: &str) -> String {
    let output = plane.kubectl_with_input(arguments, input);
    assert!(output.status.success(), "kubectl {}\n{}", arguments.join(" "), said(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Is as it was the last time; with UPDATE_GOLDENS=1 it is written instead.
pub fn golden(file: &Path, content: &str) {
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        fs::write(file, content).expect("written");
    }
    let found = fs::read_to_string(file).unwrap_or_default();
    let line = found.lines().zip(content.lines()).position(|(one, other)| one != other);
    let hint = "UPDATE_GOLDENS=1 cargo test -p trellis --test packaging";
    assert!(found == content, "{} differs from line {line:?} on (from 0): {hint}\n{content}", file.display());
}
