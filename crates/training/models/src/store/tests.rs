use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use tempfile::TempDir;
use trellis_wire::records::Dtype;

use super::*;
use crate::error::ModelError;
use crate::manifest::Origin;
use crate::testing::{self, Failure, Trap, checkpoint, every_dtype};

struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { root: tempfile::tempdir().unwrap() }
    }

    /// With checkpoints of some rounds of run 17.
    fn with(rounds: &[u64]) -> Place {
        let place = Place::new();
        for round in rounds {
            place.store().save(&checkpoint("17", *round)).unwrap();
        }
        place
    }

    fn store(&self) -> ModelStore {
        ModelStore::new(self.root.path())
    }

    /// A store whose disk fails after some steps.
    fn failing(&self, steps: i64, failure: Failure) -> ModelStore {
        ModelStore { disk: Disk { trap: Trap::after(steps, failure) }, ..self.store() }
    }

    fn file(&self, round: u64, name: &str) -> PathBuf {
        self.root.path().join("17").join(round_name(round)).join(name)
    }

    fn latest(&self) -> PathBuf {
        fs::read_link(self.root.path().join("17").join(LATEST)).unwrap()
    }

    /// Names in the directory of the run, those of people and those of ours.
    fn names(&self) -> Vec<String> {
        disk::names(&self.root.path().join("17")).unwrap()
    }
}

/// What is saved gets its version, numbers and files from the store.
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
fn a_checkpoint_comes_back_as_it_was() {
    let place = Place::new();
    let mut saved = checkpoint("17", 5);
    saved.model = every_dtype();
    saved.state.models.insert("second moment".to_owned(), every_dtype());
    saved.manifest.resumed_from = Some(Origin { run: "3".to_owned(), round: 2, before: None });
    let path = place.store().save(&saved).unwrap();
    assert_eq!(path, place.root.path().join("17/round-000005"));
    same(&place.store().load("17", Some(5)).unwrap(), &saved);
    same(&place.store().load("17", None).unwrap(), &saved);
    same(&ModelStore::load_path(&path).unwrap(), &saved);
    same(&ModelStore::load_path(&place.root.path().join("17")).unwrap(), &saved);
    same(&ModelStore::load_path(&place.root.path().join("17/latest")).unwrap(), &saved);
}

#[test]
fn the_same_checkpoint_gives_the_same_bytes() {
    let (one, other) = (Place::with(&[3]), Place::with(&[3]));
    for name in [MODEL_FILE, STATE_FILE, MANIFEST_FILE] {
        assert_eq!(fs::read(one.file(3, name)).unwrap(), fs::read(other.file(3, name)).unwrap(), "{name}");
    }
}

#[test]
fn only_the_owner_may_look() {
    let place = Place::with(&[3]);
    for (path, mode) in [(place.file(3, ""), 0o700), (place.file(3, MANIFEST_FILE), 0o600)] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{path:?}");
    }
}

#[test]
fn the_newest_is_found_by_its_number_and_latest_points_to_it() {
    let place = Place::with(&[5, 10, 999_999, 1_000_000]);
    assert_eq!(place.store().load("17", None).unwrap().manifest.round, 1_000_000);
    assert_eq!(place.latest(), Path::new("round-1000000"));
    same(&place.store().load("17", Some(10)).unwrap(), &checkpoint("17", 10));
}

#[test]
fn a_round_that_is_saved_again_is_replaced() {
    let place = Place::with(&[5]);
    let mut again = checkpoint("17", 5);
    again.manifest.is_final = true;
    again.model = every_dtype();
    place.store().save(&again).unwrap();
    same(&place.store().load("17", None).unwrap(), &again);
    assert_eq!(place.names(), [".lock", "latest", "round-000005"]);
}

/// The whole point. A save is stopped before each of its steps, as by power; what was there before is there after, or the
/// new one is, and the next save leaves nothing of it.
#[test]
fn killed_at_any_step_the_one_before_or_the_new_one_is_there() {
    let mut outcomes = std::collections::BTreeSet::new();
    for (before, new) in [(5, 10), (5, 5)] {
        for steps in 0.. {
            let place = Place::with(&[before]);
            let failing = place.failing(steps, Failure::Killed);
            let mut next = checkpoint("17", new);
            next.manifest.is_final = true;
            let saved = failing.save(&next);
            assert_eq!(saved.is_err(), failing.disk.trap.has_sprung(), "{steps}: {saved:?}");
            if saved.is_ok() {
                assert!(steps > 15, "only {steps} steps were tried");
                break;
            }
            let loaded = place.store().open("17", None).unwrap();
            assert!(loaded.skipped.is_empty(), "{steps}");
            let found = loaded.checkpoint;
            same(&found, &if found.manifest.is_final { next } else { checkpoint("17", before) });
            outcomes.insert((before, new, found.manifest.is_final));
            let target = place.root.path().join("17").join(place.latest());
            assert!(ModelStore::load_path(&target).is_ok(), "{steps}: latest is not whole");

            place.store().save(&checkpoint("17", 15)).unwrap();
            assert!(place.names().iter().all(|name| !name.starts_with(".unfinished")), "{steps}: {:?}", place.names());
            assert_eq!(place.store().load("17", None).unwrap().manifest.round, 15);
            assert_eq!(place.latest(), Path::new("round-000015"));
        }
    }
    // Both ends were seen, for a new round and for one that is saved again.
    assert_eq!(outcomes.len(), 4);
}

#[test]
fn killed_at_any_step_of_the_first_save_there_is_none_or_all() {
    for steps in 0.. {
        let place = Place::new();
        let saved = place.failing(steps, Failure::Killed).save(&checkpoint("17", 1));
        if saved.is_ok() {
            break;
        }
        match place.store().open("17", None) {
            Ok(loaded) => same(&loaded.checkpoint, &checkpoint("17", 1)),
            Err(error) => assert!(matches!(error, ModelError::NoRun { .. }), "{steps}: {error}"),
        }
        place.store().save(&checkpoint("17", 1)).unwrap();
        assert_eq!(place.names(), [".lock", "latest", "round-000001"]);
    }
}

#[test]
fn killed_at_any_step_of_retention_the_newest_stay() {
    for steps in 0.. {
        let place = Place::with(&[1, 2, 3, 4]);
        let failing = place.failing(steps, Failure::Killed);
        if failing.retain("17", 2).is_ok() {
            break;
        }
        let rounds: Vec<u64> = place.store().list().unwrap().iter().map(|entry| entry.round).collect();
        assert!(rounds.ends_with(&[3, 4]), "{steps}: {rounds:?}");
        for round in rounds {
            place.store().load("17", Some(round)).unwrap();
        }
        place.store().retain("17", 2).unwrap();
        assert_eq!(place.names(), [".lock", "latest", "round-000003", "round-000004"], "{steps}");
    }
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing_half_done() {
    let mut refused = 0;
    for steps in 0.. {
        let place = Place::with(&[5]);
        let failing = place.failing(steps, Failure::DiskFull);
        let saved = failing.save(&checkpoint("17", 10));
        if !failing.disk.trap.has_sprung() {
            break;
        }
        // A lost attempt to sweep elsewhere, or to lock there, is no reason to fail.
        let Err(error) = saved else { continue };
        refused += 1;
        let ModelError::Disk { source, .. } = &error else { panic!("{steps}: {error}") };
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull, "{steps}");
        assert!(error.to_string().contains(place.root.path().to_str().unwrap()), "{error}");
        assert!(
            place.names().iter().all(|name| !name.starts_with(".unfinished-round")),
            "{steps}: {:?}",
            place.names()
        );
        let loaded = place.store().open("17", None).unwrap();
        assert!(loaded.skipped.is_empty());
        let round = loaded.checkpoint.manifest.round;
        same(&loaded.checkpoint, &checkpoint("17", round));
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn what_a_killed_run_left_is_swept_by_whoever_saves_next() {
    let place = Place::with(&[5]);
    let left = place.root.path().join("17/.unfinished-round-000010");
    fs::create_dir(&left).unwrap();
    fs::write(left.join(MODEL_FILE), b"half").unwrap();
    let lock = place.store().disk.lock(&place.root.path().join("17")).unwrap();
    place.store().save(&checkpoint("18", 1)).unwrap();
    assert!(left.exists(), "its owner is at work");
    drop(lock);
    let strange = place.root.path().join("mine");
    fs::create_dir(&strange).unwrap();
    place.store().save(&checkpoint("18", 2)).unwrap();
    assert!(!left.exists());
    assert_eq!(disk::names(&strange).unwrap(), Vec::<String>::new(), "what is not ours is left alone");
}

#[test]
fn damage_is_found_named_and_gone_around() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm, &str); 6] = [
        (MODEL_FILE, |path| fs::remove_file(path).unwrap(), "model.safetensors: it is missing"),
        (STATE_FILE, |path| fs::remove_file(path).unwrap(), "state.safetensors: it is missing"),
        (MANIFEST_FILE, |path| fs::remove_file(path).unwrap(), "manifest.json is missing"),
        (MANIFEST_FILE, |path| fs::write(path, b"{\"format\": 1").unwrap(), "manifest.json cannot be read"),
        (MODEL_FILE, flip_a_bit, "model.safetensors: its SHA-256 is"),
        (STATE_FILE, |path| fs::write(path, b"short").unwrap(), "state.safetensors: it has 5 bytes, and must have"),
    ];
    for (name, harm, told) in harms {
        let place = Place::with(&[5, 10]);
        harm(&place.file(10, name));
        let loaded = place.store().open("17", None).unwrap();
        same(&loaded.checkpoint, &checkpoint("17", 5));
        let [Skipped { path, why }] = loaded.skipped.as_slice() else { panic!("{:?}", loaded.skipped) };
        assert_eq!(*path, place.file(10, "").parent().unwrap().join("round-000010"));
        assert!(matches!(why, ModelError::Damaged { .. }) && why.to_string().contains(told), "{why}");
        let asked_for = place.store().load("17", Some(10)).unwrap_err().to_string();
        assert!(asked_for.contains(told) && asked_for.contains("round-000010"), "{asked_for}");

        harm(&place.file(5, name));
        let error = place.store().load("17", None).unwrap_err().to_string();
        assert!(error.contains("round-000010") && error.contains("round-000005"), "{error}");
    }
}

fn flip_a_bit(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn all_damaged_files_are_told_at_once() {
    let place = Place::with(&[5]);
    flip_a_bit(&place.file(5, MODEL_FILE));
    flip_a_bit(&place.file(5, STATE_FILE));
    let error = place.store().load("17", Some(5)).unwrap_err().to_string();
    assert!(error.contains(MODEL_FILE) && error.contains(STATE_FILE), "{error}");
}

/// Going on from an older round without a word would lose work.
#[test]
fn a_newer_format_is_refused_and_not_gone_around() {
    let place = Place::with(&[5, 10]);
    fs::write(place.file(10, MANIFEST_FILE), b"{\"format\": 2, \"unknown\": true}").unwrap();
    let error = place.store().load("17", None).unwrap_err();
    assert!(matches!(error, ModelError::TooNew { found: 2, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("newer Trellis"), "{error}");
}

#[test]
fn what_is_not_there_is_told_with_what_is() {
    let place = Place::with(&[5, 10]);
    let error = |run: &str, round| place.store().load(run, round).unwrap_err().to_string();
    assert!(error("18", None).contains("no checkpoints of run 18"));
    assert!(error("17", Some(7)).contains("those of rounds 5, 10"));
    for bad in ["../17", "", "a/b", ".lock", "a b"] {
        assert!(error(bad, None).contains("cannot be the id of a run"), "{bad:?}");
    }
    let error = ModelStore::load_path(&place.root.path().join("nowhere")).unwrap_err().to_string();
    assert!(error.contains("holds no checkpoint"), "{error}");
}

#[test]
fn a_model_that_contradicts_itself_is_not_saved() {
    let place = Place::new();
    let mut bad = checkpoint("17", 1);
    bad.model = testing::model([
        testing::array("w", Dtype::F32, &[2]),
        testing::array("w", Dtype::F32, &[2]),
        testing::array("__metadata__", Dtype::F32, &[2]),
    ]);
    bad.state.models.get_mut("momentum").unwrap().arrays[1] = vec![0; 3].into();
    let error = place.store().save(&bad).unwrap_err().to_string();
    for told in ["two arrays called \"w\"", "called __metadata__", "\"steps\" of \"momentum\" of the state has 3 bytes"]
    {
        assert!(error.contains(told), "{told}: {error}");
    }
    assert!(!place.root.path().join("17").exists());
}

#[test]
fn retention_keeps_the_newest_that_are_whole() {
    let place = Place::with(&[1, 2, 3, 4, 5]);
    fs::write(place.file(5, MODEL_FILE), b"short").unwrap();
    let removed = place.store().retain("17", 2).unwrap();
    assert_eq!(removed, [place.root.path().join("17/round-000002"), place.root.path().join("17/round-000001")]);
    assert_eq!(place.names(), [".lock", "latest", "round-000003", "round-000004", "round-000005"]);
    assert_eq!(place.store().retain("17", 0).unwrap().len(), 1, "none at all is never right");
    assert_eq!(place.store().retain("18", 2).unwrap(), Vec::<PathBuf>::new());
    place.store().load("17", None).unwrap();
}

#[test]
fn the_list_shows_what_is_there_and_what_is_wrong_with_it() {
    let place = Place::with(&[5, 10]);
    place.store().save(&checkpoint("4", 2)).unwrap();
    fs::write(place.root.path().join("note.txt"), b"mine").unwrap();
    fs::create_dir(place.root.path().join("17/round-7")).unwrap();
    fs::remove_file(place.file(5, MANIFEST_FILE)).unwrap();
    let list = place.store().list().unwrap();
    let told: Vec<(&str, u64, bool, bool)> =
        list.iter().map(|entry| (entry.run_id.as_str(), entry.round, entry.latest, entry.manifest.is_ok())).collect();
    assert_eq!(told, [("17", 5, false, false), ("17", 10, true, true), ("4", 2, true, true)]);
    assert!(ModelStore::new(place.root.path().join("nowhere")).list().unwrap().is_empty());
}

#[test]
fn removed_checkpoints_leave_nothing_behind() {
    let place = Place::with(&[1, 2, 3]);
    place.store().save(&checkpoint("4", 2)).unwrap();
    place.store().remove("17", 3).unwrap();
    assert_eq!(place.latest(), Path::new("round-000002"));
    place.store().remove("17", 1).unwrap();
    assert_eq!((place.latest(), place.store().list().unwrap().len()), (PathBuf::from("round-000002"), 2));
    place.store().remove("17", 2).unwrap();
    assert_eq!(place.names(), [".lock"]);
    assert_eq!(place.store().remove_run("4").unwrap(), [2]);
    assert_eq!(disk::names(place.root.path()).unwrap(), ["17"]);
    assert_eq!(place.store().remove_run("4").unwrap(), [0; 0]);
    assert!(place.store().remove_run("../17").is_err());
}

#[test]
fn a_model_is_opened_by_its_path_and_nothing_else_is() {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    let place = Place::with(&[1, 2]);
    let store = place.store();
    let path = store.list().unwrap()[0].model_path();
    assert_eq!(path, "17/round-000001/model.safetensors");
    let mut read = Vec::new();
    store.open_model(&path).unwrap().expect("a model").read_to_end(&mut read).unwrap();
    assert_eq!(read, fs::read(place.file(1, MODEL_FILE)).unwrap());
    for none in [
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
        assert!(store.open_model(none).unwrap().is_none(), "{none}");
    }
    // Links, at every level, and a directory in place of the file.
    let elsewhere = Place::with(&[1]);
    symlink(elsewhere.root.path().join("17"), place.root.path().join("18")).unwrap();
    symlink(elsewhere.file(1, ""), place.root.path().join("17/round-000007")).unwrap();
    fs::create_dir(place.root.path().join("17/round-000008")).unwrap();
    symlink(elsewhere.file(1, MODEL_FILE), place.file(8, MODEL_FILE)).unwrap();
    fs::create_dir_all(place.file(10, MODEL_FILE)).unwrap();
    for linked in ["18/round-000001", "17/round-000007", "17/round-000008", "17/round-000010"] {
        assert!(store.open_model(&format!("{linked}/model.safetensors")).unwrap().is_none(), "{linked}");
    }
    assert_eq!(store.runs().unwrap(), ["17"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_model_comes_back(
        shapes in prop::collection::vec((0..Dtype::ALL.len(), prop::collection::vec(0usize..5, 0..4)), 0..20),
        names in prop::collection::hash_set(".{0,8}", 20),
    ) {
        prop_assume!(!names.contains("__metadata__"));
        let arrays = shapes.iter().zip(&names).map(|((dtype, shape), name)| testing::array(name, Dtype::ALL[*dtype], shape));
        let mut saved = checkpoint("17", 1);
        saved.model = testing::model(arrays);
        saved.state.models.insert(names.iter().next().unwrap().clone(), saved.model.clone());
        let place = Place::new();
        place.store().save(&saved).unwrap();
        same(&place.store().load("17", None).unwrap(), &saved);
    }
}
