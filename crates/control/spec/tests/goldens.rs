//! Invalid documents and their exact diagnostics: `bad/*.yaml` (or `.json`) and `bad/*.txt`.
//! UPDATE_GOLDENS=1 writes the diagnostics instead; review the difference.

use std::path::{Path, PathBuf};

#[test]
fn what_is_wrong_is_said_in_these_words() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let mut documents: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    documents.retain(|path| path.extension().is_some_and(|ending| ending != "txt"));
    documents.sort();
    assert!(documents.len() >= 20, "the folder has all its documents");

    let mut different = Vec::new();
    for path in documents {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let told = match trellis_spec::read(&text, name) {
            Ok(_) => panic!("{name} is read without a word"),
            Err(problems) => format!("{problems}\n"),
        };
        let golden = path.with_extension("txt");
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(&golden, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if told != expected {
            different.push(format!("--- {name} was expected to say\n{expected}--- and says\n{told}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
