//! What a FAB says about itself. A FAB is a zip with a `pyproject.toml`; it comes from outside and is not trusted.

use std::io::{Cursor, Read};

use trellis_core::refusal::{Kind, Refusal};

/// The largest FAB that is taken, as in Flower.
pub const MAX_FAB_BYTES: usize = 10 << 20;
/// The largest `pyproject.toml` that is read.
const MAX_PYPROJECT_BYTES: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub struct FabMetadata {
    /// `publisher/name`.
    pub id: String,
    pub version: String,
}

fn bad(why: String) -> Refusal {
    Refusal::new(Kind::Precondition, format!("The FAB cannot be used: {why}"))
}

/// Reads the app's `pyproject.toml`.
pub fn pyproject(fab: &[u8]) -> Result<toml::Table, Refusal> {
    let mut archive = zip::ZipArchive::new(Cursor::new(fab)).map_err(|error| bad(format!("not a zip ({error})")))?;
    let file = archive.by_name("pyproject.toml").map_err(|_| bad("it has no pyproject.toml".into()))?;
    let mut text = String::new();
    file.take(MAX_PYPROJECT_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| bad(format!("pyproject.toml cannot be read ({error})")))?;
    text.parse().map_err(|error: toml::de::Error| bad(format!("pyproject.toml: {}", error.message())))
}

/// Reads publisher, name and version.
pub fn metadata(fab: &[u8]) -> Result<FabMetadata, Refusal> {
    let project = pyproject(fab)?;
    let find = |path: &[&str]| {
        let mut value = project.get(path[0]);
        for key in &path[1..] {
            value = value.and_then(|value| value.get(key));
        }
        value.and_then(toml::Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let wanted = [["project", "name"].as_slice(), &["project", "version"], &["tool", "flwr", "app", "publisher"]];
    let missing: Vec<String> = wanted.iter().filter(|path| find(path).is_none()).map(|path| path.join(".")).collect();
    if !missing.is_empty() {
        return Err(bad(format!("pyproject.toml lacks {}", missing.join(", "))));
    }
    let [name, version, publisher] = wanted.map(|path| find(path).unwrap_or_default());
    Ok(FabMetadata { id: format!("{publisher}/{name}"), version })
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
    fn a_sound_fab_is_read() {
        let text = "[project]\nname='app'\nversion='1.2'\n[tool.flwr.app]\npublisher='me'";
        let metadata = metadata(&fab("pyproject.toml", text)).unwrap();
        assert_eq!(metadata, FabMetadata { id: "me/app".into(), version: "1.2".into() });
    }

    #[test]
    fn what_is_wrong_is_said_all_at_once() {
        let cases = [
            (b"garbage".to_vec(), "not a zip"),
            (fab("other.toml", ""), "it has no pyproject.toml"),
            (fab("pyproject.toml", "= ="), "pyproject.toml: "),
            (
                fab("pyproject.toml", "[project]\nname=''"),
                "pyproject.toml lacks project.name, project.version, tool.flwr.app.publisher",
            ),
        ];
        for (bytes, part) in cases {
            let refusal = metadata(&bytes).unwrap_err();
            assert_eq!(refusal.kind, Kind::Precondition);
            assert!(refusal.text.contains(part), "{}", refusal.text);
        }
    }
}
