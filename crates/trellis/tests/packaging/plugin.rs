//! `kubectl trellis`.

use std::path::Path;

use crate::tools::{TRELLIS, plane, said};

#[test]
fn kubectl_finds_the_program_by_its_name() {
    let Some(plane) = plane() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(TRELLIS, directory.path().join("kubectl-trellis")).expect("a link");
    let call = |arguments: &[&str]| kubectl_with_path(plane, directory.path(), arguments);
    let listed = call(&["plugin", "list"]);
    assert!(listed.contains("kubectl-trellis"), "{listed}");
    let version = call(&["trellis", "version"]);
    assert_eq!(version.trim(), said_by_trellis(&["--version"]).trim());
    assert!(call(&["trellis", "--help"]).contains("Usage: kubectl trellis <COMMAND>"));
    assert!(
        call(&["trellis", "operator", "manifests", "--help"]).contains("Usage: kubectl trellis operator manifests")
    );
    assert!(said_by_trellis(&["--help"]).contains("Usage: trellis <COMMAND>"));
}

/// Plugins precede kubectl's own flags, as in real calls.
fn kubectl_with_path(plane: &trellis_testing::kube::ControlPlane, path: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new(plane.kubectl_program())
        .args(arguments)
        .env("PATH", path)
        .env("KUBECONFIG", plane.kubeconfig())
        .output()
        .expect("kubectl");
    assert!(output.status.success(), "kubectl {}: {}", arguments.join(" "), said(&output));
    said(&output)
}

fn said_by_trellis(arguments: &[&str]) -> String {
    crate::tools::trellis(arguments)
}
