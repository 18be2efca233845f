use super::*;

fn metadata(publisher: &str, name: &str, version: &str) -> FabMetadata {
    FabMetadata { publisher: publisher.into(), name: name.into(), version: version.into() }
}

const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn names_of_directories_are_sanitized() {
    let world = tempfile::tempdir().unwrap();
    let app_directory = AppDirectory::open(world.path()).unwrap();
    let cases = [
        (metadata("me", "app", "1.2"), "me.app.1.2.01234567"),
        (metadata("..", "..", ".."), "_.._.._..01234567"),
        (metadata("../x", "a/b\\c", "1\0\n"), "_._x.a_b_c.1__.01234567"),
        (metadata("/", "ä b", "1"), "_.__b.1.01234567"),
    ];
    for (metadata, want) in cases {
        assert_eq!(app_directory.path_of(&metadata, HASH), world.path().join(want));
    }
    let long = "x".repeat(500);
    let place = app_directory.path_of(&metadata(&long, &long, &long), HASH);
    assert!(place.file_name().unwrap().len() < 200);
}

fn installation(name: usize, days: u64) -> Installation {
    let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 * 24 * 3600) - Duration::from_secs(days * 24 * 3600);
    Installation { directory: name.to_string().into(), hash: name.to_string(), used }
}

#[test]
fn apps_that_were_not_used_for_long_are_removed() {
    let now = installation(0, 0).used;
    let removed = |ages: &[u64], in_use: &[usize]| {
        let installed = ages.iter().enumerate().map(|(name, days)| installation(name, *days)).collect();
        let in_use = in_use.iter().map(usize::to_string).collect();
        let mut names: Vec<String> = to_remove(installed, &in_use, now).into_iter().map(|app| app.hash).collect();
        names.sort();
        names
    };
    assert_eq!(removed(&[100; MIN_KEPT], &[]), [""; 0], "the minimum is kept, however old");
    assert_eq!(removed(&[20, 1, 1, 1, 1, 30, 1, 1, 1, 1], &[]), ["0", "5"]);
    assert_eq!(removed(&[20, 1, 1, 1, 1, 30, 1, 1, 1, 1], &[5]), ["0"]);
    assert_eq!(removed(&[13; 20], &[]), [""; 0], "not old enough");
}

#[test]
fn a_sweep_removes_old_apps_and_orphans_only() {
    let world = tempfile::tempdir().unwrap();
    let name = |number: usize| world.path().join(format!("me.app{number}.1.01234567"));
    for number in 0..MIN_KEPT + 2 {
        let app_directory = AppDirectory::open(world.path()).unwrap();
        let unpack = |empty: &Path| fs::write(empty.join("a.py"), "").map_err(FabError::disk(empty));
        app_directory.install(&name(number), &number.to_string(), b"a bundle", unpack).unwrap();
    }
    fs::create_dir(world.path().join(".unpacking-x")).unwrap();
    fs::create_dir(world.path().join("somebody's")).unwrap();
    let old = |number: usize| {
        let marker = File::options().append(true).open(name(number).join(MARKER)).unwrap();
        marker.set_modified(SystemTime::now() - 2 * MAX_UNUSED).unwrap();
    };
    old(0);
    old(1);
    let gone = sweep(world.path(), &BTreeSet::from(["1".to_owned()]), SystemTime::now()).unwrap();
    assert_eq!(gone, [world.path().join(".unpacking-x"), name(0)]);
    assert!(!name(0).exists() && name(1).exists() && world.path().join("somebody's").exists());
    assert!(!world.path().join(".unpacking-x").exists());
}
