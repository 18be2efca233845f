//! Reads a mapping field by field, and describes it with the same calls. Each field is defined once, with its name, kind, default
//! and help, so that the reader, the JSON Schema and the reference agree.
//!
//! A function that reads an object must read all its fields in any case, since it also runs without a document, to describe them.

use crate::kind::Kind;
use crate::problem::{Mark, Notes, Place, suggest};
use crate::tree::{Node, Value};

/// The description of a field.
#[derive(Debug, Clone)]
pub(crate) struct Property {
    pub name: &'static str,
    pub help: &'static str,
    pub required: bool,
    /// As in a document.
    pub default: Option<&'static str>,
    pub shape: Shape,
}

#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Value { words: String, example: String, schema: serde_json::Value },
    Object(Vec<Property>),
    Objects(Vec<Property>),
}

pub struct Object<'d> {
    /// `None`: the field is absent or not a mapping.
    node: Option<&'d Node>,
    place: Place,
    known: Vec<&'static str>,
    /// Whether missing fields are reported.
    complains: bool,
    /// Unknown fields cause a warning instead of an error.
    lenient: bool,
    /// `Some`: the object is described, not read.
    described: Option<Vec<Property>>,
}

/// Reads an object and refuses unknown fields.
pub(crate) fn read<T>(node: Option<&Node>, place: Place, fields: impl FnOnce(&mut Object<'_>) -> T) -> T {
    read_as(node, place, false, fields)
}

/// Reads an object of another program. Unknown fields, also in nested objects, cause warnings.
pub(crate) fn read_leniently<T>(node: &Node, place: Place, fields: impl FnOnce(&mut Object<'_>) -> T) -> T {
    read_as(Some(node), place, true, fields)
}

fn read_as<T>(node: Option<&Node>, place: Place, lenient: bool, fields: impl FnOnce(&mut Object<'_>) -> T) -> T {
    let map = node.filter(|node| matches!(node.value, Value::Map(_)));
    let other = node.filter(|node| map.is_none() && !node.is_null());
    if let Some(other) = other {
        place.refuse(format!("{}, not a mapping", other.what()), "write fields under it, each as `name: value`");
    }
    let mut object =
        Object { node: map, place, known: Vec::new(), complains: other.is_none(), lenient, described: None };
    let value = fields(&mut object);
    object.tell_unknown();
    value
}

/// Describes the fields that a function reads.
pub(crate) fn describe<T>(fields: impl FnOnce(&mut Object<'_>) -> T) -> Vec<Property> {
    let nothing = Notes::new("");
    let place = Place::top(&nothing, Mark::START);
    let mut object =
        Object { node: None, place, known: Vec::new(), complains: false, lenient: false, described: Some(Vec::new()) };
    fields(&mut object);
    object.described.take().unwrap_or_default()
}

impl<'d> Object<'d> {
    pub fn required<K: Kind>(&mut self, name: &'static str, kind: K, help: &'static str) -> Option<K::Value> {
        self.know(name, help, true, None, || value_shape(&kind));
        let Some(node) = self.get(name) else {
            if self.complains {
                let place = self.place.field(name, self.place.mark);
                place.refuse("it is missing", how_to_write(&kind));
            }
            return None;
        };
        kind.read(node, &self.at(name))
    }

    pub fn optional<K: Kind>(&mut self, name: &'static str, kind: K, help: &'static str) -> Option<K::Value> {
        self.know(name, help, false, None, || value_shape(&kind));
        self.get(name).and_then(|node| kind.read(node, &self.at(name)))
    }

    /// A field with a default, written as in a document.
    pub fn or<K: Kind>(&mut self, name: &'static str, kind: K, default: &'static str, help: &'static str) -> K::Value {
        self.know(name, help, false, Some(default), || value_shape(&kind));
        let given = self.get(name).and_then(|node| kind.read(node, &self.at(name)));
        given.unwrap_or_else(|| {
            let node = Node { mark: Mark::START, value: Value::Scalar { text: default.to_owned(), plain: true } };
            kind.read(&node, &self.place).expect("a valid default")
        })
    }

    /// A mapping or list, empty by default.
    pub fn any<K: Kind<Value: Default>>(&mut self, name: &'static str, kind: K, help: &'static str) -> K::Value {
        self.optional(name, kind, help).unwrap_or_default()
    }

    /// An object whose fields all have defaults or are reported if missing.
    pub fn object<T>(&mut self, name: &'static str, help: &'static str, fields: impl Fn(&mut Object<'_>) -> T) -> T {
        self.know(name, help, false, None, || Shape::Object(describe(&fields)));
        read_as(self.get(name), self.at(name), self.lenient, &fields)
    }

    pub fn required_object<T>(
        &mut self,
        name: &'static str,
        help: &'static str,
        fields: impl Fn(&mut Object<'_>) -> T,
    ) -> T {
        self.know(name, help, true, None, || Shape::Object(describe(&fields)));
        let place = self.at(name);
        match self.get(name) {
            Some(node) => read_as(Some(node), place, self.lenient, &fields),
            None => {
                if self.complains {
                    place.refuse("it is missing", "write it, with its fields under it");
                }
                read_quietly(place, &fields)
            }
        }
    }

    pub fn optional_object<T>(
        &mut self,
        name: &'static str,
        help: &'static str,
        fields: impl Fn(&mut Object<'_>) -> T,
    ) -> Option<T> {
        self.know(name, help, false, None, || Shape::Object(describe(&fields)));
        self.get(name).map(|node| read_as(Some(node), self.at(name), self.lenient, &fields))
    }

    /// A list of objects, empty by default.
    pub fn objects<T>(
        &mut self,
        name: &'static str,
        help: &'static str,
        fields: impl Fn(&mut Object<'_>) -> T,
    ) -> Vec<T> {
        self.know(name, help, false, None, || Shape::Objects(describe(&fields)));
        let place = self.at(name);
        match self.get(name).map(|node| (node, &node.value)) {
            None => Vec::new(),
            Some((node, _)) if node.is_null() => Vec::new(),
            Some((_, Value::List(items))) => {
                let items = items.iter().enumerate();
                items.map(|(i, item)| read_as(Some(item), place.item(i, item.mark), self.lenient, &fields)).collect()
            }
            Some((node, _)) => {
                place.refuse(format!("{}, not a list", node.what()), "write items under it, each beginning with `- `");
                Vec::new()
            }
        }
    }

    /// The place of a field, present or not.
    pub fn at(&self, name: &str) -> Place {
        self.place.field(name, self.get(name).map_or(self.place.mark, |node| node.mark))
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether missing fields are reported: not if the whole object is missing, which is reported already.
    pub fn complains(&self) -> bool {
        self.complains
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Refuses fields that are set and have no effect.
    pub fn refuse_idle(&self, names: &[&str], why: &str) {
        for name in names.iter().filter(|name| self.has(name)) {
            self.at(name).refuse(format!("it has no effect {why}"), "leave it out");
        }
    }

    /// Accepts fields without effect.
    pub fn ignore(&mut self, names: &[&'static str]) {
        self.known.extend(names);
    }

    fn get(&self, name: &str) -> Option<&'d Node> {
        self.node.and_then(|node| node.get(name))
    }

    fn know(
        &mut self,
        name: &'static str,
        help: &'static str,
        required: bool,
        default: Option<&'static str>,
        shape: impl FnOnce() -> Shape,
    ) {
        self.known.push(name);
        if let Some(described) = &mut self.described {
            described.push(Property { name, help, required, default, shape: shape() });
        }
    }

    fn tell_unknown(&self) {
        let Some(Node { value: Value::Map(entries), .. }) = self.node else { return };
        for (key, _) in entries.iter().filter(|(key, _)| !self.known.contains(&key.name.as_str()) && key.name != "<<") {
            let place = self.place.field(&key.name, key.mark);
            match self.lenient {
                true => place.warn("the field has no counterpart and is ignored", "nothing, if you do not need it"),
                false => place.refuse("there is no such field", suggest(&key.name, self.known.iter().copied())),
            }
        }
    }
}

fn read_quietly<T>(place: Place, fields: impl FnOnce(&mut Object<'_>) -> T) -> T {
    fields(&mut Object { node: None, place, known: Vec::new(), complains: false, lenient: false, described: None })
}

fn how_to_write(kind: &impl Kind) -> String {
    match (kind.words(), kind.example()) {
        (words, example) if words == example => format!("write {words}"),
        (words, example) => format!("write {words}, like {example}"),
    }
}

fn value_shape(kind: &impl Kind) -> Shape {
    Shape::Value { words: kind.words(), example: kind.example(), schema: kind.schema() }
}
