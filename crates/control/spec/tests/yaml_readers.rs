//! The parser of this crate has limits on size, depth and aliases. No other crate of the workspace may parse YAML.

use std::fs;
use std::path::{Path, PathBuf};

/// Substrings of the names of YAML crates in a manifest.
const YAML_CRATES: [&str; 3] = ["yaml", "saphyr", "libyml"];
/// The parser with limits, and the writer, which only reads JSON of this program.
const ALLOWED: [&str; 2] = ["crates/control/spec/src/tree.rs", "crates/control/spec/src/yaml.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// All files below a directory with this ending, without build outputs.
fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && !["target", "node_modules", ".git"].contains(&name.as_str()) {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_other_crate_depends_on_a_yaml_reader() {
    let root = root();
    let manifests = [files(&root.join("crates"), "Cargo.toml"), files(&root.join("fuzz"), "Cargo.toml")].concat();
    assert!(manifests.len() > 20, "they are found");
    for manifest in manifests.iter().filter(|path| !path.starts_with(root.join("crates/control/spec"))) {
        for line in fs::read_to_string(manifest).unwrap().lines() {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            let reads_yaml = line.contains('=') && YAML_CRATES.iter().any(|word| name.contains(word));
            assert!(!reads_yaml, "{}: {line}: use trellis_spec::yaml::read", manifest.display());
        }
    }
}

#[test]
fn only_the_guarded_parser_calls_the_yaml_crate() {
    let root = root();
    let sources = files(&root.join("crates"), ".rs");
    let naming: Vec<String> = sources
        .iter()
        .filter(|path| fs::read_to_string(path).unwrap().contains("yaml_rust2"))
        .map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
        .filter(|path| path != "crates/control/spec/tests/yaml_readers.rs")
        .collect();
    assert!(naming.iter().all(|path| ALLOWED.contains(&path.as_str())), "{naming:?}");
    assert!(naming.contains(&ALLOWED[0].to_owned()), "the search finds what is there: {naming:?}");
}
