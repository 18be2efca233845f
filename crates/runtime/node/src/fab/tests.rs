use std::fs;

use trellis_wire::proto::scalar::Scalar;

use super::testing::{app, entry, fab, zip};
use super::*;

const TINY: [(&str, &[u8]); 2] = [
    ("1.25", include_bytes!("../../testdata/tiny-1.25.fab")),
    ("1.42", include_bytes!("../../testdata/tiny-1.42.fab")),
];

fn limits() -> Limits {
    Limits { disk_bytes: 0, app_bytes: 1 << 20, parallel_objects: 1, bandwidth: None }
}

fn installed(fab: &proto::Fab, world: &Path) -> Result<(InstalledApp, DefaultConfig), FabError> {
    install(fab, &fab.hash_str, world, &limits())
}

#[test]
fn bundles_built_by_flower_are_installed() {
    let world = tempfile::tempdir().unwrap();
    for (version, content) in TINY {
        let fab = fab(content.to_vec());
        let (app, config) = installed(&fab, world.path()).unwrap_or_else(|error| panic!("{version}: {error}"));
        assert_eq!((app.id.as_str(), app.version.as_str()), ("trellis/tiny", "1.2.3"));
        assert_eq!(app.client_app, "tiny.client:app");
        assert_eq!(app.directory, world.path().join(format!("trellis.tiny.1.2.3.{}", &app.hash[..8])));
        assert_eq!(fs::read_to_string(app.directory.join("tiny/client.py")).unwrap(), "app = \"client\"\n");
        assert!(!app.directory.join(".info").exists());
        // As `flwr.common.config` of 1.25 and 1.42 reads them.
        let want = [
            ("big", Scalar::Sint64(9_007_199_254_740_993)),
            ("model.head.kind", Scalar::String("linear".into())),
            ("model.layers", Scalar::Sint64(2)),
            ("name", Scalar::String("first".into())),
            ("rate", Scalar::Double(0.5)),
            ("rounds", Scalar::Sint64(3)),
            ("shuffle", Scalar::Bool(true)),
        ];
        assert_eq!(config, want.map(|(key, value)| (key.to_owned(), proto::Scalar { scalar: Some(value) })).into());
    }
}

#[test]
fn an_app_is_unpacked_once() {
    let world = tempfile::tempdir().unwrap();
    let fab = fab(zip(&app(&[entry("app.py", "x")])));
    let (first, _) = installed(&fab, world.path()).unwrap();
    fs::write(first.directory.join("made-later"), "").unwrap();
    let marker = fs::File::options().append(true).open(first.directory.join(app_directory::MARKER)).unwrap();
    let long_ago = std::time::SystemTime::now() - 2 * MAX_UNUSED;
    marker.set_modified(long_ago).unwrap();
    assert_eq!(installed(&fab, world.path()).unwrap().0, first);
    assert!(first.directory.join("made-later").exists(), "it was not unpacked again");
}

#[test]
fn the_bundle_is_stored_with_its_app() {
    let world = tempfile::tempdir().unwrap();
    let fab = fab(zip(&app(&[entry("app.py", "x")])));
    assert!(stored_bundle(world.path(), &fab.hash_str).unwrap().is_none());
    let (app, _) = installed(&fab, world.path()).unwrap();
    assert_eq!(stored_bundle(world.path(), &fab.hash_str).unwrap().unwrap(), fab.content);
    fs::remove_file(app.bundle).unwrap();
    assert!(stored_bundle(world.path(), &fab.hash_str).unwrap().is_none(), "a damaged bundle is fetched again");
}

#[test]
fn an_incomplete_app_is_replaced() {
    let world = tempfile::tempdir().unwrap();
    let fab = fab(zip(&app(&[entry("app.py", "x")])));
    let (app, _) = installed(&fab, world.path()).unwrap();
    for marker in [None, Some("")] {
        fs::remove_file(app.directory.join(app_directory::MARKER)).unwrap();
        fs::remove_file(app.directory.join("app.py")).unwrap();
        fs::write(app.directory.join("stale.py"), "").unwrap();
        if let Some(text) = marker {
            fs::write(app.directory.join(app_directory::MARKER), text).unwrap();
        }
        assert_eq!(installed(&fab, world.path()).unwrap().0, app);
        assert!(app.directory.join("app.py").exists() && !app.directory.join("stale.py").exists());
    }
}

#[test]
fn an_app_with_the_same_short_hash_is_not_replaced() {
    let world = tempfile::tempdir().unwrap();
    let fab = fab(zip(&app(&[entry("app.py", "x")])));
    let (first, _) = installed(&fab, world.path()).unwrap();
    // Simulates another bundle with the same short hash.
    fs::write(first.directory.join(app_directory::MARKER), "another").unwrap();
    let (second, _) = installed(&fab, world.path()).unwrap();
    assert_eq!(second.directory, world.path().join(format!("me.app.1.2.{}", second.hash)));
    assert!(first.directory.join("app.py").exists() && second.directory.join("app.py").exists());
}

#[test]
fn concurrent_installations_install_one_app() {
    let world = tempfile::tempdir().unwrap();
    let fab = fab(zip(&app(&[entry("app.py", "x")])));
    let found: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| installed(&fab, world.path()).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]));
    let visible = |name: &str| !name.starts_with(".lock");
    let names = fs::read_dir(world.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| visible(name)).count(), 1, "nothing else is left");
}

#[test]
fn errors_of_apps_and_of_the_disk_are_distinct() {
    let world = tempfile::tempdir().unwrap();
    let sound = fab(zip(&app(&[entry("app.py", "x")])));
    let refused = |fab: &proto::Fab, hash: &str, limits: &Limits| {
        let error = install(fab, hash, world.path(), limits).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::InvalidFab), "{error}");
        error.to_string()
    };
    assert!(refused(&sound, &"0".repeat(64), &limits()).contains("does not match the run"));
    let small = Limits { app_bytes: 10, ..limits() };
    assert!(refused(&sound, &sound.hash_str, &small).contains("exceeds the limit of 10 bytes"));
    let evil = fab(zip(&app(&[entry("../evil", "x")])));
    assert!(refused(&evil, &evil.hash_str, &limits()).contains("not a path below"));
    let garbage = fab(b"garbage".to_vec());
    assert!(refused(&garbage, &garbage.hash_str, &limits()).contains("not a zip"));
    let left: Vec<_> = fs::read_dir(world.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".lock"], "a refused app leaves no files");

    let file = world.path().join("file");
    fs::write(&file, "").unwrap();
    let error = install(&sound, &sound.hash_str, &file, &limits()).unwrap_err();
    assert_eq!(error.code(), None, "{error}");
}
