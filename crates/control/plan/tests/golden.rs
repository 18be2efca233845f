//! Planner stories: each file in `golden/` is executed again, and its output must not change.
//!
//! `TRELLIS_BLESS=1 cargo test -p trellis-plan --test golden` writes the new output; review the difference.

mod given;
mod story;

use std::fs;
use std::path::{Path, PathBuf};

/// Minimum number of stories, so that a missing folder fails the test.
const MIN_STORIES: usize = 40;

fn check(path: &Path) -> Result<(), String> {
    let before = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    let now = story::retell(&before);
    if now == before {
        return Ok(());
    }
    if std::env::var_os("TRELLIS_BLESS").is_some() {
        return fs::write(path, now).map_err(|error| format!("{}: {error}", path.display()));
    }
    Err(format!("{} has another output:\n{}", path.display(), difference(&before, &now)))
}

/// The lines around the first difference.
fn difference(before: &str, now: &str) -> String {
    let first = before.lines().zip(now.lines()).take_while(|(before, now)| before == now).count();
    let part = |text: &str| text.lines().skip(first.saturating_sub(3)).take(10).collect::<Vec<_>>().join("\n");
    format!("--- line {}, expected\n{}\n--- actual\n{}", first + 1, part(before), part(now))
}

#[test]
fn stories() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = fs::read_dir(&folder).expect("the folder of stories").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    paths.sort();
    assert!(paths.len() >= MIN_STORIES, "{} stories", paths.len());
    let different: Vec<String> = paths.iter().filter_map(|path| check(path).err()).collect();
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}
