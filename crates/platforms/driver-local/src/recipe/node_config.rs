//! The node config as a TOML file for SuperNodes of both runtimes.

use std::collections::BTreeMap;
use std::fmt::Write;

use trellis_spec::ConfigValue;

pub fn toml(settings: &BTreeMap<String, ConfigValue>) -> String {
    let mut text = String::new();
    for (key, value) in settings {
        let value = match value {
            ConfigValue::Bool(on) => on.to_string(),
            ConfigValue::Int(number) => number.to_string(),
            // With a decimal point, otherwise TOML would read an integer.
            ConfigValue::Float(number) => format!("{number:?}"),
            ConfigValue::Text(text) => quoted(text),
        };
        let _ = writeln!(text, "{} = {value}", quoted(key));
    }
    text
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_kind() {
        let settings = [
            ("a", ConfigValue::Int(3)),
            ("b", ConfigValue::Float(1.0)),
            ("c", ConfigValue::Bool(true)),
            ("d.e", ConfigValue::Text("a \"b\" \\ c\n\u{7f}ü".to_owned())),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value)).into();
        let expected =
            "\"a\" = 3\n\"b\" = 1.0\n\"c\" = true\n\"d.e\" = \"a \\\"b\\\" \\\\ c\\U0000000A\\U0000007Fü\"\n";
        assert_eq!(toml(&settings), expected);
    }
}
