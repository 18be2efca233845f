//! The lines of one connection within the text of a TOML file: put there, changed, taken away. Every other byte stays.
//!
//! Pure. Lines are found by their look; that nothing else changed is then proved by reading the old text and the new
//! one. Where it cannot be proved, the file is not for us to edit.

use std::ops::Range;

use toml::{Table, Value};

/// Marks what is ours. Whoever edits the table below it may remove this line, and keeps the table.
pub const MARK: &str = "# Trellis wrote this connection, and takes it away with its federation.";
/// Before each line of a table that stood in the same place, and comes back.
const KEPT: &str = "#was: ";

/// Which table, and what it shall say.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish<'a> {
    /// The table that connections are in, like `superlink`.
    pub parent: &'a [&'a str],
    pub name: &'a str,
    pub values: Table,
}

/// Why a text is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hindrance {
    /// It is no TOML; where, and why not.
    Unreadable(String),
    /// Somebody else has a connection of this name there.
    TakenByOthers,
    /// It is written in a way that we could not change without touching more.
    Unusual,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    Unchanged,
    Added(String),
    Changed(String),
    /// Flower's own entry of that name, which nobody had changed, is kept in comments.
    InsteadOfUsual(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    Nothing,
    /// What is left.
    Left(String),
}

/// The text with the connection in it.
pub fn put(text: &str, wish: &Wish<'_>) -> Result<Put, Hindrance> {
    let before = read(text)?;
    let Some(there) = find(&before, wish.parent, wish.name) else {
        let added = match text {
            "" => wish.block(""),
            text => format!("{}\n\n{}", text.trim_end_matches('\n'), wish.block("")),
        };
        return proved(&before, wish, Some(&wish.values), added).map(Put::Added);
    };
    let there = there.as_table().ok_or(Hindrance::TakenByOthers)?;
    let section = Section::find(text, wish).ok_or(Hindrance::Unusual)?;
    let ours = section.marked || same_way(there, &wish.values);
    let usual = !ours && wish.parent == ["superlink"] && is_usual(wish.name, there);
    if !ours && !usual {
        return Err(Hindrance::TakenByOthers);
    }
    if section.marked && *there == wish.values {
        return Ok(Put::Unchanged);
    }
    let kept = if usual { section.body(text).to_owned() } else { section.kept(text) };
    let changed = splice(text, &section.lines, &wish.block(&kept));
    let changed = proved(&before, wish, Some(&wish.values), changed)?;
    Ok(if usual { Put::InsteadOfUsual(changed) } else { Put::Changed(changed) })
}

/// The text without the connection, if it is ours: by its mark, or by what it says.
pub fn take(text: &str, wish: &Wish<'_>) -> Result<Taken, Hindrance> {
    let before = read(text)?;
    let Some(there) = find(&before, wish.parent, wish.name) else { return Ok(Taken::Nothing) };
    let there = there.as_table().ok_or(Hindrance::TakenByOthers)?;
    let section = Section::find(text, wish).ok_or(Hindrance::Unusual)?;
    if !section.marked && !same_way(there, &wish.values) {
        return Err(Hindrance::TakenByOthers);
    }
    let kept = section.kept(text);
    let usual = read(&kept)?;
    let (back, instead) = match kept.is_empty() {
        true => (None, String::new()),
        false => (Some(&usual), format!("{}\n{kept}", wish.header())),
    };
    let mut left = splice(text, &section.lines, &instead);
    if back.is_none() && section.lines.end == text.len() {
        // The blank line that was put before it.
        left.truncate(left.trim_end_matches('\n').len());
        left.push_str(if left.is_empty() { "" } else { "\n" });
    }
    proved(&before, wish, back, left).map(Taken::Left)
}

impl Wish<'_> {
    pub fn header(&self) -> String {
        let path = self.parent.iter().chain([&self.name]).map(|part| key(part)).collect::<Vec<_>>();
        format!("[{}]", path.join("."))
    }

    /// What to put into a file by hand.
    pub fn snippet(&self) -> String {
        let lines: String = self.values.iter().map(|(name, value)| format!("{} = {value}\n", key(name))).collect();
        format!("{}\n{lines}", self.header())
    }

    fn block(&self, kept: &str) -> String {
        let kept: String = kept.lines().map(|line| format!("{KEPT}{line}\n")).collect();
        format!("{MARK}\n{kept}{}", self.snippet())
    }
}

/// Whether a connection has our mark above it.
pub fn is_marked(text: &str, parent: &[&str], name: &str) -> bool {
    Section::find(text, &Wish { parent, name, values: Table::new() }).is_some_and(|section| section.marked)
}

/// Where the lines of a connection are, with the marks above its header.
#[derive(Debug)]
struct Section {
    lines: Range<usize>,
    header: Range<usize>,
    marked: bool,
}

impl Section {
    fn find(text: &str, wish: &Wish<'_>) -> Option<Section> {
        let wanted: Vec<&str> = wish.parent.iter().copied().chain([wish.name]).collect();
        let lines = lines(text);
        let at = lines.iter().position(|range| header_path(&text[range.clone()]).is_some_and(|path| path == wanted))?;
        let of_table = |range: &&Range<usize>| !text[(*range).clone()].trim_start().starts_with('[');
        let body = lines[at + 1..].iter().take_while(of_table);
        // Blank lines and comments at its end belong to what follows.
        let last = body.filter(|range| says_something(&text[(*range).clone()])).last().unwrap_or(&lines[at]);
        let above: Vec<&Range<usize>> =
            lines[..at].iter().rev().take_while(|range| is_ours(&text[(*range).clone()])).collect();
        let start = above.last().map_or(lines[at].start, |range| range.start);
        let marked = above.iter().any(|range| text[(*range).clone()].trim_end() == MARK);
        Some(Section { lines: start..last.end, header: lines[at].clone(), marked })
    }

    /// The lines under its header.
    fn body<'a>(&self, text: &'a str) -> &'a str {
        &text[self.header.end..self.lines.end]
    }

    /// What stood here before us.
    fn kept(&self, text: &str) -> String {
        let above = text[self.lines.start..self.header.start].lines();
        above.filter_map(|line| line.strip_prefix(KEPT)).map(|line| format!("{line}\n")).collect()
    }
}

fn is_ours(line: &str) -> bool {
    line.trim_end() == MARK || line.starts_with(KEPT)
}

fn says_something(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with('#')
}

/// Each line with its end.
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

/// `[a."b"]` names a table by a path.
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

fn read(text: &str) -> Result<Table, Hindrance> {
    text.parse().map_err(|error: toml::de::Error| Hindrance::Unreadable(error.to_string().trim_end().to_owned()))
}

fn find<'a>(table: &'a Table, parent: &[&str], name: &str) -> Option<&'a Value> {
    parent.iter().try_fold(table, |table, part| table.get(*part)?.as_table())?.get(name)
}

/// Flower's command rewrites the whole file when it moves settings there, and loses our mark: then it is known by what
/// only we would write, the place of the certificates, or where there are none by the address.
fn same_way(there: &Table, wish: &Table) -> bool {
    let same = |name: &str| wish.get(name).is_some_and(|value| there.get(name) == Some(value));
    if wish.contains_key(super::ROOT_CERTIFICATES) { same(super::ROOT_CERTIFICATES) } else { same(super::ADDRESS) }
}

/// What the official command itself puts into a new file as `local`: simulation in 1.26 and 1.27, later a SuperLink that it
/// starts by itself.
fn is_usual(name: &str, there: &Table) -> bool {
    const USUAL: [&str; 2] = [
        "address = ':local:'",
        "options.num-supernodes = 10\noptions.backend.client-resources = { num-cpus = 1, num-gpus = 0 }",
    ];
    name == "local" && USUAL.iter().any(|text| text.parse().is_ok_and(|usual: Table| usual == *there))
}

/// The new text, if all that it changes is this connection.
fn proved(before: &Table, wish: &Wish<'_>, values: Option<&Table>, after: String) -> Result<String, Hindrance> {
    let mut wanted = before.clone();
    let mut parent = &mut wanted;
    for part in wish.parent {
        let entry = parent.entry((*part).to_owned()).or_insert_with(|| Value::Table(Table::new()));
        parent = entry.as_table_mut().ok_or(Hindrance::Unusual)?;
    }
    match values {
        Some(values) => parent.insert(wish.name.to_owned(), Value::Table(values.clone())),
        None => parent.remove(wish.name),
    };
    let mut found: Table = after.parse().map_err(|_| Hindrance::Unusual)?;
    prune(&mut wanted);
    prune(&mut found);
    if found == wanted { Ok(after) } else { Err(Hindrance::Unusual) }
}

/// Tables without anything in them: whether they are written or not makes no difference to Flower.
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
