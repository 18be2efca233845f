//! The stored data of an authority, as JSON: its state, and the last leaf issued to each directory.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trellis_digest::{hex, sha256};

use crate::certificate::Certificate;
use crate::disk::{Disk, PRIVATE_DIR, PRIVATE_FILE, entries, read_small};
use crate::rotation::State;
use crate::span::Span;
use crate::{Error, pem};
use trellis_diagnostic::Diagnostic;

/// Of `state.json`. A later version of it is refused.
pub const FORMAT: u32 = 1;
const STATE: &str = "state.json";
const LEAVES: &str = "leaves";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub format: u32,
    pub name: String,
    /// How long a new authority is valid, in seconds.
    #[serde(rename = "validity_s")]
    pub validity: Span,
    pub rotation: State,
    /// Certificates of foreign trusted authorities, PEM.
    pub foreign: Vec<String>,
}

impl Kept {
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(STATE)
    }

    pub fn read(dir: &Path) -> Result<Kept, Error> {
        let path = Kept::path(dir);
        let text = match read_small(&path) {
            Ok((text, _)) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let what = "there is no authority in this directory";
                let advice = "make one: trellis pki init, or give the directory of one";
                return Err(Error::Refused(vec![Diagnostic::in_file(dir, what, advice)]));
            }
            Err(error) => return Err(Error::disk("read", &path)(error)),
        };
        Kept::parse(&path.display().to_string(), &text)
    }

    /// `place` names the source in problems.
    pub fn parse(place: &str, text: &[u8]) -> Result<Kept, Error> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let damaged = |error: serde_json::Error| {
            Error::refused(place, format!("it is damaged: {error}"), "restore it from a backup")
        };
        match serde_json::from_slice(text).map_err(damaged)? {
            Format { format } if format > FORMAT => {
                let what = format!("it was written by a newer version (format {format})");
                Err(Error::refused(place, what, "use a newer trellis"))
            }
            Format { .. } => serde_json::from_slice(text).map_err(damaged),
        }
    }

    pub fn text(&self) -> Vec<u8> {
        json(self)
    }

    pub fn write(&self, disk: &Disk, dir: &Path) -> Result<(), Error> {
        disk.replace_file(&Kept::path(dir), &self.text(), PRIVATE_FILE)
    }
}

/// The last leaf that was issued to a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafRecord {
    pub out: PathBuf,
    pub leaf: Certificate,
}

#[derive(Serialize, Deserialize)]
struct LeafText {
    out: PathBuf,
    certificate: String,
}

impl LeafRecord {
    /// Stores the record unless it is stored already.
    pub fn write(&self, disk: &Disk, dir: &Path) -> Result<(), Error> {
        let path = LeafRecord::path(dir, &self.out);
        let certificate = pem::encode_certificates([self.leaf.der()]);
        let text = json(&LeafText { out: self.out.clone(), certificate });
        if read_small(&path).is_ok_and(|(present, _)| present == text) {
            return Ok(());
        }
        disk.make_dir(&dir.join(LEAVES), PRIVATE_DIR)?;
        disk.replace_file(&path, &text, PRIVATE_FILE)
    }

    fn path(dir: &Path, out: &Path) -> PathBuf {
        let id = hex(&sha256(out.as_os_str().as_encoded_bytes())[..8]);
        dir.join(LEAVES).join(format!("{id}.json"))
    }

    /// All records. Unreadable ones are skipped: the next issue writes them again.
    pub fn read_all(dir: &Path) -> Result<Vec<LeafRecord>, Error> {
        let mut all: Vec<LeafRecord> = entries(&dir.join(LEAVES))?
            .iter()
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .filter_map(|path| LeafRecord::read(path))
            .collect();
        all.sort_by(|one, other| one.out.cmp(&other.out));
        Ok(all)
    }

    fn read(path: &Path) -> Option<LeafRecord> {
        let (text, _) = read_small(path).ok()?;
        let LeafText { out, certificate } = serde_json::from_slice(&text).ok()?;
        let all = pem::certificates(certificate.as_bytes()).ok()?;
        Some(LeafRecord { out, leaf: Certificate::read(&all[0]).ok()? })
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("plain data can be written as JSON");
    text.push(b'\n');
    text
}
