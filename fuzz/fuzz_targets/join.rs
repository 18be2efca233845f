//! Any bytes as the file of `trellis supernode --join`, and as the settings and a named file in a well-formed Secret.
//!
//! Nothing may panic, and whatever the entries are called, files appear in the directory for them and nowhere else.
#![no_main]

#[path = "../../crates/trellis/src/supernode/join.rs"]
mod join;
#[path = "../../crates/trellis/src/private_dir.rs"]
mod private_dir;

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|data: &[u8]| {
    check(data);
    // The first byte says where the bytes are cut in two: the name of an entry, and the settings of the node.
    let cut = data.first().map_or(0, |byte| usize::from(*byte) * data.len() / 256);
    let (name, settings) = data.split_at(cut);
    let secret = json!({
        "kind": "Secret",
        "data": {"node-0.toml": STANDARD.encode(settings), String::from_utf8_lossy(name): STANDARD.encode(b"content")},
    });
    check(secret.to_string().as_bytes());
});

fn check(file: &[u8]) {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("secret");
    fs::write(&path, file).expect("written");
    let kept = home.path().join("state").join(join::DIRECTORY);
    let found = join::settings(&path, None, &kept);
    for entry in fs::read_dir(home.path()).expect("there") {
        let name = entry.expect("an entry").file_name();
        assert!(name == "secret" || name == "state", "{name:?} was written beside the state directory");
    }
    match found {
        Ok(settings) => assert_eq!(settings.parent(), Some(kept.as_path())),
        Err(problems) => assert!(!problems.is_empty()),
    }
}
