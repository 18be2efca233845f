//! Log settings of all programs: rows and checks.

use std::path::PathBuf;

use trellis_logging::LogFileSettings;
use trellis_logging::LogFormat;

use super::Checker;
use super::kind::{Choice, Count};

pub const FORMATS: Choice<LogFormat> = Choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
const INTERVAL_HOURS: Count = Count { default: Some(24), max: 8760 };
const BACKUPS: Count = Count { default: Some(7), max: 10_000 };

/// The rows, for a program whose config has a field `log`.
macro_rules! log_group {
    () => {
        $crate::settings::group! { "Log (on stderr, and in a file if --log-file is given)";
            /// `text` (coloured on a terminal, unless NO_COLOR is set) or `json` [default: text]
            "log-format" "FORMAT": $crate::settings::log::FORMATS => log.format;

            /// `error`, `warn`, `info`, `debug` or `trace` [default: info]
            ///
            /// FLWR_LOG_LEVEL is understood too. Finer: filters as in `warn,trellis=debug`.
            "log-level" ($crate::settings::Role::AlsoIn("FLWR_LOG_LEVEL")) "LEVEL",
                check |checker| checker.checked.log.level = checker.log_level(),
                show |checked| $crate::settings::kind::text(&checked.log.level);

            /// Write the log into this file too
            "log-file" "FILE",
                check |checker| checker.checked.log.file = checker.log_file(),
                show |checked| $crate::settings::kind::path(&checked.log.file.as_ref()?.path);

            /// Rotate the log file at this interval, 1 to 8760; 24: at midnight UTC [default: 24]
            "log-rotation-interval-hours" "HOURS",
                show |checked| Some(i64::from(checked.log.file.as_ref()?.interval_hours).into());

            /// How many rotated log files to keep, at least 1 [default: 7]
            "log-rotation-backup-count" "N",
                show |checked| Some(i64::from(checked.log.file.as_ref()?.backups).into());
        }
    };
}
pub(crate) use log_group;

impl<C> Checker<'_, C> {
    pub fn log_level(&mut self) -> String {
        let given = self.text("log-level").unwrap_or("info");
        if trellis_logging::filter(given).is_none() {
            let what = format!("{given:?} is not a log level");
            self.refuse(&["log-level"], what, "use error, warn, info, debug or trace");
        }
        trellis_logging::plain_level(given).unwrap_or(given).to_owned()
    }

    pub fn log_file(&mut self) -> Option<LogFileSettings> {
        let (interval, backups) = ("log-rotation-interval-hours", "log-rotation-backup-count");
        if !self.is_given("log-file") {
            for name in self.asked(&[interval, backups]) {
                self.warn(format!("--{name} has no effect without --log-file"));
            }
        }
        let interval_hours = self.read(interval, &INTERVAL_HOURS).and_then(|hours| u32::try_from(hours).ok());
        let backups = self.read(backups, &BACKUPS).and_then(|count| u32::try_from(count).ok());
        let path: PathBuf = self.resolve("log-file", self.text("log-file")?);
        if let Some(why) = (self.system.unwritable)(&path) {
            let what = format!("--log-file: {} cannot be written: {why}", path.display());
            self.refuse(&["log-file"], what, "give a file in a directory that exists and can be written to");
        }
        Some(LogFileSettings { path, interval_hours: interval_hours?, backups: backups? })
    }
}
