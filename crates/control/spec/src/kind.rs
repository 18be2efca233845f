//! Kinds of values of fields. Each kind parses its values, and describes them for users and in JSON Schema.

mod basic;
mod config;
mod quantity;

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

pub use basic::{Choice, choice, choice_name, flag, id, name, one_of, path, port, text, whole, word};
pub use config::labels;
pub(crate) use config::{arguments, config_values, environment, node_config};
pub(crate) use quantity::{Unavailable, bytes, cpu, duration, fraction, share, unavailable};

use crate::problem::Place;
use crate::tree::{Node, Value};

pub trait Kind {
    type Value;

    /// `None` if the value is invalid, which is recorded.
    fn read(&self, node: &Node, place: &Place) -> Option<Self::Value>;
    fn schema(&self) -> Json;
    /// Description of the values, like `a whole number from 1 to 9`.
    fn words(&self) -> String;
    fn example(&self) -> String;
}

/// Why a text is not a valid value.
pub enum Fault {
    /// The description of the kind says enough.
    Unfit,
    Because {
        what: String,
        advice: String,
    },
}

impl Fault {
    pub fn because(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Fault::Because { what: what.into(), advice: advice.into() }
    }
}

/// Parses a text. The flag is set if it was written without quotes.
type Parse<T> = Box<dyn Fn(&str, bool) -> Result<T, Fault>>;

pub struct Scalar<T> {
    words: String,
    example: &'static str,
    schema: Json,
    parse: Parse<T>,
}

impl<T> Kind for Scalar<T> {
    type Value = T;

    fn read(&self, node: &Node, place: &Place) -> Option<T> {
        let fault = match &node.value {
            _ if node.is_null() => Fault::because(
                "the field is empty",
                format!("write {}, like {}, or leave the field out", self.words, self.example),
            ),
            Value::Scalar { text, plain } => match (self.parse)(text, *plain) {
                Ok(value) => return Some(value),
                Err(Fault::Unfit) => self.unfit(text, *plain),
                Err(because) => because,
            },
            Value::List(_) | Value::Map(_) => {
                let what = format!("{}, not {}", node.what(), self.words);
                Fault::because(what, format!("write it like {}", self.example))
            }
        };
        if let Fault::Because { what, advice } = fault {
            place.refuse(what, advice);
        }
        None
    }

    fn schema(&self) -> Json {
        self.schema.clone()
    }

    fn words(&self) -> String {
        self.words.clone()
    }

    fn example(&self) -> String {
        self.example.to_owned()
    }
}

impl<T> Scalar<T> {
    pub fn new(
        words: impl Into<String>,
        example: &'static str,
        schema: Json,
        parse: impl Fn(&str, bool) -> Result<T, Fault> + 'static,
    ) -> Self {
        Self { words: words.into(), example, schema, parse: Box::new(parse) }
    }

    fn unfit(&self, text: &str, plain: bool) -> Fault {
        let shown = if plain { text.to_owned() } else { format!("{text:?}") };
        let what = format!("{shown} is not {}", self.words);
        match plain {
            false if (self.parse)(text, true).is_ok() => Fault::because(what, "remove the quotes"),
            _ => Fault::because(what, format!("write it like {}", self.example)),
        }
    }
}

/// A list of values of one kind.
pub struct ListOf<T>(pub Scalar<T>);

impl<T> Kind for ListOf<T> {
    type Value = Vec<T>;

    fn read(&self, node: &Node, place: &Place) -> Option<Vec<T>> {
        match &node.value {
            _ if node.is_null() => Some(Vec::new()),
            Value::List(items) => {
                let read = |(index, item): (usize, &Node)| self.0.read(item, &place.item(index, item.mark));
                let read: Vec<Option<T>> = items.iter().enumerate().map(read).collect();
                read.into_iter().collect()
            }
            _ => {
                place.refuse(format!("{}, not a list", node.what()), format!("write it like {}", self.example()));
                None
            }
        }
    }

    fn schema(&self) -> Json {
        json!({ "type": "array", "items": self.0.schema() })
    }

    fn words(&self) -> String {
        format!("a list; each is {}", self.0.words())
    }

    fn example(&self) -> String {
        format!("[{}]", self.0.example())
    }
}

/// A mapping with values of one kind and arbitrary names.
pub struct MapOf<T> {
    keys: Scalar<String>,
    values: Scalar<T>,
    /// Pattern of the keys in JSON Schema.
    key_pattern: &'static str,
}

impl<T> MapOf<T> {
    /// With the keys of node config and run config.
    pub fn of_config(values: Scalar<T>) -> Self {
        Self { keys: config::config_keys(), values, key_pattern: config::CONFIG_KEYS }
    }
}

impl<T> Kind for MapOf<T> {
    type Value = BTreeMap<String, T>;

    fn read(&self, node: &Node, place: &Place) -> Option<Self::Value> {
        let entries = match &node.value {
            _ if node.is_null() => return Some(BTreeMap::new()),
            Value::Map(entries) => entries,
            _ => {
                place.refuse(format!("{}, not a mapping", node.what()), format!("write it like {}", self.example()));
                return None;
            }
        };
        let mut read = Vec::new();
        for (key, node) in entries {
            let written = Node { mark: key.mark, value: Value::Scalar { text: key.name.clone(), plain: false } };
            let name = self.keys.read(&written, &place.field(&key.name, key.mark));
            let value = self.values.read(node, &place.field(&key.name, node.mark));
            read.push(name.zip(value));
        }
        read.into_iter().collect()
    }

    fn schema(&self) -> Json {
        json!({
            "type": "object",
            "propertyNames": { "pattern": self.key_pattern },
            "additionalProperties": self.values.schema(),
        })
    }

    fn words(&self) -> String {
        format!("a mapping; each value is {}", self.values.words())
    }

    fn example(&self) -> String {
        format!("{{{}: {}}}", self.keys.example(), self.values.example())
    }
}
