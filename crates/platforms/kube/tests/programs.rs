//! The programs of each Flower release support all rendered arguments, checked with the help of the programs themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use trellis_kube::federation::Federation;
use trellis_kube::render::{Ground, Trust, render};

/// The first releases with other arguments, and the newest release.
const MINORS: [u32; 7] = [25, 30, 34, 35, 36, 40, 42];

fn programs_of(minor: u32) -> Option<PathBuf> {
    let cache = std::env::var_os("TRELLIS_TEST_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/trellis-test")))?;
    let directory = cache.join(format!("flwr-1.{minor}/bin"));
    directory.join("flower-superlink").exists().then_some(directory)
}

fn federation(minor: u32, isolation: &str, insecure: bool) -> Federation {
    let image = |program: &str| format!("flwr/{program}:1.{minor}.0");
    let mut superlink = json!({"image": image("superlink")});
    let mut pool = json!({"name": "a", "replicas": 2, "nodeConfig": {"id": "{index}"}});
    if isolation == "process" {
        superlink["superexecImage"] = image("superexec").into();
        pool["images"] = json!({"superexecClientApp": image("superexec")});
    }
    let spec = json!({
        "mode": "StatefulSet", "isolationMode": isolation, "insecure": insecure, "superlink": superlink,
        "security": {"nodeAuth": !insecure},
        "supernodes": {"image": image("supernode"), "pools": [pool]},
    });
    Federation::read(&json!({"metadata": {"name": "fed", "namespace": "lab", "uid": "1"}, "spec": spec})).unwrap()
}

/// A program, and an argument without its value.
fn arguments(minor: u32) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for isolation in ["process", "subprocess"] {
        for insecure in [true, false] {
            let keys = BTreeMap::from([("a".to_owned(), "keys".to_owned())]);
            let trust = Trust { node_keys: keys, ..Trust::default() };
            let ground = Ground { trust: (!insecure).then_some(trust), ..Ground::default() };
            let rendered = render(&federation(minor, isolation, insecure), &ground);
            assert_eq!(rendered.problems, [], "1.{minor}");
            for object in &rendered.objects {
                let containers = object.0["spec"]["template"]["spec"]["containers"].as_array();
                found.extend(containers.into_iter().flatten().flat_map(container_arguments));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn container_arguments(container: &Value) -> Vec<(&'static str, String)> {
    let program = match container["name"].as_str().unwrap() {
        "superlink" => "flower-superlink",
        "supernode" => "flower-supernode",
        _ => "flower-superexec",
    };
    let args = container["args"].as_array().unwrap();
    args.iter().map(|argument| (program, argument.as_str().unwrap().split('=').next().unwrap().to_owned())).collect()
}

#[test]
fn every_argument_is_known_to_the_programs_it_is_for() {
    for minor in MINORS {
        let Some(directory) = programs_of(minor) else {
            eprintln!("SKIP: Flower 1.{minor} is not in the test cache; tests/provision.py brings it");
            continue;
        };
        let mut help = BTreeMap::new();
        for (program, argument) in arguments(minor) {
            let text = help.entry(program).or_insert_with(|| {
                let output =
                    Command::new(directory.join(program)).arg("--help").env("FLWR_TELEMETRY_ENABLED", "0").output();
                String::from_utf8(output.unwrap().stdout).unwrap()
            });
            let known = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| word == argument);
            assert!(known, "{program} of 1.{minor} has no {argument}:\n{text}");
        }
        assert_eq!(help.len(), 3, "all three programs of 1.{minor} were asked");
    }
}
