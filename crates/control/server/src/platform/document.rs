//! Parses documents of callers, and checks what only the server can know.

use trellis_api::Detail;
use trellis_spec::{Diagnostic, Federation, Name, read_with_warnings};

use super::Refusal;

/// A valid document.
#[derive(Debug)]
pub struct Document {
    pub federation: Federation,
    pub warnings: Vec<String>,
}

/// Parses a document with exactly one federation. `name`: the required name. `file`: the file name in diagnostics.
pub fn read(text: &str, file: &str, name: Option<&str>) -> Result<Document, Refusal> {
    let reading = read_with_warnings(text, file).map_err(|problems| {
        let details = problems.0.into_iter().map(detail).collect();
        invalid("the document cannot be used", details)
    })?;
    let warnings = reading.warnings.iter().map(ToString::to_string).collect();
    let mut federations = reading.federations;
    if federations.len() > 1 {
        let what = format!("there are {} federations in it", federations.len());
        return Err(invalid("one document at a time", vec![wrong("", what, "send each by itself")]));
    }
    let mut federation = federations.pop().expect("a document without any is a problem");
    let mut details = relative_paths(&mut federation);
    if let Some(name) = name.filter(|name| *name != federation.name.as_str()) {
        let what = format!("it is {}, but the request is for {name}", federation.name);
        details.push(wrong("metadata.name", what, "use the same name in both"));
    }
    match details.is_empty() {
        true => Ok(Document { federation, warnings }),
        false => Err(invalid("the document cannot be used", details)),
    }
}

/// The server looks paths up in its own file system and has another working directory than the client.
fn relative_paths(federation: &mut Federation) -> Vec<Detail> {
    let mut details = Vec::new();
    federation.visit_paths(|field, path| {
        if !path.is_absolute() {
            let what = format!("{} is a relative path, but the server has another working directory", path.display());
            details.push(wrong(&field.name, what, "give an absolute path on the server's machine"));
        }
    });
    details
}

fn detail(Diagnostic { place, what, advice, .. }: Diagnostic) -> Detail {
    Detail { path: place.field, line: Some(place.line), column: Some(place.column), what, advice }
}

pub fn wrong(path: &str, what: impl Into<String>, advice: impl Into<String>) -> Detail {
    Detail { path: path.to_owned(), line: None, column: None, what: what.into(), advice: advice.into() }
}

pub fn invalid(what: &str, problems: Vec<Detail>) -> Refusal {
    Refusal::Invalid { what: what.to_owned(), problems }
}

/// Parses a name from a URL path.
pub fn name(text: &str) -> Result<Name, Refusal> {
    Name::new(text).ok_or_else(|| unknown(text))
}

pub fn unknown(name: &str) -> Refusal {
    Refusal::NotFound(format!("there is no federation {name:?}"))
}
