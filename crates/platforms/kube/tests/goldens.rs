//! Federations and their objects, side by side in `goldens/`. UPDATE_GOLDENS=1 writes the objects instead of comparing them; review
//! the difference.

use std::path::{Path, PathBuf};

use serde_json::Value;
use trellis_diagnostic::Diagnostic;
use trellis_kube::federation::Federation;
use trellis_kube::render::{Durability, Ground, Trust, render};
use trellis_spec::yaml;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
}

fn document(value: &Value) -> String {
    yaml::from_own_json(&value.to_string()).unwrap()
}

/// The state besides the resource, by the name of the file.
fn ground(name: &str, federation: &Federation) -> Ground {
    let keys = federation.spec.security.node_auth.then(|| ("a".to_owned(), "fed-node-keys-a".to_owned()));
    let trust = Trust {
        server_secret: "fed-superlink-tls".to_owned(),
        authority_secret: "fed-trust".to_owned(),
        revision: "certificate-1".to_owned(),
        bundle_revision: "bundle-1".to_owned(),
        node_keys: keys.into_iter().collect(),
        admin_secret: Some("fed-admin".to_owned()),
    };
    Ground {
        durability: if name == "everything" { Durability::Claim } else { Durability::Pod },
        trust: name.starts_with("tls-").then_some(trust),
        operator_namespace: Some("trellis-system".to_owned()),
        ..Ground::default()
    }
}

fn remarks(kind: &str, problems: &[Diagnostic]) -> String {
    let line = |problem: &Diagnostic| format!("# {kind}: {}: {}; {}\n", problem.place, problem.what, problem.advice);
    problems.iter().map(line).collect()
}

#[test]
fn federations_become_the_objects_they_became() {
    let mut names: Vec<String> = std::fs::read_dir(directory("federations"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 15, "all of them are there");
    let mut differing = Vec::new();
    for name in names {
        let text = std::fs::read_to_string(directory("federations").join(format!("{name}.yaml"))).unwrap();
        let resource = &yaml::read(&text, &name).unwrap()[0];
        let federation = Federation::read(resource).unwrap_or_else(|error| panic!("{name}: {error}"));
        let rendered = render(&federation, &ground(&name, &federation));
        let mut made = remarks("problem", &rendered.problems) + &remarks("note", &rendered.notes);
        made.extend(rendered.objects.iter().map(|object| document(&object.0)));
        let path = directory("objects").join(format!("{name}.yaml"));
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != made {
            differing.push(format!("{}:\n{made}", path.display()));
        }
    }
    assert!(
        differing.is_empty(),
        "UPDATE_GOLDENS=1 cargo test -p trellis-kube, if it is meant:\n{}",
        differing.join("\n")
    );
}
