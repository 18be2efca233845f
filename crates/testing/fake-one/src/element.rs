//! XML of oned: elements and text, without attributes. Independent of the elements' meaning.

use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Numbers and names, written without escapes.
    Plain(String),
    /// Free text, written as CDATA.
    Free(String),
    Elements(Vec<Element>),
}

impl Element {
    pub fn plain(name: &str, text: impl ToString) -> Element {
        Element { name: name.to_owned(), content: Content::Plain(text.to_string()) }
    }

    pub fn free(name: &str, text: impl ToString) -> Element {
        Element { name: name.to_owned(), content: Content::Free(text.to_string()) }
    }

    pub fn of(name: &str, elements: Vec<Element>) -> Element {
        Element { name: name.to_owned(), content: Content::Elements(elements) }
    }

    pub fn to_xml(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        out.push('<');
        out.push_str(&self.name);
        out.push('>');
        match &self.content {
            Content::Plain(text) => out.push_str(&escaped(text)),
            Content::Free(text) => {
                out.push_str("<![CDATA[");
                out.push_str(&text.replace("]]>", "]]]]><![CDATA[>"));
                out.push_str("]]>");
            }
            Content::Elements(elements) => elements.iter().for_each(|element| element.write(out)),
        }
        out.push_str("</");
        out.push_str(&self.name);
        out.push('>');
    }

    /// JSON form of OneGate and OneFlow: a repeated element becomes an array, any other an object or a text.
    pub fn to_json(&self) -> Value {
        match &self.content {
            Content::Plain(text) | Content::Free(text) => Value::String(text.clone()),
            Content::Elements(elements) => {
                let mut object: Map<String, Value> = Map::new();
                for element in elements {
                    let value = element.to_json();
                    match object.get_mut(&element.name) {
                        None => {
                            object.insert(element.name.clone(), value);
                        }
                        Some(Value::Array(values)) => values.push(value),
                        Some(first) => *first = Value::Array(vec![first.take(), value]),
                    }
                }
                Value::Object(object)
            }
        }
    }

    pub fn children(&self) -> &[Element] {
        match &self.content {
            Content::Elements(elements) => elements,
            Content::Plain(_) | Content::Free(_) => &[],
        }
    }

    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children().iter().find(|element| element.name == name)
    }

    pub fn text(&self) -> &str {
        match &self.content {
            Content::Plain(text) | Content::Free(text) => text,
            Content::Elements(_) => "",
        }
    }

    /// Of mixed contents, only the elements are kept.
    pub fn parse(text: &str) -> Result<Element, String> {
        let mut reader = Reader::from_str(text);
        let mut open: Vec<(String, Vec<Element>, String)> = Vec::new();
        loop {
            let event = reader.read_event().map_err(|error| error.to_string())?;
            match event {
                Event::Start(start) => {
                    open.push((start.name().as_ref().to_owned(), Vec::new(), String::new()));
                }
                Event::Empty(empty) => {
                    let name = empty.name().as_ref().to_owned();
                    let element = Element::plain(&name, "");
                    match open.last_mut() {
                        Some((_, elements, _)) => elements.push(element),
                        None => return Ok(element),
                    }
                }
                Event::End(_) => {
                    let (name, elements, text) = open.pop().ok_or("an element ends that never began")?;
                    let content = if elements.is_empty() { Content::Plain(text) } else { Content::Elements(elements) };
                    let element = Element { name, content };
                    match open.last_mut() {
                        Some((_, elements, _)) => elements.push(element),
                        None => return Ok(element),
                    }
                }
                Event::Text(text) => said(&mut open, text.as_ref()),
                Event::CData(text) => said(&mut open, text.as_ref()),
                Event::GeneralRef(reference) => {
                    let name: &str = reference.as_ref();
                    said(&mut open, &character(name).ok_or_else(|| format!("&{name}; is unknown"))?);
                }
                Event::Eof => return Err("the document ends too early".to_owned()),
                _ => {}
            }
        }
    }
}

fn said(open: &mut [(String, Vec<Element>, String)], text: &str) {
    if let Some((_, _, said)) = open.last_mut() {
        said.push_str(text);
    }
}

fn character(name: &str) -> Option<String> {
    let known = match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
    };
    Some(known.to_string())
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_can_be_parsed() {
        let element = Element::of(
            "VM",
            vec![Element::plain("NAME", "a<b>&\"c\""), Element::free("T", "x]]>y\n$(z)"), Element::plain("E", "")],
        );
        let read = Element::parse(&element.to_xml()).expect("it is well formed");
        let texts: Vec<_> = read.children().iter().map(|child| child.text().to_owned()).collect();
        assert_eq!(texts, ["a<b>&\"c\"", "x]]>y\n$(z)", ""]);
    }

    #[test]
    fn what_is_cut_or_crooked_is_refused() {
        for text in ["<a><b></a>", "<a>", "", "<a>&nope;</a>"] {
            assert!(Element::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn repeated_elements_become_an_array() {
        let read = Element::parse("<V><N><I>1</I></N><N><I>2</I></N><C>3</C></V>").expect("well formed");
        assert_eq!(read.to_json(), serde_json::json!({"N": [{"I": "1"}, {"I": "2"}], "C": "3"}));
    }
}
