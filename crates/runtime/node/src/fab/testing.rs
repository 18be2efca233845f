//! Valid and malicious FABs for tests. Zips are written byte by byte, because libraries refuse to write invalid ones.

use std::collections::BTreeMap;

use trellis_digest::sha256_hex;
use trellis_wire::proto;

pub const PYPROJECT: &str = "[project]\nname='app'\nversion='1.2'\n[tool.flwr.app]\npublisher='me'\n\
    [tool.flwr.app.components]\nserverapp='app:server'\nclientapp='app:client'\n[tool.flwr.app.config]\nrounds=3\n";

/// One stored entry.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: Vec<u8>,
    pub content: Vec<u8>,
    /// A Unix mode; 0 for none, as in FABs that Flower builds.
    pub mode: u32,
    pub flags: u16,
}

pub fn entry(name: &str, content: &str) -> Entry {
    Entry { name: name.into(), content: content.into(), mode: 0, flags: 0 }
}

/// An unchecked zip of these entries in this order.
pub fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let offset = bytes.len() as u32;
        let shared = header(entry);
        bytes.extend([b"PK\x03\x04".as_slice(), &shared, &entry.name, &entry.content].concat());
        directory.extend([b"PK\x01\x02".as_slice(), &[20, 3], &shared, &[0; 6]].concat());
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(&entry.name);
    }
    let (count, start) = ((entries.len() as u16).to_le_bytes(), bytes.len() as u32);
    bytes.extend(&directory);
    bytes.extend([b"PK\x05\x06".as_slice(), &[0; 4], &count, &count].concat());
    bytes.extend([(directory.len() as u32).to_le_bytes(), start.to_le_bytes()].concat());
    bytes.extend([0; 2]);
    bytes
}

/// The common fields of both headers of an entry: from the required version to the length of the extra field.
fn header(entry: &Entry) -> Vec<u8> {
    let size = (entry.content.len() as u32).to_le_bytes();
    let mut header = vec![20, 0];
    header.extend(entry.flags.to_le_bytes());
    // Stored, 2024-10-01 0:00.
    header.extend([0, 0, 0, 0, 0x41, 0x59]);
    header.extend(crc32(&entry.content).to_le_bytes());
    header.extend([size, size].concat());
    header.extend((entry.name.len() as u16).to_le_bytes());
    header.extend([0, 0]);
    header
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// The entries of a valid app with these files, `pyproject.toml` and the content list.
pub fn app(files: &[Entry]) -> Vec<Entry> {
    let mut entries = vec![entry("pyproject.toml", PYPROJECT)];
    entries.extend_from_slice(files);
    let list: String = entries
        .iter()
        .map(|entry| {
            let name = String::from_utf8_lossy(&entry.name);
            format!("{name},{},{}\n", sha256_hex(&entry.content), entry.content.len() * 8)
        })
        .collect();
    entries.push(entry(".info/CONTENT", &list));
    entries
}

pub fn fab(content: Vec<u8>) -> proto::Fab {
    proto::Fab { hash_str: sha256_hex(&content), content: content.into(), verifications: BTreeMap::new() }
}
