use std::io::Write as _;
use std::path::PathBuf;

use proptest::prelude::*;

use super::super::app_directory::MARKER;
use super::super::testing::{Entry, app, entry, zip};
use super::*;

const MAX_BYTES: u64 = 1 << 20;

/// All files and directories below a directory; links are not followed.
fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(
            |path| if path.is_dir() && !path.is_symlink() { [below(&path), vec![path]].concat() } else { vec![path] },
        )
        .collect()
}

/// Unpacks into a directory; returns the result and the content, and checks that nothing was written outside.
fn tried(content: &[u8]) -> (Result<(), FabError>, Vec<PathBuf>) {
    let world = tempfile::tempdir().unwrap();
    let inside = world.path().join("deep/app");
    fs::create_dir_all(&inside).unwrap();
    let result = unpack(content, &inside, MAX_BYTES);
    let outside: Vec<PathBuf> = below(world.path()).into_iter().filter(|path| !path.starts_with(&inside)).collect();
    assert_eq!(outside, [world.path().join("deep")], "nothing is written outside");
    (result, below(&inside))
}

fn with_mode(name: &str, mode: u32) -> Entry {
    Entry { mode, ..entry(name, "/etc/passwd") }
}

#[test]
fn a_valid_app_is_unpacked_without_its_content_list() {
    let files = [entry("app/__init__.py", ""), with_mode("app/client.py", 0o100_755), with_mode("data/", 0o040_755)];
    let mut entries = app(&files[..2]);
    entries.push(Entry { content: vec![], ..files[2].clone() });
    let world = tempfile::tempdir().unwrap();
    unpack(&zip(&entries), world.path(), MAX_BYTES).unwrap();
    let mut found = below(world.path());
    found.sort();
    let names = ["app", "app/__init__.py", "app/client.py", "data", "pyproject.toml"];
    assert_eq!(found, names.map(|name| world.path().join(name)));
    assert_eq!(fs::read_to_string(world.path().join("app/client.py")).unwrap(), "/etc/passwd");
}

#[test]
fn malicious_zips_are_refused() {
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    let longer = "x/".repeat(20) + &"y".repeat(MAX_PATH_BYTES);
    let deep = "d/".repeat(MAX_DEPTH) + "f";
    let outside = "is not a path below";
    let overwrites = "would overwrite";
    let plain = "is neither a regular file nor a directory";
    let not_a_name = "has characters";
    let cases: Vec<(&str, Vec<Entry>, &str)> = vec![
        ("absolute", vec![entry("/etc/evil", "x")], outside),
        ("parent", vec![entry("../evil", "x")], outside),
        ("parent inside", vec![entry("a/../../evil", "x")], outside),
        ("parent of nothing", vec![entry("a/..", "x")], outside),
        ("parent directory", vec![entry("../", "")], outside),
        ("here", vec![entry("./a", "x")], outside),
        ("doubled slash", vec![entry("a//b", "x")], outside),
        ("root", vec![entry("/", "")], outside),
        ("no name", vec![entry("", "x")], outside),
        ("backslashes", vec![entry("..\\evil", "x")], not_a_name),
        ("drive", vec![entry("C:evil", "x")], not_a_name),
        ("zero byte", vec![entry("a\0b", "x")], not_a_name),
        ("line break", vec![entry("a\nb", "x")], not_a_name),
        ("not text", vec![Entry { name: vec![0xff, 0xfe], ..entry("", "x") }], "not UTF-8"),
        ("long name", vec![entry(&long, "x")], "is too long"),
        ("long path", vec![entry(&longer, "x")], "is too long"),
        ("deep path", vec![entry(&deep, "x")], "is nested too deeply"),
        ("symlink", vec![with_mode("link", 0o120_777)], plain),
        ("symlink, then through it", vec![with_mode("link", 0o120_777), entry("link/evil", "x")], plain),
        ("device", vec![with_mode("device", 0o020_666)], plain),
        ("pipe", vec![with_mode("pipe", 0o010_666)], plain),
        ("directory that is called a file", vec![with_mode("a", 0o040_755)], plain),
        ("file that is called a directory", vec![with_mode("a/", 0o100_644)], plain),
        ("twice", vec![entry("a", "x"), entry("a", "y")], "is invalid"),
        ("other case", vec![entry("a.py", "x"), entry("A.py", "y")], overwrites),
        ("other case above", vec![entry("a/b", "x"), entry("A/c", "y")], overwrites),
        ("file, then below it", vec![entry("a", "x"), entry("a/b", "y")], overwrites),
        ("directory, then file", vec![entry("a/b", "x"), entry("a", "y")], overwrites),
        ("our marker", vec![entry(MARKER, "f00d")], overwrites),
        ("our copy of the bundle", vec![entry(".trellis-bundle.fab/x", "")], overwrites),
        ("our marker as a directory", vec![entry(".Trellis-Installed/x", "")], overwrites),
        ("encrypted", vec![Entry { flags: 1, ..entry("a", "x") }], "is encrypted"),
        ("too large", vec![entry("a", &"x".repeat(1 << 20))], "exceeds the limit of 1048576 bytes"),
    ];
    for (what, files, part) in cases {
        let (result, _) = tried(&zip(&app(&files)));
        let problem = result.expect_err(what).to_string();
        assert!(problem.contains(part), "{what}: {problem}");
    }
}

#[test]
fn nothing_is_written_before_all_names_are_checked() {
    let (result, found) = tried(&zip(&app(&[entry("good.py", "x"), entry("../evil", "x")])));
    assert!(result.is_err());
    assert_eq!(found, Vec::<PathBuf>::new());
}

#[test]
fn too_many_files() {
    let files: Vec<Entry> = (0..MAX_ENTRIES).map(|number| entry(&number.to_string(), "")).collect();
    assert!(
        tried(&zip(&files)).0.unwrap_err().to_string().contains("it has no .info/CONTENT"),
        "the limit itself is allowed"
    );
    let (result, found) = tried(&zip(&app(&files)));
    assert!(result.unwrap_err().to_string().contains("the limit is 10000"));
    assert!(found.is_empty());
    // Few files, in many directories.
    let files: Vec<Entry> =
        (0..MAX_ENTRIES / 20).map(|number| entry(&format!("{number}/{}f", "d/".repeat(25)), "")).collect();
    assert!(tried(&zip(&app(&files))).0.unwrap_err().to_string().contains("files and directories"));
}

#[test]
fn unpacking_a_zip_bomb_stops_at_the_limit() {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("bomb", zip::write::SimpleFileOptions::default()).unwrap();
    for _ in 0..64 {
        writer.write_all(&[0; 1 << 20]).unwrap();
    }
    let content = writer.finish().unwrap().into_inner();
    assert!(content.len() < 1 << 20);
    let world = tempfile::tempdir().unwrap();
    let problem = unpack(&content, world.path(), MAX_BYTES).unwrap_err().to_string();
    assert!(problem.contains("exceeds the limit of 1048576 bytes"), "{problem}");
    assert!(fs::metadata(world.path().join("bomb")).unwrap().len() <= MAX_BYTES);
}

#[test]
fn the_content_list_is_compared() {
    let sound = app(&[entry("a.py", "x")]);
    let listed = |list: &str| {
        let mut entries = sound.clone();
        entries.last_mut().unwrap().content = list.into();
        tried(&zip(&entries)).0.map_err(|error| error.to_string())
    };
    let hash = trellis_digest::sha256_hex(b"x");
    // Files may be missing in the list.
    assert_eq!(listed(&format!("a.py,{hash},8")), Ok(()));
    let cases = [
        (String::new(), "has a line"),
        (format!("a.py,{hash}"), "has a line"),
        (format!("a.py,{hash},8\n\na.py,{hash},8"), "has a line"),
        (format!("b.py,{hash},8"), "does not match"),
        (format!("../../../etc/passwd,{hash},8"), "does not match"),
        (format!("a.py,{},8", hash.to_uppercase()), "does not match"),
        (format!("a.py,{},8", hash.replace('2', "3")), "does not match"),
    ];
    for (list, part) in cases {
        let problem = listed(&list).unwrap_err();
        assert!(problem.contains(part), "{list:?}: {problem}");
    }
    let without = &sound[..sound.len() - 1];
    assert!(tried(&zip(without)).0.unwrap_err().to_string().contains("it has no .info/CONTENT"));
}

#[test]
fn damaged_zips_are_refused() {
    let content = zip(&app(&[entry("a.py", "some text")]));
    let mut flipped = content.clone();
    let place = flipped.windows(9).position(|window| window == b"some text").unwrap();
    flipped[place] ^= 1;
    for bad in [&b""[..], b"PK", &content[..content.len() / 2], &flipped] {
        assert!(matches!(tried(bad).0, Err(FabError::Bad(_))));
    }
}

/// Names that consist of parts used to escape a directory.
fn name() -> impl Strategy<Value = String> {
    let pieces =
        ["..", ".", "/", "//", "a", "b", "A", "\\", "C:", "~", "etc", ".info", "CONTENT", "\0", "é", " ", "%2e"];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// With any names and modes nothing is written outside; `tried` checks it.
    #[test]
    fn nothing_lands_outside(entries in prop::collection::vec((name(), prop::sample::select(vec![0, 0o100_644, 0o120_777, 0o040_755])), 0..6)) {
        let files: Vec<Entry> = entries.iter().map(|(name, mode)| with_mode(name, *mode)).collect();
        let (result, found) = tried(&zip(&app(&files)));
        prop_assert!(found.iter().all(|path| !path.is_symlink()));
        prop_assert!(!matches!(result, Err(FabError::Disk { .. })), "every accepted name is valid on disk");
    }

    /// Any damage gives a result and no panic.
    #[test]
    fn any_bytes(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut content = zip(&app(&[entry("a/b.py", "x")]));
        for (place, byte) in damage {
            let place = place.index(content.len());
            content[place] = byte;
        }
        let (result, _) = tried(&content);
        let disk = matches!(result, Err(FabError::Disk { .. }));
        prop_assert!(!disk);
    }
}
