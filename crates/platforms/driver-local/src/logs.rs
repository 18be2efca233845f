//! The log of a part: one file with the output of its programs. A large log is rotated at the next start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A larger log is rotated at the next start.
const MAX_BYTES: u64 = 10 << 20;
/// Number of rotated logs that are kept; `.1` is the newest.
const MAX_ROTATED: u32 = 3;
/// Limits of the end of a log in a reason.
const MAX_TAIL_LINES: usize = 8;
const MAX_TAIL_BYTES: u64 = 4 << 10;

/// Opens a log for appending.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Rotates a large log. No program may be writing to it.
pub fn rotate(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.len() > MAX_BYTES => {}
        _ => return Ok(()),
    }
    for number in (1..MAX_ROTATED).rev() {
        match fs::rename(rotated(path, number), rotated(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, rotated(path, 1))
}

fn rotated(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Current length in bytes; 0 if there is no log.
pub fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// The last lines after an offset; empty if there are none.
pub fn last_lines(path: &Path, after: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let from = after.min(length).max(length.saturating_sub(MAX_TAIL_BYTES));
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(MAX_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(MAX_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert_eq!(last_lines(&path, 0), "");
        let lines: Vec<String> = (0..1000).map(|number| format!("line {number}")).collect();
        fs::write(&path, lines.join("\n\n")).unwrap();
        assert_eq!(last_lines(&path, 0), lines[992..].join("\n"));
        let before_last = length(&path) - 8;
        assert_eq!(last_lines(&path, before_last), "line 999");
        assert_eq!(last_lines(&path, u64::MAX), "");
    }

    #[test]
    fn large_logs_are_put_aside_and_the_oldest_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        for number in 0..6 {
            File::create(&path).unwrap().set_len(MAX_BYTES + number).unwrap();
            rotate(&path).unwrap();
        }
        assert!(!path.exists());
        assert_eq!(length(&rotated(&path, 1)), MAX_BYTES + 5);
        assert!(rotated(&path, MAX_ROTATED).exists() && !rotated(&path, MAX_ROTATED + 1).exists());
        fs::write(&path, "short").unwrap();
        rotate(&path).unwrap();
        assert_eq!(length(&path), 5);
    }
}
