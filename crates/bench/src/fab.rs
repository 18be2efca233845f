//! A minimal app bundle (FAB), so that a run can be started without any app on disk.

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use std::io::{Cursor, Write};
use trellis_wire::proto::Fab;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime, result::ZipError};

const PYPROJECT: &str = r#"[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "load"
version = "1.0.0"
description = "Started by the load generator; never executed"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "bench"

[tool.flwr.app.components]
serverapp = "load:server"
clientapp = "load:client"

[tool.flwr.app.config]
"#;

const MODULE: &str = "server = None\nclient = None\n";

/// The bundle as `flwr build` would lay it out: stored entries, the project file first, the list of contents last.
pub fn build() -> Result<Fab, ZipError> {
    let files = [("pyproject.toml", PYPROJECT), ("load.py", MODULE)];
    let mut contents = String::new();
    for (path, text) in files {
        contents.push_str(&format!("{path},{},{}\n", sha256_hex(text.as_bytes()), text.len() * 8));
    }

    let stamp = DateTime::from_date_and_time(2024, 10, 1, 0, 0, 0)?;
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).last_modified_time(stamp);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, text) in files.into_iter().chain([(".info/CONTENT", contents.as_str())]) {
        archive.start_file(path, options)?;
        archive.write_all(text.as_bytes())?;
    }
    let content = Bytes::from(archive.finish()?.into_inner());
    Ok(Fab { hash_str: sha256_hex(&content), content, verifications: Default::default() })
}

fn sha256_hex(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use zip::ZipArchive;

    #[test]
    fn the_bundle_holds_what_a_superlink_reads() {
        let fab = build().unwrap();
        assert_eq!(fab.hash_str, sha256_hex(&fab.content));

        let mut archive = ZipArchive::new(Cursor::new(fab.content)).unwrap();
        let names: Vec<String> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
        assert_eq!(names, ["pyproject.toml", "load.py", ".info/CONTENT"]);

        let mut entry = archive.by_name("pyproject.toml").unwrap();
        assert_eq!(entry.compression(), CompressionMethod::Stored);
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        drop(entry);
        let project: toml::Table = text.parse().unwrap();
        assert_eq!(project["project"]["name"].as_str(), Some("load"));
        assert_eq!(project["tool"]["flwr"]["app"]["publisher"].as_str(), Some("bench"));
        assert_eq!(project["tool"]["flwr"]["app"]["components"]["serverapp"].as_str(), Some("load:server"));

        let mut listed = String::new();
        archive.by_name(".info/CONTENT").unwrap().read_to_string(&mut listed).unwrap();
        assert!(listed.contains(&format!("pyproject.toml,{},{}", sha256_hex(text.as_bytes()), text.len() * 8)));
    }

    #[test]
    fn the_same_bundle_has_the_same_hash() {
        assert_eq!(build().unwrap().hash_str, build().unwrap().hash_str);
    }
}
