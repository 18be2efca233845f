//! Context disc of a VM: a small ISO 9660 file system with the label `CONTEXT`. Reads and writes it without a mount; does not
//! interpret the files.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

/// Label of OpenNebula's context discs.
pub const LABEL: &str = "CONTEXT";

const SECTOR: usize = 2048;
const DESCRIPTOR_AT: u64 = 16;
const LITTLE_TABLE_AT: u32 = 18;
const BIG_TABLE_AT: u32 = 19;
const ROOT_AT: u32 = 20;
const STANDARD: &[u8; 6] = b"\x01CD001";
const END_OF_DESCRIPTORS: &[u8; 7] = b"\xffCD001\x01";
/// Flag of a directory record.
const DIRECTORY: u8 = 2;
/// Limit of the root directory. A context has few files.
const MAX_DIRECTORY_BYTES: u32 = 64 << 10;
/// Limit of a file. Larger files are not part of the context and are skipped.
const MAX_FILE_BYTES: u32 = 4 << 20;
const MAX_FILES: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum DiscError {
    #[error("the disc cannot be read")]
    Io(#[from] io::Error),
    #[error("the disc is damaged: {0}")]
    Damaged(&'static str),
    #[error(
        "{0:?} is not a valid name on a disc: use letters, digits and `_`, up to eight before and three after one dot"
    )]
    Name(String),
    #[error("{0} files and directories are too many or too large for a context disc")]
    TooMuch(usize),
}

/// Reads the files in the root of a disc with the context label, by lower-case name. `None` if the disc has another label.
pub fn read(disc: &mut (impl Read + Seek)) -> Result<Option<BTreeMap<String, Vec<u8>>>, DiscError> {
    let mut descriptor = [0; SECTOR];
    disc.seek(SeekFrom::Start(DESCRIPTOR_AT * SECTOR as u64))?;
    match disc.read_exact(&mut descriptor) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let label = descriptor[40..72].trim_ascii();
    if !descriptor.starts_with(STANDARD) || label != LABEL.as_bytes() {
        return Ok(None);
    }
    let root = Record::read(&descriptor[156..190]).ok_or(DiscError::Damaged("it has no root directory"))?;
    if root.bytes > MAX_DIRECTORY_BYTES {
        return Err(DiscError::Damaged("its root directory is too large"));
    }
    let directory = extent(disc, &root)?;
    let mut files = BTreeMap::new();
    for sector in directory.chunks(SECTOR) {
        let mut rest = sector;
        // Records do not cross sectors. A length of 0 means that the rest of the sector is unused.
        while let Some(length) = rest.first().map(|length| usize::from(*length)).filter(|length| *length > 0) {
            let record =
                rest.get(..length).and_then(Record::read).ok_or(DiscError::Damaged("an entry is truncated"))?;
            rest = &rest[length..];
            if record.flags & DIRECTORY == 0 && record.bytes <= MAX_FILE_BYTES && files.len() < MAX_FILES {
                files.insert(record.name(), extent(disc, &record)?);
            }
        }
    }
    Ok(Some(files))
}

fn extent(disc: &mut (impl Read + Seek), record: &Record) -> Result<Vec<u8>, DiscError> {
    disc.seek(SeekFrom::Start(u64::from(record.at) * SECTOR as u64))?;
    let mut bytes = vec![0; record.bytes as usize];
    disc.read_exact(&mut bytes)?;
    Ok(bytes)
}

struct Record<'a> {
    at: u32,
    bytes: u32,
    flags: u8,
    name: &'a [u8],
}

impl<'a> Record<'a> {
    fn read(record: &'a [u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let length = usize::from(*record.get(32)?);
        Some(Self { at: number(2)?, bytes: number(10)?, flags: *record.get(25)?, name: record.get(33..33 + length)? })
    }

    /// `CONTEXT.SH;1` is `context.sh`.
    fn name(&self) -> String {
        let name = String::from_utf8_lossy(self.name).to_ascii_lowercase();
        let name = name.split(';').next().unwrap_or_default();
        name.strip_suffix('.').unwrap_or(name).to_owned()
    }
}

/// Writes a disc with these files.
pub fn write(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, DiscError> {
    let too_much = || DiscError::TooMuch(files.len());
    let names = files.keys().map(|name| stored_name(name)).collect::<Result<Vec<_>, _>>()?;
    let mut root =
        [record(ROOT_AT, SECTOR as u32, DIRECTORY, b"\x00"), record(ROOT_AT, SECTOR as u32, DIRECTORY, b"\x01")]
            .concat();
    let mut next = ROOT_AT + 1;
    for (name, content) in names.iter().zip(files.values()) {
        let bytes = u32::try_from(content.len()).ok().filter(|bytes| *bytes <= MAX_FILE_BYTES).ok_or_else(too_much)?;
        root.extend(record(next, bytes, 0, name.as_bytes()));
        next += bytes.div_ceil(SECTOR as u32);
    }
    if root.len() > SECTOR || files.len() > MAX_FILES {
        return Err(too_much());
    }
    let mut disc = vec![0; DESCRIPTOR_AT as usize * SECTOR];
    let table = |at: [u8; 4], one: [u8; 2]| [&[1, 0][..], &at, &one, &[0, 0]].concat();
    let (little, big) = (table(ROOT_AT.to_le_bytes(), [1, 0]), table(ROOT_AT.to_be_bytes(), [0, 1]));
    let head = [descriptor(next, little.len() as u32), END_OF_DESCRIPTORS.to_vec(), little, big, root];
    for sector in head.iter().chain(files.values()) {
        disc.extend(sector);
        disc.resize(disc.len().next_multiple_of(SECTOR), 0);
    }
    Ok(disc)
}

/// The plain form that all readers support.
fn stored_name(name: &str) -> Result<String, DiscError> {
    let (stem, ending) = name.split_once('.').unwrap_or((name, ""));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if stem.is_empty() || stem.len() > 8 || ending.len() > 3 || !plain(stem) || !plain(ending) {
        return Err(DiscError::Name(name.to_owned()));
    }
    Ok(format!("{}.{};1", stem.to_ascii_uppercase(), ending.to_ascii_uppercase()))
}

fn record(at: u32, bytes: u32, flags: u8, name: &[u8]) -> Vec<u8> {
    let length = (33 + name.len()).next_multiple_of(2);
    let mut record = vec![length as u8, 0];
    record.extend(both(at));
    record.extend(both(bytes));
    record.extend([0; 7]); // when: never
    record.extend([flags, 0, 0, 1, 0, 0, 1, name.len() as u8]);
    record.extend(name);
    record.resize(length, 0);
    record
}

/// Encodes a number in both byte orders.
fn both(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn descriptor(sectors: u32, table_bytes: u32) -> Vec<u8> {
    let mut descriptor = vec![0; SECTOR];
    let mut put = |at: usize, bytes: &[u8]| descriptor[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, STANDARD);
    put(6, &[1]);
    put(8, &[b' '; 64]);
    put(40, LABEL.as_bytes());
    put(80, &both(sectors));
    put(120, &[1, 0, 0, 1, 1, 0, 0, 1, 0x00, 0x08, 0x08, 0x00]);
    put(132, &both(table_bytes));
    put(140, &LITTLE_TABLE_AT.to_le_bytes());
    put(148, &BIG_TABLE_AT.to_be_bytes());
    put(156, &record(ROOT_AT, SECTOR as u32, DIRECTORY, b"\x00"));
    put(190, &[b' '; 623]);
    for date in 0..4 {
        put(813 + date * 17, &[b'0'; 16]);
    }
    put(881, &[1]);
    descriptor
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn files(of: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
        of.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect()
    }

    #[test]
    fn discs_with_another_label_are_ignored() {
        for bytes in [Vec::new(), vec![0; 40 * SECTOR]] {
            assert!(read(&mut Cursor::new(bytes)).expect("readable").is_none());
        }
        let mut other = write(&files(&[("a", b"b")])).expect("a disc");
        other[DESCRIPTOR_AT as usize * SECTOR + 40] = b'X';
        assert!(read(&mut Cursor::new(other)).expect("readable").is_none());
    }

    #[test]
    fn names_that_no_disc_has_are_refused() {
        for name in ["", ".sh", "a/b", "too_long_name.sh", "a.text", "a.b.c", "ä"] {
            assert!(matches!(write(&files(&[(name, b"")])), Err(DiscError::Name(_))), "{name}");
        }
    }

    #[test]
    fn a_damaged_disc_is_an_error_and_no_panic() {
        let whole = write(&files(&[("context.sh", b"A='b'\n")])).expect("a disc");
        // The rest is padding.
        for length in (17 * SECTOR..whole.len() - SECTOR).step_by(512) {
            assert!(read(&mut Cursor::new(&whole[..length])).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            files in proptest::collection::btree_map("[a-z0-9_]{1,8}(\\.[a-z]{1,3})?", proptest::collection::vec(any::<u8>(), 0..5000), 0..12)
        ) {
            let disc = write(&files).expect("a disc");
            prop_assert_eq!(read(&mut Cursor::new(disc)).expect("readable"), Some(files));
        }

        #[test]
        fn no_bytes_make_it_panic(at in 0usize..6 * SECTOR, bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
            let mut disc = write(&files(&[("context.sh", b"A='b'\n"), ("token.txt", b"t")])).expect("a disc");
            let at = (DESCRIPTOR_AT as usize * SECTOR + at).min(disc.len() - bytes.len());
            disc[at..at + bytes.len()].copy_from_slice(&bytes);
            let _ = read(&mut Cursor::new(disc));
        }
    }
}
