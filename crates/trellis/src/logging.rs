//! The log: one line for each event on stderr, and in a file if one is wanted, as text for people or as JSON for
//! programs.

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

use crate::log_file::{LogFile, LogFileSettings};
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
    /// One of the plain levels, or filters in the syntax of tracing-subscriber.
    pub level: String,
    pub file: Option<LogFileSettings>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned(), file: None }
    }
}

/// The level meant by a word, Flower's words included.
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

/// The filter for `level`, or `None` where it is neither a level nor a list of filters.
pub fn filter(level: &str) -> Option<EnvFilter> {
    let directives = match plain_level(level) {
        // The libraries below us have little to say to an operator.
        Some(level @ ("error" | "warn")) => level.to_owned(),
        Some(level) => format!("warn,trellis={level}"),
        // A word alone would be read as the name of a module, and hide a misspelt level.
        None if level.contains('=') => level.to_owned(),
        None => return None,
    };
    EnvFilter::builder().parse(directives).ok()
}

/// Starts logging. Nothing else may have started it. Fails only if the log file cannot be opened. `role` is what this
/// process is in a federation, as lines for programs say it.
pub fn start(role: &'static str, settings: &LogSettings) -> io::Result<()> {
    let colours = io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb");
    let file = settings.file.as_ref().map(LogFile::open).transpose()?;
    tracing_subscriber::registry()
        .with(filter(&settings.level).unwrap_or_default())
        // Before the other: layers share what the first one makes of a span's fields, and colours are not for files.
        .with(file.map(|file| layer(role, settings.format, Mutex::new(file), false)))
        // Only a SuperLink is asked for its log.
        .with((role == "superlink").then(|| layer(role, settings.format, || LogTail, false)))
        .with(layer(role, settings.format, io::stderr, colours))
        .init();
    Ok(())
}

struct LogTail;

impl io::Write for LogTail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        trellis_link::log_tail::append(bytes);
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
        // When stderr is gone, complaining there would end the process.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(colours).with_target(false).compact().fmt_fields(Readable).boxed(),
        LogFormat::Json => {
            let lines = JsonLines { role, now: jiff::Timestamp::now };
            log.with_ansi(false).event_format(lines).boxed()
        }
    }
}
