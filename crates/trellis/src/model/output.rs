//! How results are shown: for people as tables, for programs as JSON or YAML.

use clap::{Args, ValueEnum};
use serde::Serialize;
use yaml_rust2::{YamlEmitter, YamlLoader};

use crate::remote::print;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people; fitted to the terminal, coloured unless NO_COLOR is set
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
    format: Format,
}

impl OutputArgs {
    /// Prints `result` for a program, or lets `show` print it for people.
    pub fn print(&self, result: &impl Serialize, show: impl FnOnce()) {
        let json = || serde_json::to_string_pretty(result).expect("results are plain data");
        match self.format {
            Format::Table => show(),
            Format::Json => print(&format!("{}\n", json())),
            Format::Yaml => print(&yaml(json())),
        }
    }
}

/// JSON is YAML already; this makes it look like it, and keeps the order of the keys.
fn yaml(json: String) -> String {
    let mut text = String::new();
    let parsed = YamlLoader::load_from_str(&json).unwrap_or_default();
    let emitted = parsed.first().map(|document| YamlEmitter::new(&mut text).dump(document));
    if !matches!(emitted, Some(Ok(()))) {
        return json + "\n";
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_says_the_same_in_the_same_order() {
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
