//! A log line as one JSON object, in the schema that monitoring of Flower federations expects: the fields of every line
//! first, then `event` and `data` if the line is an event, then all other fields.

use std::fmt;

use jiff::Timestamp;
use serde::Serializer as _;
use serde::ser::SerializeMap as _;
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Keys of the schema. A field with such a name gets an underscore appended.
const RESERVED: [&str; 8] = ["timestamp", "level", "logger", "role", "event", "data", "message", "source"];
/// 64-bit ids are written as strings, because many JSON parsers keep only 53 bits of a number.
const IDS: [&str; 2] = ["run", "node"];

pub struct JsonLines {
    pub role: &'static str,
    pub now: fn() -> Timestamp,
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Line::default();
        event.record(&mut line);
        let text = self.write(event.metadata(), &line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{text}")
    }
}

impl JsonLines {
    fn write(&self, about: &Metadata<'_>, line: &Line) -> Result<String, serde_json::Error> {
        let mut text = Vec::with_capacity(256);
        let mut serializer = serde_json::Serializer::new(&mut text);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("timestamp", &(self.now)().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())?;
        map.serialize_entry("level", about.level().as_str())?;
        map.serialize_entry("logger", about.target())?;
        map.serialize_entry("role", self.role)?;
        if let Some(event) = &line.event {
            map.serialize_entry("event", event)?;
        }
        if let Some(data) = &line.data {
            match serde_json::from_str::<&RawValue>(data) {
                Ok(object) => map.serialize_entry("data", object)?,
                Err(_) => map.serialize_entry("data", data)?,
            }
        }
        map.serialize_entry("message", &line.message)?;
        map.serialize_entry("source", &source(about))?;
        for (name, value) in &line.rest {
            map.serialize_entry(name, value)?;
        }
        map.end()?;
        String::from_utf8(text).map_err(serde::ser::Error::custom)
    }
}

/// File and line of the log statement. For code of dependencies only the file name: its path is that of the build machine.
fn source(about: &Metadata<'_>) -> Option<String> {
    let file = about.file()?;
    let shown = if file.starts_with('/') { file.rsplit('/').next().unwrap_or_default() } else { file };
    Some(format!("{shown}:{}", about.line().unwrap_or_default()))
}

/// The fields of one line.
#[derive(Default)]
struct Line {
    message: String,
    event: Option<String>,
    data: Option<String>,
    rest: Vec<(String, Value)>,
}

impl Line {
    fn add(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            taken if RESERVED.contains(&taken) => format!("{taken}_"),
            name => name.to_owned(),
        };
        self.rest.push((name, value));
    }

    fn add_number(&mut self, field: &Field, number: impl ToString + Into<Value>) {
        let is_id = IDS.contains(&field.name());
        self.add(field, if is_id { number.to_string().into() } else { number.into() });
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            "event" => self.event = Some(value.to_owned()),
            "data" => self.data = Some(value.to_owned()),
            _ => self.add(field, value.into()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add_number(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add_number(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    /// Includes the causes: the message of an error often says what failed, and its source why.
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let causes = std::iter::successors(value.source(), |cause| cause.source());
        let text = causes.fold(value.to_string(), |text, cause| format!("{text}: {cause}"));
        self.add(field, text.into());
    }

    /// Fields recorded with `%` or `?`.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.record_str(field, &text);
    }
}
