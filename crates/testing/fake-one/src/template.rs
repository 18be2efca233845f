//! Template parser: `KEY = "value"`, `KEY = [ A = "x", B = "y" ]`, repeated keys, or XML. Independent of the clients' parser,
//! so that an error in one of them is noticed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::element::{Content, Element};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    Single(String),
    Vector(BTreeMap<String, String>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template(pub BTreeMap<String, Vec<Attribute>>);

impl Template {
    pub fn parse(text: &str) -> Result<Template, String> {
        match text.trim_start().starts_with('<') {
            true => Element::parse(text).map(|root| Template::from_element(&root)),
            false => Parser { rest: text.chars().peekable(), at: 0 }.template(),
        }
    }

    pub fn from_element(root: &Element) -> Template {
        let mut template = Template::default();
        for child in root.children() {
            let attribute = match &child.content {
                Content::Plain(text) | Content::Free(text) => Attribute::Single(text.clone()),
                Content::Elements(parts) => Attribute::Vector(
                    parts.iter().map(|part| (part.name.to_uppercase(), part.text().to_owned())).collect(),
                ),
            };
            template.add(&child.name, attribute);
        }
        template
    }

    /// As in an OneFlow role: texts, objects and arrays of objects.
    pub fn from_json(object: &Map<String, Value>) -> Template {
        let mut template = Template::default();
        for (name, value) in object {
            match value {
                Value::Array(values) => values.iter().for_each(|value| template.add(name, attribute(value))),
                value => template.add(name, attribute(value)),
            }
        }
        template
    }

    pub fn add(&mut self, name: &str, attribute: Attribute) {
        self.0.entry(name.to_uppercase()).or_default().push(attribute);
    }

    pub fn set(&mut self, name: &str, text: impl ToString) {
        self.0.insert(name.to_uppercase(), vec![Attribute::Single(text.to_string())]);
    }

    pub fn set_vector(&mut self, name: &str, vector: BTreeMap<String, String>) {
        self.0.insert(name.to_uppercase(), vec![Attribute::Vector(vector)]);
    }

    pub fn erase(&mut self, name: &str) -> Option<Vec<Attribute>> {
        self.0.remove(&name.to_uppercase())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.iter().find_map(|attribute| match attribute {
            Attribute::Single(text) => Some(text.as_str()),
            Attribute::Vector(_) => None,
        })
    }

    pub fn vectors(&self, name: &str) -> impl Iterator<Item = &BTreeMap<String, String>> {
        self.0.get(name).into_iter().flatten().filter_map(|attribute| match attribute {
            Attribute::Vector(vector) => Some(vector),
            Attribute::Single(_) => None,
        })
    }

    pub fn vector(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.vectors(name).next()
    }

    /// Replaces attributes with equal names as a whole, like oned.
    pub fn merge(&mut self, other: Template) {
        self.0.extend(other.0);
    }

    /// Merge of OneFlow: vectors are merged by their parts, lists of vectors are concatenated.
    pub fn merge_deep(&mut self, other: Template) {
        for (name, attributes) in other.0 {
            match (self.0.get_mut(&name).map(Vec::as_mut_slice), attributes.as_slice()) {
                (Some([Attribute::Vector(old)]), [Attribute::Vector(new)]) if name == "CONTEXT" => {
                    old.extend(new.clone());
                }
                _ => {
                    self.0.insert(name, attributes);
                }
            }
        }
    }

    pub fn elements(&self) -> Vec<Element> {
        let mut elements = Vec::new();
        for (name, attributes) in &self.0 {
            elements.extend(attributes.iter().map(|attribute| match attribute {
                Attribute::Single(text) => Element::free(name, text),
                Attribute::Vector(parts) => {
                    Element::of(name, parts.iter().map(|(name, text)| Element::free(name, text)).collect())
                }
            }));
        }
        elements
    }
}

fn attribute(value: &Value) -> Attribute {
    match value {
        Value::Object(parts) => {
            Attribute::Vector(parts.iter().map(|(name, value)| (name.to_uppercase(), text_of(value))).collect())
        }
        value => Attribute::Single(text_of(value)),
    }
}

pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

struct Parser<I: Iterator<Item = char>> {
    rest: std::iter::Peekable<I>,
    at: usize,
}

impl<I: Iterator<Item = char>> Parser<I> {
    fn next(&mut self) -> Option<char> {
        self.at += 1;
        self.rest.next()
    }

    fn template(mut self) -> Result<Template, String> {
        let mut template = Template::default();
        loop {
            self.skip(|c| c.is_whitespace());
            match self.rest.peek() {
                None => return Ok(template),
                Some('#') => self.skip(|c| c != '\n'),
                Some(_) => {
                    let name = self.name()?;
                    self.expect('=')?;
                    self.skip(|c| c == ' ' || c == '\t');
                    let attribute = match self.rest.peek() {
                        Some('[') => Attribute::Vector(self.vector()?),
                        _ => Attribute::Single(self.value(&['\n'])?),
                    };
                    template.add(&name, attribute);
                }
            }
        }
    }

    fn vector(&mut self) -> Result<BTreeMap<String, String>, String> {
        self.expect('[')?;
        let mut parts = BTreeMap::new();
        loop {
            self.skip(char::is_whitespace);
            if self.rest.peek() == Some(&']') {
                self.next();
                return Ok(parts);
            }
            let name = self.name()?;
            self.expect('=')?;
            self.skip(char::is_whitespace);
            let value = self.value(&[',', ']', '\n'])?;
            parts.insert(name, value);
            self.skip(char::is_whitespace);
            match self.rest.peek() {
                Some(',') => {
                    self.next();
                }
                Some(']') => {}
                _ => return Err(self.wrong()),
            }
        }
    }

    fn name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        while let Some(c) = self.rest.next_if(|c| c.is_alphanumeric() || "_-.:/".contains(*c)) {
            self.at += 1;
            name.push(c);
        }
        match name.is_empty() {
            true => Err(self.wrong()),
            false => Ok(name.to_uppercase()),
        }
    }

    fn value(&mut self, ends: &[char]) -> Result<String, String> {
        let mut value = String::new();
        if self.rest.peek() != Some(&'"') {
            while let Some(c) = self.rest.next_if(|c| !ends.contains(c)) {
                self.at += 1;
                value.push(c);
            }
            return Ok(value.trim_end().to_owned());
        }
        self.next();
        loop {
            match self.next() {
                None => return Err(self.wrong()),
                Some('"') => return Ok(value),
                Some('\\') if matches!(self.rest.peek(), Some('"' | '\\')) => value.extend(self.next()),
                Some(c) => value.push(c),
            }
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        self.skip(|c| c == ' ' || c == '\t');
        match self.next() {
            Some(c) if c == wanted => Ok(()),
            _ => Err(self.wrong()),
        }
    }

    fn skip(&mut self, unwanted: impl Fn(char) -> bool) {
        while self.rest.next_if(|c| unwanted(*c)).is_some() {
            self.at += 1;
        }
    }

    fn wrong(&mut self) -> String {
        let (at, end) = (self.at, self.at + 1);
        match self.rest.peek() {
            None => format!(
                "Parse error: syntax error, unexpected $end, expecting CBRACKET or VARIABLE at line 1, columns {at}:{end}"
            ),
            Some(_) => {
                format!("Parse error: syntax error, unexpected VARIABLE, expecting EQUAL at line 1, columns {at}:{end}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_xml_are_equivalent() {
        let text = "# c\nNAME = \"a \\\"b\\\" \\\\ \\n\"\nCPU=0.5\nNIC = [ NETWORK=\"x\", ip = \"1\" ]\nNIC=[NETWORK_ID=3]\ncontext=[A=\"$B\nc\"]";
        let read = Template::parse(text).expect("it is a template");
        assert_eq!(read.get("NAME"), Some("a \"b\" \\ \\n"));
        assert_eq!(read.get("CPU"), Some("0.5"));
        assert_eq!(read.vectors("NIC").count(), 2);
        assert_eq!(read.vector("CONTEXT").expect("one")["A"], "$B\nc");
        let again = Template::parse(&Element::of("TEMPLATE", read.elements()).to_xml()).expect("it is XML");
        assert_eq!(again, read);
    }

    #[test]
    fn what_does_not_end_is_refused_as_recorded() {
        let error = Template::parse("NAME=\"x\nCPU=[").expect_err("the quote never ends");
        assert!(
            error.starts_with("Parse error: syntax error, unexpected $end, expecting CBRACKET or VARIABLE"),
            "{error}"
        );
        for text in ["A", "A=[B", "A=[B=1", "A=[B=1 C=2]x", "=1", "A=[=1]"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
