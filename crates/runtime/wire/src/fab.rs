//! FABs, the bundles of apps: their metadata, and how to build one (`App`).
//!
//! A FAB is a zip with a `pyproject.toml`. FABs come from untrusted sources.

mod app;
mod archive;
mod config;
mod contents;
mod paths;
mod pattern;
mod signatures;
mod text;

use std::io::{Cursor, Read};

use thiserror::Error;

pub use app::{App, Bundle, MAX_BUNDLE_BYTES, MAX_ENTRIES};
pub use config::{CONFIG, Config, config};
pub use paths::{OutsideModels, PATH_SETTINGS, check_path, path_settings};
pub use signatures::{SIGNATURES_FILE, Signature, Signatures, VALID_LICENSE, detach};

const PYPROJECT: &str = "pyproject.toml";

/// Maximum size of a `pyproject.toml`.
pub const MAX_PYPROJECT_BYTES: u64 = 1 << 20;

/// Why a FAB is unusable, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("The FAB cannot be used: {0}")]
pub struct BadFab(pub String);

fn bad(why: impl Into<String>) -> BadFab {
    BadFab(why.into())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabMetadata {
    pub publisher: String,
    pub name: String,
    pub version: String,
}

impl FabMetadata {
    /// `publisher/name`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.publisher, self.name)
    }
}

/// Reads the app's `pyproject.toml`.
pub fn pyproject(fab: &[u8]) -> Result<toml::Table, BadFab> {
    let mut archive = zip::ZipArchive::new(Cursor::new(fab)).map_err(|error| bad(format!("not a zip ({error})")))?;
    let file = archive.by_name(PYPROJECT).map_err(|_| bad("it has no pyproject.toml"))?;
    let mut text = String::new();
    // One byte more than allowed, to detect a file that is too long.
    file.take(MAX_PYPROJECT_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| bad(format!("pyproject.toml cannot be read ({error})")))?;
    if text.len() as u64 > MAX_PYPROJECT_BYTES {
        return Err(bad(format!("pyproject.toml is larger than {MAX_PYPROJECT_BYTES} bytes")));
    }
    text.parse().map_err(|error: toml::de::Error| bad(format!("pyproject.toml: {}", error.message())))
}

/// Reads publisher, name and version.
pub fn metadata(project: &toml::Table) -> Result<FabMetadata, BadFab> {
    let wanted = ["project.name", "project.version", "tool.flwr.app.publisher"];
    let text = |path| find(project, path).and_then(toml::Value::as_str).filter(|text| !text.is_empty());
    let missing: Vec<&str> = wanted.into_iter().filter(|path| text(path).is_none()).collect();
    if !missing.is_empty() {
        return Err(bad(format!("pyproject.toml lacks {}", missing.join(", "))));
    }
    let [name, version, publisher] = wanted.map(|path| text(path).unwrap_or_default().to_owned());
    Ok(FabMetadata { publisher, name, version })
}

/// The ServerApp reference of apps that train natively.
pub const NATIVE_SERVER_APP: &str = "trellis:native";
/// Configuration key that identifies a run for its submitter. The SuperLink starts one run per value and account, so a
/// submission can be retried after a lost answer.
pub const RUN_MARK: &str = "trellis-run";
/// Prefix of ClientApps that are part of Trellis: `trellis:mlp`.
pub const BUILT_IN_CLIENT_APP: &str = "trellis:";

/// Returns whether the app trains with the native ServerApp.
pub fn trains_natively(project: &toml::Table) -> bool {
    let server_app = find(project, "tool.flwr.app.components.serverapp");
    server_app.and_then(toml::Value::as_str) == Some(NATIVE_SERVER_APP)
}

/// Returns the name of the built-in ClientApp that `client_app` (`module:attribute`) refers to.
pub fn built_in(client_app: &str) -> Option<&str> {
    client_app.strip_prefix(BUILT_IN_CLIENT_APP)
}

/// Returns the value at a path of keys joined by dots.
pub fn find<'a>(project: &'a toml::Table, path: &str) -> Option<&'a toml::Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    rest.into_iter().flat_map(|rest| rest.split('.')).try_fold(project.get(first)?, |value, key| value.get(key))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn fab(file: &str, text: &str) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file(file, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
        zip.finish().unwrap().into_inner()
    }

    #[test]
    fn a_valid_fab_is_read() {
        let text = "[project]\nname='app'\nversion='1.2'\n[tool.flwr.app]\npublisher='me'";
        let found = metadata(&pyproject(&fab("pyproject.toml", text)).unwrap()).unwrap();
        assert_eq!(found, FabMetadata { publisher: "me".into(), name: "app".into(), version: "1.2".into() });
        assert_eq!(found.id(), "me/app");
    }

    #[test]
    fn all_errors_are_reported() {
        let long = format!("#{}", "x".repeat(MAX_PYPROJECT_BYTES as usize));
        let cases = [
            (b"garbage".to_vec(), "not a zip"),
            (fab("other.toml", ""), "it has no pyproject.toml"),
            (fab("pyproject.toml", "= ="), "pyproject.toml: "),
            (fab("pyproject.toml", &long), "pyproject.toml is larger than 1048576 bytes"),
            (
                fab("pyproject.toml", "[project]\nname=''"),
                "pyproject.toml lacks project.name, project.version, tool.flwr.app.publisher",
            ),
        ];
        for (bytes, part) in cases {
            let problem = pyproject(&bytes).and_then(|project| metadata(&project)).unwrap_err().to_string();
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn built_in_apps_are_recognised_by_their_prefix() {
        for (server_app, native) in
            [("'trellis:native'", true), ("'app.server:app'", false), ("'trellis:x'", false), ("7", false)]
        {
            let project = format!("[tool.flwr.app.components]\nserverapp = {server_app}").parse().unwrap();
            assert_eq!(trains_natively(&project), native, "{server_app}");
        }
        assert!(!trains_natively(&toml::Table::new()));
        assert_eq!(
            (built_in("trellis:mlp"), built_in("trellis.x:mlp"), built_in("app:app")),
            (Some("mlp"), None, None)
        );
    }

    #[test]
    fn values_are_found_by_their_path() {
        let project = "[a]\nb.c = 1\n[d]".parse().unwrap();
        assert_eq!(find(&project, "a.b.c"), Some(&toml::Value::Integer(1)));
        assert!(
            find(&project, "a").is_some() && find(&project, "d.b").is_none() && find(&project, "a.b.c.d").is_none()
        );
    }
}
