//! Checks of what is logged, how, and where.

use super::{Checker, LogArgs};
use crate::log_file::LogFileSettings;
use crate::logging::{self, LogFormat, LogSettings};

const INTERVAL_HOURS: u32 = 24;
const LONGEST_INTERVAL_HOURS: u32 = 8760;
const BACKUPS: u32 = 7;
const MOST_BACKUPS: u32 = 10_000;

impl<A> Checker<'_, A> {
    pub fn log(&mut self, args: &LogArgs) -> LogSettings {
        let format = match args.log_format.as_deref() {
            None | Some("text") => LogFormat::Text,
            Some("json") => LogFormat::Json,
            Some(other) => {
                self.refuse(&["log-format"], format!("--log-format cannot be {other:?}"), "use text or json");
                LogFormat::Text
            }
        };
        let given = args.log_level.as_deref().unwrap_or("info");
        if logging::filter(given).is_none() {
            let what = format!("{given:?} is not a log level");
            self.refuse(&["log-level"], what, "use error, warn, info, debug or trace");
        }
        let level = logging::plain_level(given).unwrap_or(given).to_owned();
        LogSettings { format, level, file: self.log_file(args) }
    }

    fn log_file(&mut self, args: &LogArgs) -> Option<LogFileSettings> {
        let (interval, backups) = ("log-rotation-interval-hours", "log-rotation-backup-count");
        let given = [(interval, &args.log_rotation_interval_hours), (backups, &args.log_rotation_backup_count)];
        if args.log_file.is_none() {
            for (name, _) in given.iter().filter(|(_, value)| value.is_some()) {
                self.warn(format!("--{name} has no effect without --log-file"));
            }
        }
        let [interval, backups] = given;
        let interval_hours = self.count(interval.0, interval.1.as_deref(), INTERVAL_HOURS, LONGEST_INTERVAL_HOURS);
        let backups = self.count(backups.0, backups.1.as_deref(), BACKUPS, MOST_BACKUPS);
        let path = self.resolve("log-file", args.log_file.as_deref()?);
        if let Some(why) = (self.around.unwritable)(&path) {
            let what = format!("--log-file: {} cannot be written: {why}", path.display());
            self.refuse(&["log-file"], what, "give a file in a directory that exists and can be written to");
        }
        Some(LogFileSettings { path, interval_hours, backups })
    }
}
