use serde_json::json;

use super::*;
use crate::federation::Spec;

fn spec(fields: serde_json::Value) -> Spec {
    let mut spec = json!({
        "mode": "StatefulSet", "isolationMode": "subprocess",
        "superlink": {"image": "flwr/superlink:1.25.0"},
        "supernodes": {"image": "flwr/supernode:1.25.0", "pools": [{"name": "a", "replicas": 1}]},
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    serde_json::from_value(spec).expect("a spec")
}

fn federation(fields: serde_json::Value) -> Federation {
    let spec = serde_json::to_value(spec(fields)).expect("it came from there");
    Federation::read(&json!({"metadata": {"name": "f", "namespace": "n"}, "spec": spec})).expect("a resource")
}

fn flower(minor: u16) -> Program {
    Program::Flower(Release::of(minor))
}

#[test]
fn an_image_says_what_is_in_it() {
    let (none, v142) = (json!({}), json!({"version": "1.42.0"}));
    let (trellis, official) = (json!({"runtime": "trellis"}), json!({"runtime": "flower"}));
    for (image, fields, expected) in [
        ("flwr/superlink:1.25.0", &none, flower(25)),
        ("mirror.local:5000/hub/flwr/superlink:1.42.0-py3.12-ubuntu24.04", &none, flower(42)),
        // The tag of an official image takes precedence over the resource.
        ("flwr/superlink:1.25.0", &v142, flower(25)),
        ("flwr/superlink:1.25.0", &trellis, flower(25)),
        ("flwr/superlink:latest", &none, Program::Unknown),
        ("flwr/superlink:latest", &v142, flower(42)),
        ("flwr/superlink@sha256:0123", &v142, flower(42)),
        ("flwr/superlink@sha256:0123", &none, Program::Unknown),
        ("trellis", &none, Program::Trellis),
        ("ghcr.local/x/trellis:0.1.0", &none, Program::Trellis),
        ("x/trellis-superlink@sha256:0123", &none, Program::Trellis),
        ("x/trellis-superlink:1.42.0", &official, flower(42)),
        ("x/lattice:3", &none, Program::Unknown),
        ("x/lattice:3", &trellis, Program::Trellis),
        // `spec.version` exists in the reference, which ignores it (A5).
        ("x/lattice:3", &v142, flower(42)),
        ("x/own:1.25.0", &none, flower(25)),
        ("x/own:1.22.0", &none, Program::Unknown),
        ("x/own:1.25.0", &v142, flower(42)),
    ] {
        assert_eq!(image::program(image, &spec(fields.clone())), expected, "{image} with {fields}");
    }
}

#[test]
fn a_superexec_of_ones_own_has_the_release_of_its_host() {
    let programs = |superlink: &str, superexec: &str| {
        let superlink = json!({"image": superlink, "superexecImage": superexec});
        Programs::of(&federation(json!({"isolationMode": "process", "superlink": superlink})))
    };
    assert_eq!(programs("flwr/superlink:1.42.0", "x/apps:7").superlink_superexec, Some(flower(42)));
    assert_eq!(programs("flwr/superlink:1.42.0", "flwr/superexec:1.41.0").superlink_superexec, Some(flower(41)));
    assert_eq!(programs("trellis", "x/apps:7").superlink_superexec, Some(Program::Unknown));
    // There is no SuperExec of Trellis.
    assert_eq!(programs("trellis", "trellis-apps:1.39.0").superlink_superexec, Some(flower(39)));
}

/// T4: skew is detected and reported, and refused only if the programs cannot work together.
#[test]
fn skew_is_told_with_its_place() {
    let pools = json!([
        {"name": "a", "replicas": 1},
        {"name": "b", "replicas": 1, "images": {"supernode": "flwr/supernode:1.42.0"}},
        {"name": "c", "replicas": 1, "images": {"supernode": "flwr/supernode:1.39.0"}},
    ]);
    let federation = federation(json!({"supernodes": {"image": "flwr/supernode:1.25.0", "pools": pools}}));
    let findings = Programs::of(&federation).findings(&federation);
    let places = |list: &[Diagnostic]| list.iter().map(|problem| problem.place.clone()).collect::<Vec<_>>();
    assert_eq!(places(&findings.problems), ["spec.supernodes.pools[1].images.supernode"]);
    assert_eq!(places(&findings.notes), ["spec.supernodes.pools[2].images.supernode"]);
    assert!(findings.problems[0].what.contains("Flower 1.42"), "{}", findings.problems[0].what);
}

/// A5: `spec.version` has an effect, and a contradiction to the images is reported.
#[test]
fn a_version_that_the_images_contradict_is_told() {
    for (version, expected) in [("1.25.7", 0), ("1.42.0", 1), ("newest", 1)] {
        let federation = federation(json!({"version": version}));
        let notes = Programs::of(&federation).findings(&federation).notes;
        assert_eq!(notes.len(), expected, "{version}: {notes:?}");
    }
}

#[test]
fn unknown_images_are_told_once() {
    let pools = json!([{"name": "a", "replicas": 1}, {"name": "b", "replicas": 1}]);
    let federation = federation(json!({
        "superlink": {"image": "x/own:3"},
        "supernodes": {"image": "x/node:3", "pools": pools},
    }));
    let notes = Programs::of(&federation).findings(&federation).notes;
    let places: Vec<&str> = notes.iter().map(|note| note.place.as_str()).collect();
    assert_eq!(places, ["spec.superlink.image", "spec.supernodes.image"]);
}

#[test]
fn releases_before_the_first_that_is_known_are_told() {
    let notes = |image: &str| {
        let federation = federation(json!({"superlink": {"image": image}}));
        Programs::of(&federation).findings(&federation).notes.into_iter().map(|note| note.what).collect::<Vec<_>>()
    };
    let told = notes("flwr/superlink:1.17.0");
    assert!(told.iter().any(|what| what.contains("holds Flower 1.17, which is older than 1.25")), "{told:?}");
    assert!(!notes("flwr/superlink:1.25.0").iter().any(|what| what.contains("older")));
}
