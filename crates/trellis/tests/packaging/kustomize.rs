//! The kustomization is another way to the same objects.

use crate::documents::{by_identity, read};
use crate::tools::{plane, repository, said, trellis};

#[test]
fn each_overlay_gives_what_the_program_prints() {
    let Some(plane) = plane() else { return };
    for (directory, flags) in [
        ("base", &[][..]),
        ("overlays/namespaced", &["--watch-namespace", "trellis-system"][..]),
        ("overlays/restricted", &["--replicas", "2", "--network-policy"][..]),
        ("overlays/monitoring", &["--service-monitor"][..]),
    ] {
        let path = repository().join("deploy/kustomize").join(directory);
        let built = plane.kubectl(&["kustomize", path.to_str().expect("text")]);
        assert!(built.status.success(), "{directory}: {}", said(&built));
        let built = by_identity(read(&String::from_utf8(built.stdout).expect("text")));
        let printed = by_identity(read(&trellis(&[&["operator", "manifests"], flags].concat())));
        assert_eq!(built.keys().collect::<Vec<_>>(), printed.keys().collect::<Vec<_>>(), "{directory}");
        for (identity, object) in &built {
            assert!(*object == printed[identity], "{directory}: {identity} differs");
        }
    }
}
