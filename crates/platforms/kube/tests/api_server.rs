//! An API server accepts every object of every golden unchanged, and the Pod Security level `restricted` admits the pods, unless the
//! resource requests forbidden fields.

use std::path::Path;

use trellis_testing::kube::{Parts, shared};

/// Restricted pods must not use devices and networks of the machine.
const ASK_FOR_MORE: [&str; 2] = ["everything", "gpu"];

#[test]
fn an_api_server_takes_the_objects_and_finds_the_pods_restricted() {
    let Some(cluster) = shared(Parts::ApiServer) else { return };
    let made = cluster.kubectl(&["create", "namespace", "lab"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let label = ["label", "namespace", "lab", "pod-security.kubernetes.io/warn=restricted"];
    assert!(cluster.kubectl(&label).status.success());
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/objects");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        // The definition of the Prometheus operator is not installed.
        let objects: Vec<&str> = text.split("---\n").filter(|object| !object.contains("kind: PodMonitor")).collect();
        let arguments = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"];
        let output = cluster.kubectl_with_input(&arguments, &objects.join("---\n"));
        let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}: {said}");
        assert_eq!(out.lines().count(), objects.len() - 1, "{name}: {out}");
        let violates = said.contains("would violate PodSecurity");
        assert_eq!(violates, ASK_FOR_MORE.contains(&name.as_str()), "{name}: {said}");
        seen += 1;
    }
    assert!(seen >= 15, "all of them are there");
}
