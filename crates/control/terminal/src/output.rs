//! Results go to stdout, for people or for programs; remarks go to stderr. A closed pipe is not an error.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people; as wide as the terminal, coloured unless NO_COLOR is set
    Table,
    /// For programs; times are seconds since 1970
    Json,
    /// The same as JSON, for programs and people
    Yaml,
}

#[derive(Debug, Args)]
pub struct OutputArgs {
    /// How to show the result
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

impl OutputArgs {
    /// Prints `result` as JSON or YAML, or calls `show` to print it for people.
    pub fn print(&self, result: &impl Serialize, show: impl FnOnce()) {
        match self.format {
            Format::Table => show(),
            format => print_as(format, result),
        }
    }
}

/// Prints to stdout.
pub fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

pub fn print_json(value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value).expect("results are plain data");
    print(&format!("{text}\n"));
}

/// Prints a result for a program: as JSON if the format is a table.
pub fn print_as(format: Format, value: &impl Serialize) {
    match format {
        Format::Yaml => print(&yaml(serde_json::to_string(value).expect("results are plain data"))),
        Format::Json | Format::Table => print_json(value),
    }
}

/// A list in the shape that the server's API uses.
#[derive(Serialize)]
pub struct Listing<'a, T> {
    pub items: &'a [T],
}

/// One of several consecutive results: a line of JSON, or a YAML document.
pub fn entry(format: Format, value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("results are plain data");
    if format == Format::Yaml { yaml(json) } else { json + "\n" }
}

fn yaml(json: String) -> String {
    trellis_spec::yaml::from_own_json(&json).unwrap_or(json + "\n")
}

/// The error with its causes, in one line.
pub fn explain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Prints to stderr.
pub fn remark(text: &str) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_has_the_values_of_the_json_in_the_same_order() {
        let json = r#"{"round": 10, "seed": 18446744073709551615, "loss": 1e-07, "tag": "yes: \"no\"", "arrays": [], "nothing": null}"#;
        let expected = "\
---
round: 10
seed: 18446744073709551615
loss: 1e-07
tag: \"yes: \\\"no\\\"\"
arrays: []
nothing: ~
";
        assert_eq!(yaml(json.to_owned()), expected);
    }
}
