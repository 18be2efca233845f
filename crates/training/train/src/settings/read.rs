//! Values as they are given, in a run config or as text, and what is wrong with them.

use std::collections::BTreeMap;

use trellis_diagnostic::Diagnostic;
use trellis_wire::proto;
use trellis_wire::proto::scalar::Scalar;

use super::table::{Kind, Setting, find};

/// A value of the kind that its setting has.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Switch(bool),
    Count(u64),
    Number(f64),
    Text(String),
}

impl Value {
    pub fn to_scalar(&self) -> proto::Scalar {
        let scalar = match self {
            Value::Switch(on) => Scalar::Bool(*on),
            Value::Count(count) => i64::try_from(*count).map_or(Scalar::Uint64(*count), Scalar::Sint64),
            Value::Number(number) => Scalar::Double(*number),
            Value::Text(text) => Scalar::String(text.clone()),
        };
        proto::Scalar { scalar: Some(scalar) }
    }
}

impl Kind {
    /// In words, what a value must be.
    pub fn expected(&self) -> String {
        match self {
            Kind::Switch => "true or false".to_owned(),
            Kind::Count { min } => format!("a whole number from {min}"),
            Kind::Number(range) => range.to_string(),
            Kind::Text => "a text".to_owned(),
            Kind::Choice(names) => format!("one of {}", names.join(", ")),
        }
    }

    /// From text, as on a command line. `None`: it is none of this kind.
    pub fn parse(&self, text: &str) -> Option<Value> {
        match self {
            Kind::Switch => match text.to_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Some(Value::Switch(true)),
                "false" | "no" | "off" | "0" => Some(Value::Switch(false)),
                _ => None,
            },
            Kind::Count { min } => {
                let count = text.parse().ok().or_else(|| whole(text.parse().ok()?));
                count.filter(|count| count >= min).map(Value::Count)
            }
            Kind::Number(range) => text.parse().ok().filter(|number| range.contains(*number)).map(Value::Number),
            Kind::Text => Some(Value::Text(text.to_owned())),
            Kind::Choice(names) => {
                let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
                let name = names.iter().find(|name| plain(name) == plain(text))?;
                Some(Value::Text((*name).to_owned()))
            }
        }
    }
}

fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
}

/// A scalar as it would be written. Empty: not set.
fn written(scalar: &proto::Scalar) -> Option<String> {
    Some(match scalar.scalar.as_ref()? {
        Scalar::Bool(on) => on.to_string(),
        Scalar::Sint64(number) => number.to_string(),
        Scalar::Uint64(number) => number.to_string(),
        Scalar::Double(number) => number.to_string(),
        Scalar::String(text) => text.trim().to_owned(),
        Scalar::Bytes(_) => return None,
    })
}

/// Reads settings one by one and gathers what is wrong with them.
pub(super) struct Reader {
    given: BTreeMap<&'static str, Value>,
    pub problems: Vec<Diagnostic>,
}

impl Reader {
    pub fn new(config: &BTreeMap<String, proto::Scalar>) -> Reader {
        let mut reader = Reader { given: BTreeMap::new(), problems: Vec::new() };
        let mut names: BTreeMap<&'static str, &str> = BTreeMap::new();
        for (name, scalar) in config {
            let Some(setting) = find(name) else { continue };
            match read(setting, name, scalar) {
                Ok(None) => {}
                Ok(Some(value)) => match reader.given.get(setting.name) {
                    Some(other) if *other != value => {
                        let what = format!("it is the same setting as {}, which is given too", names[setting.name]);
                        reader.problems.push(Diagnostic::error(name, what, "leave one of them out"));
                    }
                    _ => {
                        names.insert(setting.name, name);
                        reader.given.insert(setting.name, value);
                    }
                },
                Err(problem) => reader.problems.push(problem),
            }
        }
        reader
    }

    /// Whether it was given at all.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The value, given or by default.
    fn value(&self, name: &str) -> Option<Value> {
        let setting = find(name).expect("only settings of the table are read");
        let default = || setting.kind.parse(setting.default).filter(|_| !setting.default.is_empty());
        self.given.get(setting.name).cloned().or_else(default)
    }

    pub fn switch(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Switch(true)))
    }

    pub fn count(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Count(count)) => count,
            _ => 0,
        }
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    pub fn text(&self, name: &str) -> Option<String> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// As [`Reader::number`], for what cannot be left out.
    pub fn required(&mut self, name: &str, why: &str) -> Option<f64> {
        let number = self.number(name);
        if number.is_none() && !self.problems.iter().any(|problem| problem.place == name) {
            let expected = find(name).map(|setting| setting.kind.expected()).unwrap_or_default();
            self.problems.push(Diagnostic::error(name, format!("it is missing: {why}"), format!("give {expected}")));
        }
        number
    }
}

/// `None`: it is given as empty, which is not at all.
fn read(setting: &Setting, name: &str, scalar: &proto::Scalar) -> Result<Option<Value>, Diagnostic> {
    let wrong = |what: String| {
        let expected = setting.kind.expected();
        let advice = match setting.default {
            "" => format!("write {expected}, or leave it out"),
            default => format!("write {expected}, or leave it out for {default}"),
        };
        Diagnostic::error(name, what, advice)
    };
    match written(scalar) {
        None => Err(wrong("it has no value, or one of bytes".to_owned())),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => match setting.kind.parse(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(wrong(format!("{text:?} cannot be used"))),
        },
    }
}
