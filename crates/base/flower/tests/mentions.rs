//! Ranges of releases in sources, help texts and docs end with the newest supported release, or where a change begins.

use std::path::{Path, PathBuf};

use trellis_flower::Release;
use trellis_flower::changes::CHANGES;

const DIRECTORIES: [&str; 3] = ["crates", "docs", "web/src"];
const FILES: [&str; 2] = ["README.md", "Makefile"];
/// Records of the state when they were written.
const RECORDS: [&str; 3] = ["docs/decisions", "docs/evidence", "/tests/"];
const ENDINGS: [&str; 4] = ["rs", "md", "svelte", "ts"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the repository")
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let is_kept = !RECORDS.iter().any(|record| format!("{}/", path.display()).contains(record));
        if path.is_dir() && is_kept {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ENDINGS.contains(&&*ending.to_string_lossy())) {
            found.push(path);
        }
    }
}

/// The release after each `1.N to 1.`, with or without patches.
fn ends(text: &str) -> Vec<u16> {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let begins = |before: &str| {
        let word = before.rsplit([' ', '\n', '(', '`']).next().unwrap_or_default();
        word.starts_with("1.") && word[2..].starts_with(|c: char| c.is_ascii_digit())
    };
    let parts: Vec<&str> = text.split(" to 1.").collect();
    let pairs = parts.windows(2).filter(|pair| begins(pair[0]));
    pairs.filter_map(|pair| digits(pair[1]).parse().ok()).collect()
}

#[test]
fn ranges_end_with_the_newest_release_or_before_a_change() {
    let mut all: Vec<PathBuf> = FILES.iter().map(|file| root().join(file)).collect();
    for directory in DIRECTORIES {
        files(&root().join(directory), &mut all);
    }
    let mut newest = 0;
    for path in all {
        let text = std::fs::read_to_string(&path).expect("text");
        for end in ends(&text) {
            let before_change = CHANGES.iter().any(|(_, change)| change.minor == end + 1);
            newest += usize::from(end == Release::NEWEST.minor);
            assert!(end == Release::NEWEST.minor || before_change, "{}: a range ends with 1.{end}", path.display());
        }
    }
    assert!(newest > 10, "docs and help name the newest release: {newest}");
}

#[test]
fn ranges_are_found_in_text() {
    assert_eq!(ends("Flower 1.25 to 1.42, (1.25.0 to 1.42.x) and 5 to 1.0 or to 1.3"), [42, 42]);
}
