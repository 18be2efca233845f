//! A log file that is rotated at whole intervals of time and keeps the newest backups.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use jiff::Timestamp;

const HOUR_S: i64 = 3600;
/// The suffix of a backup: the hour in which its interval began, in UTC. Flower names its backups the same way.
const STAMP_FORMAT: &str = "%Y-%m-%d_%H";
const STAMP_SHAPE: &[u8] = b"0000-00-00_00";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFileSettings {
    pub path: PathBuf,
    pub interval_hours: u32,
    /// The number of rotated files to keep.
    pub backups: u32,
}

/// Seconds since 1970.
type Clock = Box<dyn Fn() -> i64 + Send>;

pub struct LogFile {
    settings: LogFileSettings,
    file: File,
    /// The interval of the file's content, counted from 1970. It is read from the file's modification time, so a file
    /// that a short-lived process left behind is rotated on time too.
    interval: i64,
    clock: Clock,
}

impl LogFile {
    /// Opens the file for appending, or creates it.
    pub fn open(settings: &LogFileSettings) -> io::Result<Self> {
        Self::open_at(settings, Box::new(|| Timestamp::now().as_second()))
    }

    fn open_at(settings: &LogFileSettings, clock: Clock) -> io::Result<Self> {
        let file = append(&settings.path)?;
        let interval = match file.metadata()? {
            found if found.len() > 0 => {
                let age = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
                interval_of(i64::try_from(age.as_secs()).unwrap_or(i64::MAX), settings)
            }
            _ => interval_of(clock(), settings),
        };
        Ok(Self { settings: settings.clone(), file, interval, clock })
    }

    fn rotate(&mut self, interval: i64) -> io::Result<()> {
        let path = &self.settings.path;
        let start = Timestamp::from_second(interval * interval_s(&self.settings)).unwrap_or(Timestamp::UNIX_EPOCH);
        let mut backup = path.clone().into_os_string();
        backup.push(format!(".{}", start.strftime(STAMP_FORMAT)));
        match fs::rename(path, backup) {
            // Another process moved it already.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.file = append(path)?;
        self.drop_oldest()
    }

    fn drop_oldest(&self) -> io::Result<()> {
        let path = &self.settings.path;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
        let mut backups: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let stamp =
                entry.file_name().to_str().and_then(|found| found.strip_prefix(name)?.strip_prefix('.').map(is_stamp));
            if stamp == Some(true) {
                backups.push(entry.path());
            }
        }
        // Stamps sort by time.
        backups.sort();
        let surplus = backups.len().saturating_sub(self.settings.backups as usize);
        backups.iter().take(surplus).try_for_each(fs::remove_file)
    }
}

impl Write for LogFile {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let interval = interval_of((self.clock)(), &self.settings);
        if interval > self.interval {
            // Set before the rotation: a failed one is retried after an interval, not with every line.
            let past = std::mem::replace(&mut self.interval, interval);
            if let Err(error) = self.rotate(past) {
                // Not through the log, which is being written here.
                let path = self.settings.path.display();
                let _ = writeln!(io::stderr(), "the log file {path} cannot be rotated and continues to grow: {error}");
            }
        }
        self.file.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

fn interval_s(settings: &LogFileSettings) -> i64 {
    i64::from(settings.interval_hours.max(1)) * HOUR_S
}

fn interval_of(now_s: i64, settings: &LogFileSettings) -> i64 {
    now_s.div_euclid(interval_s(settings))
}

fn is_stamp(text: &str) -> bool {
    let fits = |(byte, shape): (u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == *shape };
    text.len() == STAMP_SHAPE.len() && text.bytes().zip(STAMP_SHAPE).all(fits)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::{Duration, SystemTime};

    use super::*;

    /// 2026-11-15 12:00 UTC.
    const NOON_S: i64 = 1_794_744_000;

    struct Scene {
        directory: tempfile::TempDir,
        now: Arc<AtomicI64>,
        settings: LogFileSettings,
    }

    impl Scene {
        fn new(interval_hours: u32, backups: u32) -> Self {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let settings = LogFileSettings { path: directory.path().join("link.log"), interval_hours, backups };
            Self { directory, now: Arc::new(AtomicI64::new(NOON_S)), settings }
        }

        fn open(&self) -> LogFile {
            let now = Arc::clone(&self.now);
            LogFile::open_at(&self.settings, Box::new(move || now.load(Ordering::SeqCst))).expect("a log file")
        }

        fn at(&self, hours_after_noon: i64) {
            self.now.store(NOON_S + hours_after_noon * HOUR_S, Ordering::SeqCst);
        }

        fn files(&self) -> BTreeMap<String, String> {
            let entries = fs::read_dir(self.directory.path()).expect("a directory");
            entries
                .map(|entry| entry.expect("an entry"))
                .map(|entry| {
                    let text = fs::read_to_string(entry.path()).expect("text");
                    (entry.file_name().into_string().expect("UTF-8"), text)
                })
                .collect()
        }
    }

    fn expected(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
    }

    #[test]
    fn each_interval_has_its_file() {
        let scene = Scene::new(24, 7);
        let mut log = scene.open();
        for (hour, line) in [(0, "noon\n"), (11, "late\n"), (12, "midnight\n"), (13, "night\n"), (85, "days later\n")] {
            scene.at(hour);
            log.write_all(line.as_bytes()).expect("written");
        }
        let files = [
            ("link.log", "days later\n"),
            ("link.log.2026-11-15_00", "noon\nlate\n"),
            ("link.log.2026-11-16_00", "midnight\nnight\n"),
        ];
        assert_eq!(scene.files(), expected(&files));
    }

    #[test]
    fn the_newest_backups_are_kept_and_other_files_are_not_touched() {
        let scene = Scene::new(1, 2);
        for other in ["link.log.gz", "link.log.2026-11-15_xx", "other.log.2026-11-15_01"] {
            fs::write(scene.directory.path().join(other), "").expect("file");
        }
        let mut log = scene.open();
        for hour in 0..5 {
            scene.at(hour);
            writeln!(log, "{hour}").expect("written");
        }
        let files = [
            ("link.log", "4\n"),
            ("link.log.2026-11-15_14", "2\n"),
            ("link.log.2026-11-15_15", "3\n"),
            ("link.log.2026-11-15_xx", ""),
            ("link.log.gz", ""),
            ("other.log.2026-11-15_01", ""),
        ];
        assert_eq!(scene.files(), expected(&files));
    }

    #[test]
    fn an_existing_file_is_continued_or_rotated() {
        let scene = Scene::new(24, 7);
        for (left_at, now, files) in [
            (0, 3, vec![("link.log", "left\nnew\n")]),
            (3, 15, vec![("link.log", "new\n"), ("link.log.2026-11-15_00", "left\n")]),
        ] {
            let mut left = append(&scene.settings.path).expect("file");
            left.set_len(0).and_then(|()| left.write_all(b"left\n")).expect("written");
            let seconds = u64::try_from(NOON_S + left_at * HOUR_S).expect("after 1970");
            left.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("its time is set");
            scene.at(now);
            scene.open().write_all(b"new\n").expect("written");
            assert_eq!(scene.files(), expected(&files), "{left_at} {now}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_rotates_nothing() {
        let scene = Scene::new(1, 7);
        let mut log = scene.open();
        for hour in [0, -5, 0] {
            scene.at(hour);
            writeln!(log, "{hour}").expect("written");
        }
        assert_eq!(scene.files(), expected(&[("link.log", "0\n-5\n0\n")]));
    }

    #[test]
    fn writing_continues_if_the_rotation_fails() {
        let scene = Scene::new(1, 7);
        let mut log = scene.open();
        writeln!(log, "old").expect("written");
        let obstacle = scene.directory.path().join("link.log.2026-11-15_12");
        fs::create_dir(&obstacle).expect("a directory in its place");
        scene.at(1);
        writeln!(log, "new").expect("written");
        fs::remove_dir(&obstacle).expect("removed");
        assert_eq!(scene.files(), expected(&[("link.log", "old\nnew\n")]));
    }

    #[test]
    fn a_file_that_was_moved_away_is_created_again() {
        let scene = Scene::new(1, 7);
        let mut log = scene.open();
        writeln!(log, "gone").expect("written");
        fs::remove_file(&scene.settings.path).expect("removed");
        scene.at(1);
        writeln!(log, "new").expect("written");
        assert_eq!(scene.files(), expected(&[("link.log", "new\n")]));
    }
}
