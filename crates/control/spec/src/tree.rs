//! YAML and JSON as a tree of nodes with line and column. Knows nothing of the content of documents.

mod json;

use std::collections::HashMap;
use std::rc::Rc;

use yaml_rust2::parser::{Event, Parser, Tag};
use yaml_rust2::scanner::{Marker, ScanError, TScalarStyle};

use crate::problem::{Mark, Notes, Place};

/// A larger document is a mistake or an attack.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// Each use of an alias counts: otherwise a few lines of aliases could exhaust the memory.
const MAX_NODES: usize = 200_000;
/// Limit for all texts and keys together. Each use of an alias counts: it can repeat one long text.
const MAX_CONTENT_BYTES: usize = 2 * MAX_TEXT_BYTES;
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone)]
pub struct Node {
    pub mark: Mark,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub enum Value {
    /// Plain: written without quotes, so it may be a number, true, false or null.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone)]
pub struct Key {
    pub mark: Mark,
    pub name: String,
}

impl Node {
    /// Empty or `null`.
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

    /// Description of the value.
    pub fn what(&self) -> String {
        match &self.value {
            _ if self.is_null() => "the field is empty".to_owned(),
            Value::Scalar { text, plain: true } => format!("it is {text}"),
            Value::Scalar { text, plain: false } => format!("it is the text {text:?}"),
            Value::List(_) => "it is a list".to_owned(),
            Value::Map(_) => "it is a mapping".to_owned(),
        }
    }

    fn size(&self) -> Size {
        let own = Size { nodes: 1, bytes: 0 };
        match &self.value {
            Value::Scalar { text, .. } => Size { bytes: text.len(), ..own },
            Value::List(items) => items.iter().map(Node::size).fold(own, Size::plus),
            Value::Map(entries) => entries
                .iter()
                .fold(own, |sum, (key, node)| sum.plus(Size { nodes: 1, bytes: key.name.len() }).plus(node.size())),
        }
    }
}

/// Memory use of a node.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
}

impl Size {
    fn plus(self, other: Size) -> Size {
        Size { nodes: self.nodes + other.nodes, bytes: self.bytes + other.bytes }
    }
}

/// All non-empty documents of a file. Errors are recorded.
pub(crate) fn parse(text: &str, notes: &Rc<Notes>) -> Vec<Node> {
    if text.len() > MAX_TEXT_BYTES {
        let what = format!("it has {} bytes, which is more than the limit of {MAX_TEXT_BYTES}", text.len());
        Place::top(notes, Mark::START).refuse(what, "split it into several files");
        return Vec::new();
    }
    let mut builder =
        Builder { notes, open: Vec::new(), anchors: HashMap::new(), size: Size::default(), documents: Vec::new() };
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
        _ if info.contains("mapping values are not allowed") => {
            "put quotes around text that contains a colon and a space"
        }
        _ if info.contains("tab") => "indent with spaces",
        _ => "check indentation, quotes and brackets of this line and the line before",
    };
    Place::top(notes, place_of(*error.marker())).refuse(format!("it is neither YAML nor JSON: {info}"), advice);
}

/// Parsing stopped; the reason is recorded.
struct GivenUp;

struct Builder<'n> {
    notes: &'n Rc<Notes>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    size: Size,
    documents: Vec<Node>,
}

/// A list or mapping that is not complete yet.
struct Open {
    mark: Mark,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<(Key, Node)>,
        /// The key of the next value.
        pending: Option<Key>,
        /// Position of the first use of each key: a search in `entries` would take quadratic time.
        seen: HashMap<String, Mark>,
    },
}

impl Content {
    fn empty_map() -> Self {
        Content::Map { entries: Vec::new(), pending: None, seen: HashMap::new() }
    }
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
                return self.open(Open { mark, anchor, content: Content::empty_map() });
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
            Content::Map { pending: Some(key), .. } => place.field(&key.name, mark),
            Content::Map { pending: None, .. } => place,
        });
        here.refuse(what, advice);
    }

    fn refuse_tag(&self, tag: Option<Tag>, mark: Mark) {
        if let Some(Tag { handle, suffix }) = tag {
            let shown = if handle == "tag:yaml.org,2002:" { "!!".to_owned() } else { handle };
            self.refuse(mark, format!("the tag {shown}{suffix} is not supported"), "leave it out");
        }
    }

    fn open(&mut self, open: Open) -> Result<(), GivenUp> {
        if self.open.len() == MAX_DEPTH {
            let what = format!("lists and mappings are nested more than {MAX_DEPTH} levels");
            self.refuse(open.mark, what, "reduce the nesting");
            return Err(GivenUp);
        }
        self.open.push(open);
        Ok(())
    }

    fn close(&mut self) -> Result<(), GivenUp> {
        let Open { mark, anchor, content } = self.open.pop().expect("the parser closes only open nodes");
        let node = match content {
            Content::List(items) => Node { mark, value: Value::List(items) },
            // The parser reports the position of a block mapping at its first colon.
            Content::Map { entries, .. } => {
                Node { mark: entries.first().map_or(mark, |(key, _)| key.mark.min(mark)), value: Value::Map(entries) }
            }
        };
        self.add(node, anchor)
    }

    fn repeat(&mut self, anchor: usize, mark: Mark) -> Result<(), GivenUp> {
        match self.anchors.get(&anchor).map(Node::size) {
            Some(size) => {
                self.count(size, mark)?;
                let node = self.anchors[&anchor].clone();
                self.place(node)
            }
            None => {
                let what = "the alias refers to a node that contains it, or to another document";
                self.refuse(mark, what, "write the fields out");
                Err(GivenUp)
            }
        }
    }

    /// Adds to the total before the copy is made, and checks the limits.
    fn count(&mut self, size: Size, mark: Mark) -> Result<(), GivenUp> {
        self.size = self.size.plus(size);
        let what = match self.size {
            Size { nodes, .. } if nodes > MAX_NODES => format!("there are more than {MAX_NODES} values"),
            Size { bytes, .. } if bytes > MAX_CONTENT_BYTES => {
                format!("the texts have more than {MAX_CONTENT_BYTES} bytes")
            }
            _ => return Ok(()),
        };
        self.refuse(mark, format!("{what}, including repetitions by aliases"), "split it into several files");
        Err(GivenUp)
    }

    /// Adds a node whose children are already counted.
    fn add(&mut self, node: Node, anchor: usize) -> Result<(), GivenUp> {
        let bytes = if let Value::Scalar { text, .. } = &node.value { text.len() } else { 0 };
        self.count(Size { nodes: 1, bytes }, node.mark)?;
        if anchor > 0 {
            // An anchor holds a copy of its whole subtree, and anchors can be nested.
            self.count(node.size(), node.mark)?;
            self.anchors.insert(anchor, node.clone());
        }
        self.place(node)
    }

    /// Adds a complete node to its parent.
    fn place(&mut self, node: Node) -> Result<(), GivenUp> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.documents.push(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, pending: key @ Some(_), .. }) => {
                // An empty value has the position of the next token; its key is nearer.
                let key = key.take().expect("a pending key");
                let mark = if node.is_null() { key.mark } else { node.mark };
                entries.push((key, Node { mark, ..node }));
            }
            Some(Content::Map { .. }) => return self.add_key(node),
        }
        Ok(())
    }

    fn add_key(&mut self, node: Node) -> Result<(), GivenUp> {
        let Value::Scalar { text: name, .. } = node.value else {
            self.refuse(node.mark, "the name of a field is a list or mapping", "use text");
            return Err(GivenUp);
        };
        if name == "<<" {
            self.refuse(node.mark, "merge keys (<<) are not supported", "write the fields out");
        }
        let Some(Content::Map { pending, seen, .. }) = self.open.last_mut().map(|open| &mut open.content) else {
            return Ok(());
        };
        let first = seen.get(&name).copied();
        seen.entry(name.clone()).or_insert(node.mark);
        *pending = Some(Key { mark: node.mark, name });
        if let Some(first) = first {
            self.refuse(node.mark, format!("the field is set twice, first in line {}", first.line), "keep one of them");
        }
        Ok(())
    }
}
