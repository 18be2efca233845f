//! The log: one line for each event on stderr, as text for people or as JSON for programs.

mod json;
mod readable;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::util::SubscriberInitExt;

use json::JsonLines;
use readable::Readable;

/// What this process is in a federation, as lines for programs say it.
const ROLE: &str = "superlink";

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

/// Starts logging. Nothing else may have started it.
pub fn start(settings: &LogSettings) {
    let colours = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb");
    subscriber(settings, colours, std::io::stderr).init();
}

fn subscriber<W>(settings: &LogSettings, colours: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter(&settings.level).unwrap_or_default())
        .with_timer(SystemTime)
        .with_writer(writer)
        // When stderr is gone, complaining there would end the process.
        .log_internal_errors(false);
    match settings.format {
        LogFormat::Text => Box::new(log.with_ansi(colours).with_target(false).compact().fmt_fields(Readable).finish()),
        LogFormat::Json => {
            let lines = JsonLines { role: ROLE, now: jiff::Timestamp::now };
            Box::new(log.with_ansi(false).event_format(lines).finish())
        }
    }
}
