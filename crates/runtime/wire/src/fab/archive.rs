//! The zip archive of a bundle, byte for byte as `flwr build` writes it: stored entries with a fixed date. A zip
//! library would choose other versions and attributes, which changes the hash.

/// 1 October 2024, midnight, in zip format.
const DATE: u16 = ((2024 - 1980) << 9) | (10 << 5) | 1;
const TIME: u16 = 0;
/// Required version: directories.
const VERSION: u16 = 20;
const MADE_ON_UNIX: u16 = 3 << 8;
/// Readable and writable by the owner.
const ATTRIBUTES: u32 = 0o600 << 16;
const NAME_IS_UTF8: u16 = 1 << 11;

/// Bundles are far smaller than the 4 GiB and 65,535 entries that fit in these fields.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    entries: u16,
}

impl Archive {
    pub fn add(&mut self, name: &str, content: &[u8]) {
        let offset = self.bytes.len() as u32;
        let described = description(name, content);
        for part in [b"PK\x03\x04", described.as_slice(), name.as_bytes(), content] {
            self.bytes.extend_from_slice(part);
        }
        let more = [[0u8; 6].as_slice(), &ATTRIBUTES.to_le_bytes(), &offset.to_le_bytes()].concat();
        let made = (MADE_ON_UNIX | VERSION).to_le_bytes();
        for part in [b"PK\x01\x02", made.as_slice(), &described, &more, name.as_bytes()] {
            self.directory.extend_from_slice(part);
        }
        self.entries += 1;
    }

    pub fn finish(mut self) -> Vec<u8> {
        let (start, length) = (self.bytes.len() as u32, self.directory.len() as u32);
        let entries = self.entries.to_le_bytes();
        self.bytes.append(&mut self.directory);
        for part in [b"PK\x05\x06".as_slice(), &[0; 4], &entries, &entries] {
            self.bytes.extend_from_slice(part);
        }
        for part in [length.to_le_bytes().as_slice(), &start.to_le_bytes(), &[0; 2]] {
            self.bytes.extend_from_slice(part);
        }
        self.bytes
    }
}

/// Returns the fields that the header of an entry and its directory record share.
fn description(name: &str, content: &[u8]) -> Vec<u8> {
    let flags = if name.is_ascii() { 0 } else { NAME_IS_UTF8 };
    let length = (content.len() as u32).to_le_bytes();
    let numbers = [VERSION, flags, 0, TIME, DATE].map(u16::to_le_bytes).concat();
    let sizes = [crc32fast::hash(content).to_le_bytes(), length, length].concat();
    [numbers, sizes, (name.len() as u16).to_le_bytes().to_vec(), vec![0; 2]].concat()
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::*;

    #[test]
    fn a_zip_library_reads_the_archive() {
        let mut archive = Archive::default();
        archive.add("a.txt", b"hello");
        archive.add("d/\u{e4}.txt", b"");
        let mut read = zip::ZipArchive::new(Cursor::new(archive.finish())).unwrap();
        let names: Vec<String> = read.file_names().map(|name| name.unwrap().into_owned()).collect();
        assert_eq!(names, ["a.txt", "d/\u{e4}.txt"]);
        let mut text = String::new();
        let mut entry = read.by_name("a.txt").unwrap();
        assert_eq!(entry.last_modified().unwrap().to_string(), "2024-10-01 00:00:00");
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }
}
