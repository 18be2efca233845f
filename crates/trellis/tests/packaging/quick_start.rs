//! The commands at the top of docs/kubernetes.md, pasted as one block into a shell, on a cluster without the operator.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use trellis_testing::kube::{ControlPlane, Parts};

use crate::tools::{TRELLIS, kubectl, repository, said};

#[test]
fn it_works_as_pasted() {
    let Some(plane) = ControlPlane::start(Parts::WithControllers) else { return };
    let page = fs::read_to_string(repository().join("docs/kubernetes.md")).expect("the page");
    let (_, rest) = page.split_once("```sh\n").expect("a block of commands");
    let (block, _) = rest.split_once("```\n").expect("the end of the block");
    let programs = tempfile::tempdir().expect("a directory");
    symlink(TRELLIS, programs.path().join("trellis")).expect("linked");
    symlink(plane.kubectl_program(), programs.path().join("kubectl")).expect("linked");
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    // -e: stop at the first command that fails.
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", block]).env_clear().env("PATH", path).env("HOME", programs.path());
    let output = shell.env("KUBECONFIG", plane.kubeconfig()).stdin(Stdio::null()).output().expect("bash");
    assert!(output.status.success(), "{}", said(&output));
    assert!(kubectl(&plane, &["get", "federations", "-o", "name"], "").contains("/hospitals"));
    let image = [
        "get",
        "deployment",
        "-n",
        "trellis-system",
        "-o",
        "jsonpath={.items[0].spec.template.spec.containers[0].image}",
    ];
    assert_eq!(kubectl(&plane, &image, ""), "registry.example.org/trellis-operator:0.2.0");
}
