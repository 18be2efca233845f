//! XML of oned: elements with text or with other elements, without attributes or namespaces.

use quick_xml::Reader;
use quick_xml::events::Event;

/// Maximum depth. OpenNebula's documents are flatter.
const DEEPEST: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Element {
    pub name: String,
    /// Text of the element, with entities and CDATA resolved. Undefined if there are children.
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Text of a child; empty if there is none.
    pub fn text_of(&self, name: &str) -> &str {
        self.child(name).map(|child| child.text.as_str()).unwrap_or_default()
    }
}

/// Parses a document with one element.
pub(crate) fn parse(text: &str) -> Result<Element, String> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    let mut root: Option<Element> = None;
    loop {
        let event = reader.read_event();
        let at = reader.buffer_position();
        let event = event.map_err(|error| format!("it is not XML at byte {at}: {error}"))?;
        match event {
            Event::Start(start) => {
                if open.len() == DEEPEST {
                    return Err(format!("it is nested deeper than {DEEPEST} elements"));
                }
                open.push(named(start.name().as_ref()));
            }
            Event::Empty(start) => close(named(start.name().as_ref()), &mut open, &mut root)?,
            Event::End(_) => {
                let element = open.pop().ok_or_else(|| format!("an element ends at byte {at} that never began"))?;
                close(element, &mut open, &mut root)?;
            }
            Event::Text(text) => say(&mut open, &text.xml10_content())?,
            Event::CData(data) => say(&mut open, &data.xml10_content())?,
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().map_err(|error| format!("at byte {at}: {error}"))?;
                match (character, &*reference.xml10_content()) {
                    (Some(character), _) => say(&mut open, character.encode_utf8(&mut [0; 4]))?,
                    (None, name) => say(&mut open, entity(name).ok_or_else(|| format!("&{name}; is not known"))?)?,
                }
            }
            Event::Eof if open.is_empty() => return root.ok_or_else(|| "it contains no element".to_owned()),
            Event::Eof => return Err("it ends too early".to_owned()),
            Event::DocType(_) => return Err("it has a DOCTYPE, which is not supported".to_owned()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

fn named(name: impl AsRef<str>) -> Element {
    Element { name: name.as_ref().to_owned(), ..Element::default() }
}

fn close(element: Element, open: &mut [Element], root: &mut Option<Element>) -> Result<(), String> {
    match (open.last_mut(), &root) {
        (Some(parent), _) => parent.children.push(element),
        (None, None) => *root = Some(element),
        (None, Some(_)) => return Err("it has more than one root".to_owned()),
    }
    Ok(())
}

fn say(open: &mut [Element], text: &str) -> Result<(), String> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err("there is text outside of the root".to_owned()),
    }
    Ok(())
}

fn entity(name: &str) -> Option<&'static str> {
    Some(match name {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "quot" => "\"",
        "apos" => "'",
        _ => return None,
    })
}

/// Appends escaped text. A carriage return needs an escape because parsers normalise line breaks.
pub(crate) fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#13;"),
            _ => out.push(c),
        }
    }
}

/// Whether XML 1.0 can represent the text.
pub(crate) fn can_carry(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r') || (!c.is_control() && c != '\u{fffe}' && c != '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_taken_as_they_were_meant() {
        let root =
            parse("<?xml version='1.0'?>\n<A><B>x &lt;&#65;&#x42;&gt;<![CDATA[ <y> &amp; ]]>z</B><C/><B></B></A>\n");
        let root = root.unwrap();
        assert_eq!(root.text_of("B"), "x <AB> <y> &amp; z");
        assert_eq!((root.all("B").count(), root.text_of("C"), root.child("D")), (2, "", None));
    }

    #[test]
    fn invalid_documents_are_rejected_with_a_reason() {
        let deep = "<a>".repeat(DEEPEST + 1);
        for (text, expected) in [
            ("", "it contains no element"),
            ("<a><b></a>", "it is not XML at byte"),
            ("<a>", "it ends too early"),
            ("<a/><b/>", "it has more than one root"),
            ("x<a/>", "there is text outside of the root"),
            ("<a>&nbsp;</a>", "&nbsp; is not known"),
            ("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", "it has a DOCTYPE"),
            (&deep, "it is nested deeper than 64"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.starts_with(expected), "{text}: {said}");
        }
    }
}
