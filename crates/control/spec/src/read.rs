//! Reads the documents of a file, and selects the reader of each.

use std::rc::Rc;

use crate::document::{self, API_VERSION, KIND};
use crate::federation::Federation;
use crate::object;
use crate::operator;
use crate::problem::{Diagnostic, Diagnostics, Mark, Notes, Place, suggest};
use crate::tree::{self, Node, Value};

/// The content of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub federations: Vec<Federation>,
    /// Ignored fields and likely mistakes.
    pub warnings: Vec<Diagnostic>,
}

/// Reads all documents of a file, YAML or JSON. `file` is only used in diagnostics.
pub fn read(text: &str, file: &str) -> Result<Vec<Federation>, Diagnostics> {
    read_with_warnings(text, file).map(|reading| reading.federations)
}

pub fn read_with_warnings(text: &str, file: &str) -> Result<Reading, Diagnostics> {
    let notes = Notes::new(file);
    let documents = tree::parse(text, &notes);
    if documents.is_empty() && notes.error_count() == 0 {
        let advice = format!("write a document that begins with apiVersion: {API_VERSION}");
        Place::top(&notes, Mark::START).refuse("the file contains no document", advice);
    }
    let mut federations: Vec<(Federation, Mark)> = Vec::new();
    for document in &documents {
        let Some(federation) = read_document(document, &notes) else { continue };
        if let Some((_, first)) = federations.iter().find(|(known, _)| known.name == federation.name) {
            let what = format!("the federation {} is defined twice, first in line {}", federation.name, first.line);
            Place::top(&notes, document.mark)
                .field("metadata.name", document.mark)
                .refuse(what, "choose different names");
        }
        federations.push((federation, document.mark));
    }
    match notes.take() {
        (problems, warnings) if problems.is_empty() => {
            Ok(Reading { federations: federations.into_iter().map(|(federation, _)| federation).collect(), warnings })
        }
        (problems, _) => Err(problems.into()),
    }
}

/// `None` if there are errors, which are recorded.
fn read_document(document: &Node, notes: &Rc<Notes>) -> Option<Federation> {
    let top = Place::top(notes, document.mark);
    let said = |name: &str| match document.get(name).map(|node| &node.value) {
        Some(Value::Scalar { text, .. }) => Some(text.as_str()),
        _ => None,
    };
    let refuse = |name: &str, known: &[&str], given: &str| {
        let mark = document.get(name).map_or(document.mark, |node| node.mark);
        let advice = suggest(given, known.iter().copied());
        top.field(name, mark).refuse(format!("documents of {given:?} are not supported"), advice);
    };
    // Fields of other kinds of documents are not checked.
    match (said("apiVersion"), said("kind")) {
        (Some(operator::API_VERSION), Some(KIND) | None) => operator::federation(document, top.clone()),
        (Some(API_VERSION) | None, Some(KIND) | None) => {
            object::read(Some(document), top.clone(), document::federation)
        }
        (Some(API_VERSION | operator::API_VERSION) | None, Some(kind)) => {
            refuse("kind", &[KIND], kind);
            None
        }
        (Some(version), _) => {
            refuse("apiVersion", &[API_VERSION, operator::API_VERSION], version);
            None
        }
    }
}
