//! The log of a program: one line per event on stderr, and in a file if the settings name one, as text for people or as
//! JSON for programs. Other crates emit events with `tracing` and do not know this one.

mod file;
mod json;
mod readable;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::sync::Mutex;

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

pub use file::LogFileSettings;

use file::LogFile;
use json::JsonLines;
use readable::Readable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    pub format: LogFormat,
    /// A plain level, or filters in the syntax of tracing-subscriber.
    pub level: String,
    pub file: Option<LogFileSettings>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned(), file: None }
    }
}

/// The level that a word names. Includes the names of Python, which Flower uses.
pub fn plain_level(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "error" | "critical" | "fatal" => "error",
        "warn" | "warning" => "warn",
        "info" => "info",
        "debug" => "debug",
        "trace" => "trace",
        _ => return None,
    })
}

/// The filter for `level`, or `None` if it is neither a level nor a list of filters.
pub fn filter(level: &str) -> Option<EnvFilter> {
    let directives = match plain_level(level) {
        // Dependencies log warnings and errors only.
        Some(level @ ("error" | "warn")) => level.to_owned(),
        Some(level) => format!("warn,trellis={level}"),
        // `EnvFilter` would take a misspelt level for the name of a module.
        None if level.contains('=') => level.to_owned(),
        None => return None,
    };
    EnvFilter::builder().parse(directives).ok()
}

/// Installs the global subscriber, once per process. Fails if the log file cannot be opened. JSON lines contain `role`, the
/// part of this process in a federation. `copy` receives the bytes of every line.
pub fn start(role: &'static str, settings: &LogSettings, copy: Option<fn(&[u8])>) -> io::Result<()> {
    let colours = io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb");
    let file = settings.file.as_ref().map(LogFile::open).transpose()?;
    tracing_subscriber::registry()
        .with(filter(&settings.level).unwrap_or_default())
        // Before stderr: layers share the span fields that the first layer formatted, and a file has no colours.
        .with(file.map(|file| layer(role, settings.format, Mutex::new(file), false)))
        .with(copy.map(|copy| layer(role, settings.format, move || Copied(copy), false)))
        .with(layer(role, settings.format, io::stderr, colours))
        .init();
    Ok(())
}

struct Copied(fn(&[u8]));

impl io::Write for Copied {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn layer<S, W>(role: &'static str, format: LogFormat, writer: W, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let log = tracing_subscriber::fmt::layer()
        .with_timer(SystemTime)
        .with_writer(writer)
        // If stderr is closed, an error message on stderr would end the process.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(colours).with_target(false).compact().fmt_fields(Readable).boxed(),
        LogFormat::Json => {
            let lines = JsonLines { role, now: jiff::Timestamp::now };
            log.with_ansi(false).event_format(lines).boxed()
        }
    }
}
