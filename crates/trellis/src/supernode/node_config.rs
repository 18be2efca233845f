//! Reads `--node-config`: pairs of key and value as Flower reads them, or a TOML file. Knows no flags.
//!
//! Flower finds the pairs first (a key goes up to an equals sign, a value up to a space or its closing quote), writes each
//! on a line of its own, and reads the lines as TOML.

use std::collections::BTreeMap;

use toml::{Table, Value};
use trellis_wire::proto::Scalar;
use trellis_wire::proto::scalar;

pub type NodeConfig = BTreeMap<String, Scalar>;

/// A problem with a setting, and what to do.
pub type Mistake = (String, String);

const HOW: &str = "write pairs with spaces between them: 'partition-id=0 rate=0.5 fast=true name=\"ward 7\"'";

/// The settings in a text of pairs, and the words that are not pairs.
pub fn parse(text: &str) -> (Result<NodeConfig, Vec<Mistake>>, Vec<String>) {
    let (pairs, strays) = pairs(text);
    let lines: Vec<String> = pairs.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let settings = match lines.join("\n").parse::<Table>() {
        Ok(table) => flattened(&table),
        Err(_) => Err(blame(&pairs, &lines)),
    };
    (settings, strays)
}

/// The settings in a TOML file.
pub fn parse_file(text: &str) -> Result<NodeConfig, Vec<Mistake>> {
    match text.parse::<Table>() {
        Ok(table) => flattened(&table),
        Err(error) => {
            let what = format!("not valid TOML: {}", error.message().replace('\n', ", "));
            Err(vec![(what, "write lines of the form: key = \"value\"".to_owned())])
        }
    }
}

/// All problems of each pair. If each pair is valid alone, two of them contradict each other.
fn blame(pairs: &[(&str, &str)], lines: &[String]) -> Vec<Mistake> {
    let alone = |((key, value), line): (&(&str, &str), &String)| match line.parse::<Table>() {
        Ok(table) => flattened(&table).err().unwrap_or_default(),
        Err(_) => vec![unreadable(key, value)],
    };
    let mut mistakes: Vec<Mistake> = pairs.iter().zip(lines).flat_map(alone).collect();
    if mistakes.is_empty() {
        let sound = (1..=lines.len()).take_while(|count| lines[..*count].join("\n").parse::<Table>().is_ok()).count();
        let key = pairs.get(sound).map_or("", |(key, _)| key);
        mistakes.push((format!("{key:?} is set twice"), "keep one of them".to_owned()));
    }
    mistakes
}

fn unreadable(key: &str, value: &str) -> Mistake {
    if format!("{key} = 1").parse::<Table>().is_err() {
        let advice = "use letters, digits, - and _, with dots between parts".to_owned();
        return (format!("{key:?} is not a key"), advice);
    }
    let what = format!("the value of {key}, {value}, is neither true, false, a number nor a quoted text");
    let plain = value.chars().all(|char| char.is_alphanumeric() || "-_./:@".contains(char));
    (what, if plain { format!("if it is a text, quote it: {key}=\"{value}\"") } else { HOW.to_owned() })
}

fn flattened(table: &Table) -> Result<NodeConfig, Vec<Mistake>> {
    let (mut found, mut mistakes) = (NodeConfig::new(), Vec::new());
    flatten(table, "", &mut found, &mut mistakes);
    if mistakes.is_empty() { Ok(found) } else { Err(mistakes) }
}

fn flatten(table: &Table, parent: &str, found: &mut NodeConfig, mistakes: &mut Vec<Mistake>) {
    for (key, value) in table {
        let key = if parent.is_empty() { key.clone() } else { format!("{parent}.{key}") };
        let value = match value {
            Value::Table(table) => {
                flatten(table, &key, found, mistakes);
                continue;
            }
            Value::Boolean(on) => scalar::Scalar::Bool(*on),
            Value::Integer(number) => scalar::Scalar::Sint64(*number),
            Value::Float(number) => scalar::Scalar::Double(*number),
            Value::String(text) => scalar::Scalar::String(text.clone()),
            Value::Datetime(_) | Value::Array(_) => {
                let what = format!("the value of {key} is neither a text nor a number, but: {}", value.type_str());
                mistakes.push((what, "use true, false, a number or a quoted text".to_owned()));
                continue;
            }
        };
        found.insert(key, Scalar { scalar: Some(value) });
    }
}

/// Keys and values in a text, and the words between them.
fn pairs(text: &str) -> (Vec<(&str, &str)>, Vec<String>) {
    let (mut pairs, mut strays) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(start) = rest.find(|char: char| !char.is_whitespace()) {
        rest = &rest[start..];
        match first_pair(rest) {
            Some((key, value)) => {
                pairs.push((key, value));
                rest = &rest[key.len() + 1 + value.len()..];
            }
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                strays.push(rest[..end].to_owned());
                rest = &rest[end..];
            }
        }
    }
    (pairs, strays)
}

/// The first pair in `text`: the shortest key that is followed by an equals sign and a value.
fn first_pair(text: &str) -> Option<(&str, &str)> {
    let word = &text[..text.find(char::is_whitespace).unwrap_or(text.len())];
    let signs = word.char_indices().skip(1).filter(|(_, char)| *char == '=');
    signs.map(|(sign, _)| sign).find_map(|sign| value(&text[sign + 1..]).map(|value| (&text[..sign], value)))
}

/// The first value in `text`: up to the closing quote, or else up to a space.
fn value(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|char| ['\'', '"'].contains(char));
    let quoted = quote.and_then(|quote| text[1..].find(quote)).map(|end| &text[..end + 2]);
    let word = &text[..text.find(char::is_whitespace).unwrap_or(text.len())];
    quoted.or(Some(word).filter(|word| !word.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `key: Kind(value)`, or the mistakes.
    fn read(text: &str) -> Result<Vec<String>, Vec<String>> {
        let (settings, _) = parse(text);
        let show = |(key, value): (&String, &Scalar)| format!("{key}: {:?}", value.scalar.as_ref().unwrap());
        match settings {
            Ok(settings) => Ok(settings.iter().map(show).collect()),
            Err(mistakes) => Err(mistakes.into_iter().map(|(what, _)| what).collect()),
        }
    }

    #[test]
    fn what_flower_reads() {
        for (text, expected) in [
            ("", vec![]),
            ("partition-id=0 num-partitions=10", vec!["num-partitions: Sint64(10)", "partition-id: Sint64(0)"]),
            ("a=\"one two\" b='x=\"y\"'", vec!["a: String(\"one two\")", "b: String(\"x=\\\"y\\\"\")"]),
            ("f=1.5 t=true n=-3 h=0x10", vec!["f: Double(1.5)", "h: Sint64(16)", "n: Sint64(-3)", "t: Bool(true)"]),
            ("x=inf y=1e3 z=1_000", vec!["x: Double(inf)", "y: Double(1000.0)", "z: Sint64(1000)"]),
            ("a.b=1 a.c=\"x\"", vec!["a.b: Sint64(1)", "a.c: String(\"x\")"]),
            ("t={a=1,b=\"x\"}", vec!["t.a: Sint64(1)", "t.b: String(\"x\")"]),
            // No space is needed after a quote.
            ("a=\"x\"b=2", vec!["a: String(\"x\")", "b: Sint64(2)"]),
            ("  a=1\n\tb=2 ", vec!["a: Sint64(1)", "b: Sint64(2)"]),
            ("a=\"\"", vec!["a: String(\"\")"]),
            ("word a=1 b= c=2", vec!["a: Sint64(1)", "c: Sint64(2)"]),
        ] {
            assert_eq!(read(text), Ok(expected.into_iter().map(str::to_owned).collect()), "{text}");
        }
    }

    #[test]
    fn every_mistake_is_found() {
        let value = |key: &str, value: &str| {
            format!("the value of {key}, {value}, is neither true, false, a number nor a quoted text")
        };
        for (text, expected) in [
            ("a=one b=2 c=three", vec![value("a", "one"), value("c", "three")]),
            (
                "a=one b=[1]",
                vec![value("a", "one"), "the value of b is neither a text nor a number, but: array".to_owned()],
            ),
            ("a=True", vec![value("a", "True")]),
            ("a=\"open", vec![value("a", "\"open")]),
            ("a==1", vec![value("a", "=1")]),
            ("a!b=1", vec!["\"a!b\" is not a key".to_owned()]),
            ("a=1 b=2 a=3", vec!["\"a\" is set twice".to_owned()]),
            ("a=1 a.b=2", vec!["\"a.b\" is set twice".to_owned()]),
            (
                "a=[1] b=2020-01-01",
                vec![
                    "the value of a is neither a text nor a number, but: array".to_owned(),
                    "the value of b is neither a text nor a number, but: datetime".to_owned(),
                ],
            ),
            ("a=99999999999999999999", vec![value("a", "99999999999999999999")]),
        ] {
            assert_eq!(read(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn what_flower_drops_without_a_word_is_found() {
        for (text, expected) in
            [("a=1", vec![]), ("word a=1 b= c=2", vec!["word", "b="]), ("=", vec!["="]), ("a = 1", vec!["a", "=", "1"])]
        {
            assert_eq!(parse(text).1, expected, "{text}");
        }
    }

    #[test]
    fn advice_fits() {
        let advice = |text: &str| parse(text).0.unwrap_err().remove(0).1;
        assert_eq!(advice("name=ward7"), "if it is a text, quote it: name=\"ward7\"");
        assert_eq!(advice("name=\"x"), HOW);
    }

    #[test]
    fn files() {
        let (found, text) = (parse_file("[data]\npath = '/d'\nrows = 3\n"), "data.path=\"/d\" data.rows=3");
        assert_eq!(found, parse(text).0);
        assert!(parse_file("a = ").unwrap_err()[0].0.starts_with("not valid TOML"));
    }
}
