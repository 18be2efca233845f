//! The fields of a text line. An event's message is complete, so its `event` and `data` fields are left out.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};

const OMITTED: [&str; 2] = ["event", "data"];

/// Formats all other fields like the default formatter.
pub struct Readable;

impl<'writer> FormatFields<'writer> for Readable {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = Omitting(DefaultVisitor::new(writer, true));
        fields.record(&mut visitor);
        visitor.0.finish()
    }
}

struct Omitting<'writer>(DefaultVisitor<'writer>);

impl Visit for Omitting<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if !OMITTED.contains(&field.name()) {
            self.0.record_str(field, value);
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0.record_error(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if !OMITTED.contains(&field.name()) {
            self.0.record_debug(field, value);
        }
    }
}
