//! Builder of schemas. Knows no resource.

use serde_json::{Map, Value, json};

/// Pattern of quantities: a number, with or without a unit.
const QUANTITY: &str = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// A CEL rule and its message.
pub struct Rule {
    pub rule: String,
    pub message: String,
}

impl Rule {
    pub fn new(rule: impl Into<String>, message: impl Into<String>) -> Rule {
        Rule { rule: rule.into(), message: message.into() }
    }
}

/// A structural schema.
#[derive(Clone)]
pub struct Schema(Map<String, Value>);

impl Schema {
    fn of(kind: &str, description: &str) -> Schema {
        Schema(Map::new()).with("type", kind).with("description", description)
    }

    pub fn text(description: &str) -> Schema {
        Schema::of("string", description)
    }

    pub fn truth(description: &str) -> Schema {
        Schema::of("boolean", description)
    }

    pub fn int32(description: &str) -> Schema {
        Schema::of("integer", description).with("format", "int32")
    }

    pub fn int64(description: &str) -> Schema {
        Schema::of("integer", description).with("format", "int64")
    }

    /// A time.
    pub fn time(description: &str) -> Schema {
        Schema::text(description).with("format", "date-time")
    }

    pub fn object(description: &str) -> Schema {
        Schema::of("object", description)
    }

    pub fn list(description: &str, items: Schema) -> Schema {
        Schema::of("array", description).with("items", items.into_value())
    }

    /// A list with a key field that is unique among its items.
    pub fn list_by(description: &str, key: &str, items: Schema) -> Schema {
        Schema::list(description, items)
            .with("x-kubernetes-list-type", "map")
            .with("x-kubernetes-list-map-keys", json!([key]))
    }

    pub fn map(description: &str, values: Schema) -> Schema {
        Schema::object(description).with("additionalProperties", values.into_value())
    }

    /// A quantity. Numbers need no quotes.
    pub fn quantity() -> Schema {
        Schema::number_or_text().with("pattern", QUANTITY)
    }

    pub fn number_or_text() -> Schema {
        Schema(Map::new())
            .with("anyOf", json!([{ "type": "integer" }, { "type": "string" }]))
            .with("x-kubernetes-int-or-string", true)
    }

    /// A schema from elsewhere.
    pub fn made(value: Value) -> Schema {
        match value {
            Value::Object(map) => Schema(map),
            _ => unreachable!("a schema is an object"),
        }
    }

    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Schema {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    pub fn describe(self, description: &str) -> Schema {
        self.with("description", description)
    }

    pub fn field(mut self, name: &str, schema: Schema) -> Schema {
        let fields = self.0.entry("properties").or_insert_with(|| json!({}));
        fields[name] = schema.into_value();
        self
    }

    pub fn required<const N: usize>(self, fields: [&str; N]) -> Schema {
        self.with("required", json!(fields.to_vec()))
    }

    pub fn one_of<const N: usize>(self, words: [&str; N]) -> Schema {
        self.with("enum", json!(words.to_vec()))
    }

    pub fn length(self, least: u32, most: u32) -> Schema {
        self.with("minLength", least).with("maxLength", most)
    }

    pub fn between(self, least: i64, most: i64) -> Schema {
        self.with("minimum", least).with("maximum", most)
    }

    pub fn at_least(self, least: i64) -> Schema {
        self.with("minimum", least)
    }

    pub fn at_most_items(self, most: u32) -> Schema {
        self.with("maxItems", most)
    }

    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Schema {
        let all = self.0.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        let all = all.as_array_mut().expect("made as a list, here");
        all.extend(rules.into_iter().map(|Rule { rule, message }| json!({ "rule": rule, "message": message })));
        self
    }

    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}
