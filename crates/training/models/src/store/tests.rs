use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use tempfile::TempDir;
use trellis_wire::records::Dtype;

use super::*;
use crate::error::ModelError;
use crate::manifest::Origin;
use crate::testing::{self, Failure, Trap, checkpoint, every_dtype};

struct TestStore {
    root: TempDir,
}

impl TestStore {
    fn new() -> TestStore {
        TestStore { root: tempfile::tempdir().unwrap() }
    }

    /// Has checkpoints of these rounds of run 17.
    fn with(rounds: &[u64]) -> TestStore {
        let test = TestStore::new();
        for round in rounds {
            test.store().save(&checkpoint("17", *round)).unwrap();
        }
        test
    }

    fn store(&self) -> ModelStore {
        ModelStore::new(self.root.path())
    }

    /// A store on a disk that fails after some steps.
    fn failing(&self, steps: i64, failure: Failure) -> ModelStore {
        ModelStore { disk: Disk { trap: Trap::after(steps, failure) }, ..self.store() }
    }

    fn file(&self, round: u64, name: &str) -> PathBuf {
        self.root.path().join("17").join(round_name(round)).join(name)
    }

    fn latest(&self) -> PathBuf {
        fs::read_link(self.root.path().join("17").join(LATEST)).unwrap()
    }

    /// All names in the directory of the run, including `.lock` and `latest`.
    fn names(&self) -> Vec<String> {
        disk::names(&self.root.path().join("17")).unwrap()
    }
}

/// Compares a loaded checkpoint with the saved one, whose version, numbers and files the store has set.
fn same(read: &Checkpoint, saved: &Checkpoint) {
    let manifest = Manifest {
        format: MANIFEST_FORMAT,
        trellis_version: env!("CARGO_PKG_VERSION").to_owned(),
        state_numbers: saved.state.numbers.clone(),
        files: read.manifest.files.clone(),
        ..saved.manifest.clone()
    };
    assert_eq!(read.manifest, manifest);
    assert_eq!(read.model, saved.model);
    assert_eq!(read.state, saved.state);
}

#[test]
fn a_checkpoint_round_trips() {
    let test = TestStore::new();
    let mut saved = checkpoint("17", 5);
    saved.model = every_dtype();
    saved.state.models.insert("second moment".to_owned(), every_dtype());
    saved.manifest.resumed_from = Some(Origin { run: "3".to_owned(), round: 2, before: None });
    let path = test.store().save(&saved).unwrap();
    assert_eq!(path, test.root.path().join("17/round-000005"));
    same(&test.store().load("17", Some(5)).unwrap(), &saved);
    same(&test.store().load("17", None).unwrap(), &saved);
    same(&ModelStore::load_path(&path).unwrap(), &saved);
    same(&ModelStore::load_path(&test.root.path().join("17")).unwrap(), &saved);
    same(&ModelStore::load_path(&test.root.path().join("17/latest")).unwrap(), &saved);
}

#[test]
fn the_same_checkpoint_gives_the_same_bytes() {
    let (one, other) = (TestStore::with(&[3]), TestStore::with(&[3]));
    for name in [MODEL_FILE, STATE_FILE, MANIFEST_FILE] {
        assert_eq!(fs::read(one.file(3, name)).unwrap(), fs::read(other.file(3, name)).unwrap(), "{name}");
    }
}

#[test]
fn only_the_owner_can_read_checkpoints() {
    let test = TestStore::with(&[3]);
    for (path, mode) in [(test.file(3, ""), 0o700), (test.file(3, MANIFEST_FILE), 0o600)] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{path:?}");
    }
}

#[test]
fn the_newest_is_found_by_its_number_and_latest_points_to_it() {
    let test = TestStore::with(&[5, 10, 999_999, 1_000_000]);
    assert_eq!(test.store().load("17", None).unwrap().manifest.round, 1_000_000);
    assert_eq!(test.latest(), Path::new("round-1000000"));
    same(&test.store().load("17", Some(10)).unwrap(), &checkpoint("17", 10));
}

#[test]
fn saving_a_round_again_replaces_it() {
    let test = TestStore::with(&[5]);
    let mut again = checkpoint("17", 5);
    again.manifest.is_final = true;
    again.model = every_dtype();
    test.store().save(&again).unwrap();
    same(&test.store().load("17", None).unwrap(), &again);
    assert_eq!(test.names(), [".lock", "latest", "round-000005"]);
}

/// A save is killed before each of its steps. Afterwards the old or the new checkpoint is complete, and the next save removes
/// all leftovers.
#[test]
fn a_kill_at_any_step_leaves_the_old_or_the_new_checkpoint() {
    let mut outcomes = std::collections::BTreeSet::new();
    for (before, new) in [(5, 10), (5, 5)] {
        for steps in 0.. {
            let test = TestStore::with(&[before]);
            let failing = test.failing(steps, Failure::Killed);
            let mut next = checkpoint("17", new);
            next.manifest.is_final = true;
            let saved = failing.save(&next);
            assert_eq!(saved.is_err(), failing.disk.trap.has_failed(), "{steps}: {saved:?}");
            if saved.is_ok() {
                assert!(steps > 15, "only {steps} steps were tried");
                break;
            }
            let loaded = test.store().open("17", None).unwrap();
            assert!(loaded.skipped.is_empty(), "{steps}");
            let found = loaded.checkpoint;
            same(&found, &if found.manifest.is_final { next } else { checkpoint("17", before) });
            outcomes.insert((before, new, found.manifest.is_final));
            let target = test.root.path().join("17").join(test.latest());
            assert!(ModelStore::load_path(&target).is_ok(), "{steps}: latest is not complete");

            test.store().save(&checkpoint("17", 15)).unwrap();
            assert!(test.names().iter().all(|name| !name.starts_with(".unfinished")), "{steps}: {:?}", test.names());
            assert_eq!(test.store().load("17", None).unwrap().manifest.round, 15);
            assert_eq!(test.latest(), Path::new("round-000015"));
        }
    }
    // Both outcomes occurred, for a new round and for a replaced one.
    assert_eq!(outcomes.len(), 4);
}

#[test]
fn a_kill_at_any_step_of_the_first_save_leaves_no_or_a_complete_checkpoint() {
    for steps in 0.. {
        let test = TestStore::new();
        let saved = test.failing(steps, Failure::Killed).save(&checkpoint("17", 1));
        if saved.is_ok() {
            break;
        }
        match test.store().open("17", None) {
            Ok(loaded) => same(&loaded.checkpoint, &checkpoint("17", 1)),
            Err(error) => assert!(matches!(error, ModelError::NoRun { .. }), "{steps}: {error}"),
        }
        test.store().save(&checkpoint("17", 1)).unwrap();
        assert_eq!(test.names(), [".lock", "latest", "round-000001"]);
    }
}

#[test]
fn a_kill_at_any_step_of_retention_keeps_the_newest() {
    for steps in 0.. {
        let test = TestStore::with(&[1, 2, 3, 4]);
        let failing = test.failing(steps, Failure::Killed);
        if failing.retain("17", 2).is_ok() {
            break;
        }
        let rounds: Vec<u64> = test.store().list().unwrap().iter().map(|entry| entry.round).collect();
        assert!(rounds.ends_with(&[3, 4]), "{steps}: {rounds:?}");
        for round in rounds {
            test.store().load("17", Some(round)).unwrap();
        }
        test.store().retain("17", 2).unwrap();
        assert_eq!(test.names(), [".lock", "latest", "round-000003", "round-000004"], "{steps}");
    }
}

#[test]
fn a_full_disk_is_an_error_and_leaves_no_partial_checkpoint() {
    let mut failed = 0;
    for steps in 0.. {
        let test = TestStore::with(&[5]);
        let failing = test.failing(steps, Failure::DiskFull);
        let saved = failing.save(&checkpoint("17", 10));
        if !failing.disk.trap.has_failed() {
            break;
        }
        // Failing to sweep or lock other runs is not an error.
        let Err(error) = saved else { continue };
        failed += 1;
        let ModelError::Disk { source, .. } = &error else { panic!("{steps}: {error}") };
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull, "{steps}");
        assert!(error.to_string().contains(test.root.path().to_str().unwrap()), "{error}");
        assert!(test.names().iter().all(|name| !name.starts_with(".unfinished-round")), "{steps}: {:?}", test.names());
        let loaded = test.store().open("17", None).unwrap();
        assert!(loaded.skipped.is_empty());
        let round = loaded.checkpoint.manifest.round;
        same(&loaded.checkpoint, &checkpoint("17", round));
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn the_next_save_sweeps_leftovers_of_a_killed_run() {
    let test = TestStore::with(&[5]);
    let left = test.root.path().join("17/.unfinished-round-000010");
    fs::create_dir(&left).unwrap();
    fs::write(left.join(MODEL_FILE), b"half").unwrap();
    let lock = test.store().disk.lock(&test.root.path().join("17")).unwrap();
    test.store().save(&checkpoint("18", 1)).unwrap();
    assert!(left.exists(), "its writer is active");
    drop(lock);
    let unknown = test.root.path().join("mine");
    fs::create_dir(&unknown).unwrap();
    test.store().save(&checkpoint("18", 2)).unwrap();
    assert!(!left.exists());
    assert_eq!(disk::names(&unknown).unwrap(), Vec::<String>::new(), "unknown directories stay unchanged");
}

#[test]
fn damaged_checkpoints_are_reported_and_skipped() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage, &str); 6] = [
        (MODEL_FILE, |path| fs::remove_file(path).unwrap(), "model.safetensors: it is missing"),
        (STATE_FILE, |path| fs::remove_file(path).unwrap(), "state.safetensors: it is missing"),
        (MANIFEST_FILE, |path| fs::remove_file(path).unwrap(), "manifest.json is missing"),
        (MANIFEST_FILE, |path| fs::write(path, b"{\"format\": 1").unwrap(), "manifest.json cannot be read"),
        (MODEL_FILE, flip_a_bit, "model.safetensors: its SHA-256 is"),
        (STATE_FILE, |path| fs::write(path, b"short").unwrap(), "state.safetensors: it has 5 bytes instead of"),
    ];
    for (name, damage, expected) in damages {
        let test = TestStore::with(&[5, 10]);
        damage(&test.file(10, name));
        let loaded = test.store().open("17", None).unwrap();
        same(&loaded.checkpoint, &checkpoint("17", 5));
        let [Skipped { path, error }] = loaded.skipped.as_slice() else { panic!("{:?}", loaded.skipped) };
        assert_eq!(*path, test.file(10, "").parent().unwrap().join("round-000010"));
        assert!(matches!(error, ModelError::Damaged { .. }) && error.to_string().contains(expected), "{error}");
        let requested = test.store().load("17", Some(10)).unwrap_err().to_string();
        assert!(requested.contains(expected) && requested.contains("round-000010"), "{requested}");

        damage(&test.file(5, name));
        let error = test.store().load("17", None).unwrap_err().to_string();
        assert!(error.contains("round-000010") && error.contains("round-000005"), "{error}");
    }
}

fn flip_a_bit(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn all_damaged_files_are_reported_at_once() {
    let test = TestStore::with(&[5]);
    flip_a_bit(&test.file(5, MODEL_FILE));
    flip_a_bit(&test.file(5, STATE_FILE));
    let error = test.store().load("17", Some(5)).unwrap_err().to_string();
    assert!(error.contains(MODEL_FILE) && error.contains(STATE_FILE), "{error}");
}

/// Resuming silently from an older round would lose work.
#[test]
fn a_newer_format_is_refused_and_not_skipped() {
    let test = TestStore::with(&[5, 10]);
    fs::write(test.file(10, MANIFEST_FILE), b"{\"format\": 2, \"unknown\": true}").unwrap();
    let error = test.store().load("17", None).unwrap_err();
    assert!(matches!(error, ModelError::TooNew { found: 2, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("newer Trellis"), "{error}");
}

#[test]
fn errors_about_missing_checkpoints_list_existing_ones() {
    let test = TestStore::with(&[5, 10]);
    let error = |run: &str, round| test.store().load(run, round).unwrap_err().to_string();
    assert!(error("18", None).contains("run 18 has no checkpoints"));
    assert!(error("17", Some(7)).contains("it has checkpoints of rounds 5, 10"));
    for bad in ["../17", "", "a/b", ".lock", "a b"] {
        assert!(error(bad, None).contains("is not a valid run id"), "{bad:?}");
    }
    let error = ModelStore::load_path(&test.root.path().join("nowhere")).unwrap_err().to_string();
    assert!(error.contains("contains no checkpoint"), "{error}");
}

#[test]
fn an_inconsistent_model_is_not_saved() {
    let test = TestStore::new();
    let mut bad = checkpoint("17", 1);
    bad.model = testing::model([
        testing::array("w", Dtype::F32, &[2]),
        testing::array("w", Dtype::F32, &[2]),
        testing::array("__metadata__", Dtype::F32, &[2]),
    ]);
    bad.state.models.get_mut("momentum").unwrap().arrays[1] = vec![0; 3].into();
    let error = test.store().save(&bad).unwrap_err().to_string();
    for expected in
        ["two arrays called \"w\"", "called __metadata__", "\"steps\" of \"momentum\" of the state has 3 bytes"]
    {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(!test.root.path().join("17").exists());
}

#[test]
fn retention_keeps_the_newest_complete_checkpoints() {
    let test = TestStore::with(&[1, 2, 3, 4, 5]);
    fs::write(test.file(5, MODEL_FILE), b"short").unwrap();
    let removed = test.store().retain("17", 2).unwrap();
    assert_eq!(removed, [test.root.path().join("17/round-000002"), test.root.path().join("17/round-000001")]);
    assert_eq!(test.names(), [".lock", "latest", "round-000003", "round-000004", "round-000005"]);
    assert_eq!(test.store().retain("17", 0).unwrap().len(), 1, "at least one checkpoint is kept");
    assert_eq!(test.store().retain("18", 2).unwrap(), Vec::<PathBuf>::new());
    test.store().load("17", None).unwrap();
}

#[test]
fn the_list_contains_damaged_checkpoints() {
    let test = TestStore::with(&[5, 10]);
    test.store().save(&checkpoint("4", 2)).unwrap();
    fs::write(test.root.path().join("note.txt"), b"mine").unwrap();
    fs::create_dir(test.root.path().join("17/round-7")).unwrap();
    fs::remove_file(test.file(5, MANIFEST_FILE)).unwrap();
    let list = test.store().list().unwrap();
    let listed: Vec<(&str, u64, bool, bool)> =
        list.iter().map(|entry| (entry.run_id.as_str(), entry.round, entry.latest, entry.manifest.is_ok())).collect();
    assert_eq!(listed, [("17", 5, false, false), ("17", 10, true, true), ("4", 2, true, true)]);
    assert!(ModelStore::new(test.root.path().join("nowhere")).list().unwrap().is_empty());
}

#[test]
fn removals_leave_no_files() {
    let test = TestStore::with(&[1, 2, 3]);
    test.store().save(&checkpoint("4", 2)).unwrap();
    test.store().remove("17", 3).unwrap();
    assert_eq!(test.latest(), Path::new("round-000002"));
    test.store().remove("17", 1).unwrap();
    assert_eq!((test.latest(), test.store().list().unwrap().len()), (PathBuf::from("round-000002"), 2));
    test.store().remove("17", 2).unwrap();
    assert_eq!(test.names(), [".lock"]);
    assert_eq!(test.store().remove_run("4").unwrap(), [2]);
    assert_eq!(disk::names(test.root.path()).unwrap(), ["17"]);
    assert_eq!(test.store().remove_run("4").unwrap(), [0; 0]);
    assert!(test.store().remove_run("../17").is_err());
}

#[test]
fn only_models_can_be_opened_by_path() {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    let test = TestStore::with(&[1, 2]);
    let store = test.store();
    let path = store.list().unwrap()[0].model_path();
    assert_eq!(path, "17/round-000001/model.safetensors");
    let mut read = Vec::new();
    store.open_model(&path).unwrap().expect("a model").read_to_end(&mut read).unwrap();
    assert_eq!(read, fs::read(test.file(1, MODEL_FILE)).unwrap());
    for path in [
        "",
        "/",
        "model.safetensors",
        "17/model.safetensors",
        "17/round-1/model.safetensors",
        "17//model.safetensors",
        "17/round-000001/manifest.json",
        "17/round-000001/../round-000002/model.safetensors",
        "../17/round-000001/model.safetensors",
        "17/round-000009/model.safetensors",
        "/17/round-000001/model.safetensors",
    ] {
        assert!(store.open_model(path).unwrap().is_none(), "{path}");
    }
    // Links at every level, and a directory instead of the file.
    let elsewhere = TestStore::with(&[1]);
    symlink(elsewhere.root.path().join("17"), test.root.path().join("18")).unwrap();
    symlink(elsewhere.file(1, ""), test.root.path().join("17/round-000007")).unwrap();
    fs::create_dir(test.root.path().join("17/round-000008")).unwrap();
    symlink(elsewhere.file(1, MODEL_FILE), test.file(8, MODEL_FILE)).unwrap();
    fs::create_dir_all(test.file(10, MODEL_FILE)).unwrap();
    for linked in ["18/round-000001", "17/round-000007", "17/round-000008", "17/round-000010"] {
        assert!(store.open_model(&format!("{linked}/model.safetensors")).unwrap().is_none(), "{linked}");
    }
    assert_eq!(store.runs().unwrap(), ["17"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_model_round_trips(
        shapes in prop::collection::vec((0..Dtype::ALL.len(), prop::collection::vec(0usize..5, 0..4)), 0..20),
        names in prop::collection::hash_set(".{0,8}", 20),
    ) {
        prop_assume!(!names.contains("__metadata__"));
        let arrays = shapes.iter().zip(&names).map(|((dtype, shape), name)| testing::array(name, Dtype::ALL[*dtype], shape));
        let mut saved = checkpoint("17", 1);
        saved.model = testing::model(arrays);
        saved.state.models.insert(names.iter().next().unwrap().clone(), saved.model.clone());
        let test = TestStore::new();
        test.store().save(&saved).unwrap();
        same(&test.store().load("17", None).unwrap(), &saved);
    }
}
