//! YAML (and so JSON) as a tree in which everything knows its line and column. Knows nothing of what is in a document.

mod json;

use std::collections::HashMap;
use std::rc::Rc;

use yaml_rust2::parser::{Event, Parser, Tag};
use yaml_rust2::scanner::{Marker, ScanError, TScalarStyle};

use crate::problem::{Mark, Notes, Place};

/// A document larger than this is a mistake, or an attack.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// What aliases repeat counts too: a few lines of them could otherwise fill the memory.
const MAX_NODES: usize = 200_000;
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub mark: Mark,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Plain: written without quotes, so that it may be a number, true, false or nothing.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub mark: Mark,
    pub name: String,
}

impl Node {
    /// Nothing is written here, or `null`.
    pub fn is_null(&self) -> bool {
        let nothing = |text: &str| ["", "~", "null", "Null", "NULL"].contains(&text);
        matches!(&self.value, Value::Scalar { text, plain: true } if nothing(text))
    }

    pub fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node),
            _ => None,
        }
    }

    /// What it is, in words.
    pub fn what(&self) -> String {
        match &self.value {
            _ if self.is_null() => "nothing is written here".to_owned(),
            Value::Scalar { text, plain: true } => format!("it is {text}"),
            Value::Scalar { text, plain: false } => format!("it is the text {text:?}"),
            Value::List(_) => "it is a list".to_owned(),
            Value::Map(_) => "it is a mapping".to_owned(),
        }
    }

    fn size(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::size).sum(),
            Value::Map(entries) => entries.iter().map(|(_, node)| node.size()).sum(),
        }
    }
}

/// All documents of a file that are not empty. What is wrong with them is noted.
pub(crate) fn parse(text: &str, notes: &Rc<Notes>) -> Vec<Node> {
    if text.len() > MAX_TEXT_BYTES {
        let what = format!("it has {} bytes, which is more than the {MAX_TEXT_BYTES} that are read", text.len());
        Place::top(notes, Mark::START).refuse(what, "divide it into several files");
        return Vec::new();
    }
    let mut builder = Builder { notes, open: Vec::new(), anchors: HashMap::new(), nodes: 0, documents: Vec::new() };
    let text = json::as_yaml(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut parser = Parser::new_from_str(&text);
    loop {
        match parser.next_token() {
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, mark)) => {
                if builder.take(event, place_of(mark)).is_err() {
                    break;
                }
            }
            Err(error) => {
                refuse_syntax(notes, &error);
                break;
            }
        }
    }
    builder.documents.retain(|document| !document.is_null());
    builder.documents
}

fn place_of(marker: Marker) -> Mark {
    Mark { line: marker.line().max(1), column: marker.col() + 1 }
}

fn refuse_syntax(notes: &Rc<Notes>, error: &ScanError) {
    let info = error.info();
    let advice = match info {
        _ if info.contains("mapping values are not allowed") => "put quotes around text that holds a colon and a space",
        _ if info.contains("tab") => "indent with spaces",
        _ => "look at this line and the one before it: indentation, quotes, brackets",
    };
    Place::top(notes, place_of(*error.marker())).refuse(format!("it is neither YAML nor JSON: {info}"), advice);
}

/// The document cannot be understood any further; why is noted.
struct GivenUp;

struct Builder<'n> {
    notes: &'n Rc<Notes>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    documents: Vec<Node>,
}

/// A list or mapping whose end has not come yet.
struct Open {
    mark: Mark,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    /// With the key whose value comes next.
    Map(Vec<(Key, Node)>, Option<Key>),
}

impl Builder<'_> {
    fn take(&mut self, event: Event, mark: Mark) -> Result<(), GivenUp> {
        match event {
            Event::DocumentStart => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag, mark);
                let node = Node { mark, value: Value::Scalar { text, plain: style == TScalarStyle::Plain } };
                return self.add(node, anchor);
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag, mark);
                return self.open(Open { mark, anchor, content: Content::List(Vec::new()) });
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag, mark);
                return self.open(Open { mark, anchor, content: Content::Map(Vec::new(), None) });
            }
            Event::SequenceEnd | Event::MappingEnd => return self.close(),
            Event::Alias(anchor) => return self.repeat(anchor, mark),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn refuse(&self, mark: Mark, what: impl Into<String>, advice: &str) {
        let here = self.open.iter().fold(Place::top(self.notes, mark), |place, open| match &open.content {
            Content::List(items) => place.item(items.len(), mark),
            Content::Map(_, Some(key)) => place.field(&key.name, mark),
            Content::Map(_, None) => place,
        });
        here.refuse(what, advice);
    }

    fn refuse_tag(&self, tag: Option<Tag>, mark: Mark) {
        if let Some(Tag { handle, suffix }) = tag {
            let shown = if handle == "tag:yaml.org,2002:" { "!!".to_owned() } else { handle };
            self.refuse(mark, format!("the tag {shown}{suffix} has no meaning here"), "leave it out");
        }
    }

    fn open(&mut self, open: Open) -> Result<(), GivenUp> {
        if self.open.len() == MAX_DEPTH {
            let what = format!("lists and mappings are inside each other more than {MAX_DEPTH} times");
            self.refuse(open.mark, what, "write a Federation; it needs far less");
            return Err(GivenUp);
        }
        self.open.push(open);
        Ok(())
    }

    fn close(&mut self) -> Result<(), GivenUp> {
        let Open { mark, anchor, content } = self.open.pop().expect("the parser ends only what it began");
        let node = match content {
            Content::List(items) => Node { mark, value: Value::List(items) },
            // The parser tells of a block mapping where its first colon is.
            Content::Map(entries, _) => {
                Node { mark: entries.first().map_or(mark, |(key, _)| key.mark.min(mark)), value: Value::Map(entries) }
            }
        };
        self.add(node, anchor)
    }

    fn repeat(&mut self, anchor: usize, mark: Mark) -> Result<(), GivenUp> {
        match self.anchors.get(&anchor) {
            Some(node) => {
                let node = node.clone();
                self.nodes += node.size();
                self.add(node, 0)
            }
            None => {
                let what = "the alias refers to what it is itself a part of, or to another document";
                self.refuse(mark, what, "write the fields out");
                Err(GivenUp)
            }
        }
    }

    /// Puts a whole node where it belongs.
    fn add(&mut self, node: Node, anchor: usize) -> Result<(), GivenUp> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let what = format!("there are more than {MAX_NODES} values, counted with what aliases repeat");
            self.refuse(node.mark, what, "divide it into several files");
            return Err(GivenUp);
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.documents.push(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map(entries, key @ Some(_))) => {
                // A value that is not written has the place of whatever comes next; its key is nearer.
                let key = key.take().expect("there is one");
                let mark = if node.is_null() { key.mark } else { node.mark };
                entries.push((key, Node { mark, ..node }));
            }
            Some(Content::Map(..)) => return self.add_key(node),
        }
        Ok(())
    }

    fn add_key(&mut self, node: Node) -> Result<(), GivenUp> {
        let Value::Scalar { text: name, .. } = node.value else {
            self.refuse(node.mark, "a list or mapping is used as the name of a field", "use a word");
            return Err(GivenUp);
        };
        if name == "<<" {
            self.refuse(node.mark, "merge keys (<<) are not understood", "write the fields out");
        }
        let Some(Content::Map(entries, pending)) = self.open.last_mut().map(|open| &mut open.content) else {
            return Ok(());
        };
        let first = entries.iter().find(|(key, _)| key.name == name).map(|(key, _)| key.mark);
        *pending = Some(Key { mark: node.mark, name });
        if let Some(first) = first {
            self.refuse(node.mark, format!("it is given twice, first in line {}", first.line), "keep one of them");
        }
        Ok(())
    }
}
