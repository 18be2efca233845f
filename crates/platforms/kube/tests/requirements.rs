//! The table of requirements (docs/kubernetes/requirements.md) has every row, and names only tests that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Rows of each part: API, status, objects, loop, packaging, TLS, tests.
const ROWS: [(&str, usize); 7] = [("A", 14), ("S", 8), ("O", 12), ("L", 9), ("P", 5), ("T", 6), ("Q", 5)];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

#[test]
fn every_row_is_there_and_every_test_it_names_exists() {
    let table = fs::read_to_string(repository().join("docs/kubernetes/requirements.md")).expect("the table");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| id"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let ids: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let expected: Vec<String> =
        ROWS.iter().flat_map(|(part, most)| (1..=*most).map(move |number| format!("{part}{number}"))).collect();
    assert_eq!(ids, expected);

    let tests = tests();
    let mut missing = Vec::new();
    for row in &rows {
        let how = row[2];
        // A test name is words with underscores between backticks; other text there is a file, a field or a command.
        let named =
            how.split('`').skip(1).step_by(2).filter(|name| name.contains('_') && !name.contains(['.', ' ', '/']));
        missing.extend(named.filter(|name| !tests.contains(*name)).map(|name| format!("{}: {name}", row[0])));
    }
    assert!(missing.is_empty(), "there are no such tests: {missing:#?}");
}

/// Names of all functions in the Rust and Python code of the repository.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut left = vec![repository().join("crates"), repository().join("tests")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of the repository").flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "py") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                for part in text.split("fn ").skip(1).chain(text.split("def ").skip(1)) {
                    names.insert(part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect());
                }
            }
        }
    }
    names
}
