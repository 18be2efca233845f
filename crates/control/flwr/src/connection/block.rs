//! Adds, changes and removes the lines of one connection in a TOML file. Every other byte stays.
//!
//! Pure. Lines are found by a textual search; then both texts are parsed to verify that only this connection changed.
//! If the verification fails, the file is not edited.

use std::ops::Range;

use toml::{Table, Value};

/// Marks an entry of ours. A user who edits the table may remove this line and so keep the table.
pub const MARK: &str = "# Trellis wrote this connection, and takes it away with its federation.";
/// Prefix of the lines of the replaced table, which is restored later.
const REPLACED: &str = "#was: ";

/// A table and its desired values.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry<'a> {
    /// The table of connections, such as `superlink`.
    pub parent: &'a [&'a str],
    pub name: &'a str,
    pub values: Table,
}

/// Why a text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditError {
    /// Invalid TOML, with position and reason.
    Unreadable(String),
    /// A connection of this name exists that we did not write.
    Foreign,
    /// The entry cannot be changed without changing other content.
    Unusual,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    Unchanged,
    Added(String),
    Changed(String),
    /// Flower's own, unchanged entry of that name was turned into comments.
    ReplacedDefault(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    NotFound,
    /// The text without the entry.
    Removed(String),
}

/// The text with the connection added or updated.
pub fn put(text: &str, entry: &Entry<'_>) -> Result<Put, EditError> {
    let before = read(text)?;
    let Some(existing) = find(&before, entry.parent, entry.name) else {
        let added = match text {
            "" => entry.block(""),
            text => format!("{}\n\n{}", text.trim_end_matches('\n'), entry.block("")),
        };
        return verified(&before, entry, Some(&entry.values), added).map(Put::Added);
    };
    let existing = existing.as_table().ok_or(EditError::Foreign)?;
    let section = Section::find(text, entry).ok_or(EditError::Unusual)?;
    let ours = section.marked || is_same(existing, &entry.values);
    let default = !ours && entry.parent == ["superlink"] && is_default(entry.name, existing);
    if !ours && !default {
        return Err(EditError::Foreign);
    }
    if section.marked && *existing == entry.values {
        return Ok(Put::Unchanged);
    }
    let kept = if default { section.body(text).to_owned() } else { section.replaced(text) };
    let changed = splice(text, &section.lines, &entry.block(&kept));
    let changed = verified(&before, entry, Some(&entry.values), changed)?;
    Ok(if default { Put::ReplacedDefault(changed) } else { Put::Changed(changed) })
}

/// The text without the connection, if it is ours by its mark or its values.
pub fn remove(text: &str, entry: &Entry<'_>) -> Result<Removal, EditError> {
    let before = read(text)?;
    let Some(existing) = find(&before, entry.parent, entry.name) else { return Ok(Removal::NotFound) };
    let existing = existing.as_table().ok_or(EditError::Foreign)?;
    let section = Section::find(text, entry).ok_or(EditError::Unusual)?;
    if !section.marked && !is_same(existing, &entry.values) {
        return Err(EditError::Foreign);
    }
    let kept = section.replaced(text);
    let restored = read(&kept)?;
    let (back, instead) = match kept.is_empty() {
        true => (None, String::new()),
        false => (Some(&restored), format!("{}\n{kept}", entry.header())),
    };
    let mut left = splice(text, &section.lines, &instead);
    if back.is_none() && section.lines.end == text.len() {
        // The blank line before the entry.
        left.truncate(left.trim_end_matches('\n').len());
        left.push_str(if left.is_empty() { "" } else { "\n" });
    }
    verified(&before, entry, back, left).map(Removal::Removed)
}

impl Entry<'_> {
    pub fn header(&self) -> String {
        let path = self.parent.iter().chain([&self.name]).map(|part| key(part)).collect::<Vec<_>>();
        format!("[{}]", path.join("."))
    }

    /// The lines to add by hand.
    pub fn snippet(&self) -> String {
        let lines: String = self.values.iter().map(|(name, value)| format!("{} = {value}\n", key(name))).collect();
        format!("{}\n{lines}", self.header())
    }

    fn block(&self, kept: &str) -> String {
        let kept: String = kept.lines().map(|line| format!("{REPLACED}{line}\n")).collect();
        format!("{MARK}\n{kept}{}", self.snippet())
    }
}

/// Whether our mark is above the connection.
pub fn is_marked(text: &str, parent: &[&str], name: &str) -> bool {
    Section::find(text, &Entry { parent, name, values: Table::new() }).is_some_and(|section| section.marked)
}

/// The lines of a connection, including the marks above its header.
#[derive(Debug)]
struct Section {
    lines: Range<usize>,
    header: Range<usize>,
    marked: bool,
}

impl Section {
    fn find(text: &str, entry: &Entry<'_>) -> Option<Section> {
        let wanted: Vec<&str> = entry.parent.iter().copied().chain([entry.name]).collect();
        let lines = lines(text);
        let at = lines.iter().position(|range| header_path(&text[range.clone()]).is_some_and(|path| path == wanted))?;
        let of_table = |range: &&Range<usize>| !text[(*range).clone()].trim_start().starts_with('[');
        let body = lines[at + 1..].iter().take_while(of_table);
        // Blank lines and comments at the end belong to the next table.
        let last = body.filter(|range| has_content(&text[(*range).clone()])).last().unwrap_or(&lines[at]);
        let above: Vec<&Range<usize>> =
            lines[..at].iter().rev().take_while(|range| is_ours(&text[(*range).clone()])).collect();
        let start = above.last().map_or(lines[at].start, |range| range.start);
        let marked = above.iter().any(|range| text[(*range).clone()].trim_end() == MARK);
        Some(Section { lines: start..last.end, header: lines[at].clone(), marked })
    }

    /// The lines below the header.
    fn body<'a>(&self, text: &'a str) -> &'a str {
        &text[self.header.end..self.lines.end]
    }

    /// The lines that our entry replaced.
    fn replaced(&self, text: &str) -> String {
        let above = text[self.lines.start..self.header.start].lines();
        above.filter_map(|line| line.strip_prefix(REPLACED)).map(|line| format!("{line}\n")).collect()
    }
}

fn is_ours(line: &str) -> bool {
    line.trim_end() == MARK || line.starts_with(REPLACED)
}

fn has_content(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with('#')
}

/// The range of each line, with its newline.
fn lines(text: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    text.split_inclusive('\n')
        .map(|line| {
            let range = start..start + line.len();
            start = range.end;
            range
        })
        .collect()
}

fn splice(text: &str, range: &Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

/// The path of the table in a header such as `[a."b"]`.
fn header_path(line: &str) -> Option<Vec<String>> {
    if !line.trim_start().starts_with('[') || line.trim_start().starts_with("[[") {
        return None;
    }
    let mut table = line.parse::<Table>().ok()?;
    let mut path = Vec::new();
    while let Some((name, value)) = table.into_iter().next() {
        path.push(name);
        table = value.as_table()?.clone();
    }
    Some(path)
}

fn key(name: &str) -> String {
    let bare = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    match !name.is_empty() && name.chars().all(bare) {
        true => name.to_owned(),
        false => Value::String(name.to_owned()).to_string(),
    }
}

fn read(text: &str) -> Result<Table, EditError> {
    text.parse().map_err(|error: toml::de::Error| EditError::Unreadable(error.to_string().trim_end().to_owned()))
}

fn find<'a>(table: &'a Table, parent: &[&str], name: &str) -> Option<&'a Value> {
    parent.iter().try_fold(table, |table, part| table.get(*part)?.as_table())?.get(name)
}

/// Flower's command rewrites the whole file when it migrates settings, and drops our mark. The entry is then identified by
/// the path of the certificates, or without certificates by the address.
fn is_same(existing: &Table, entry: &Table) -> bool {
    let same = |name: &str| entry.get(name).is_some_and(|value| existing.get(name) == Some(value));
    if entry.contains_key(super::ROOT_CERTIFICATES) { same(super::ROOT_CERTIFICATES) } else { same(super::ADDRESS) }
}

/// The entry `local` that the official command writes into a new file: simulation in 1.26 and 1.27, later a SuperLink that
/// it starts itself.
fn is_default(name: &str, existing: &Table) -> bool {
    const DEFAULTS: [&str; 2] = [
        "address = ':local:'",
        "options.num-supernodes = 10\noptions.backend.client-resources = { num-cpus = 1, num-gpus = 0 }",
    ];
    name == "local" && DEFAULTS.iter().any(|text| text.parse().is_ok_and(|default: Table| default == *existing))
}

/// The new text, if it differs from the old one in this connection only.
fn verified(before: &Table, entry: &Entry<'_>, values: Option<&Table>, after: String) -> Result<String, EditError> {
    let mut wanted = before.clone();
    let mut parent = &mut wanted;
    for part in entry.parent {
        let entry = parent.entry((*part).to_owned()).or_insert_with(|| Value::Table(Table::new()));
        parent = entry.as_table_mut().ok_or(EditError::Unusual)?;
    }
    match values {
        Some(values) => parent.insert(entry.name.to_owned(), Value::Table(values.clone())),
        None => parent.remove(entry.name),
    };
    let mut found: Table = after.parse().map_err(|_| EditError::Unusual)?;
    prune(&mut wanted);
    prune(&mut found);
    if found == wanted { Ok(after) } else { Err(EditError::Unusual) }
}

/// Removes empty tables, which make no difference to Flower.
fn prune(table: &mut Table) {
    for (_, value) in table.iter_mut() {
        if let Value::Table(inner) = value {
            prune(inner);
        }
    }
    table.retain(|_, value| value.as_table().is_none_or(|inner| !inner.is_empty()));
}

#[cfg(test)]
mod tests;
