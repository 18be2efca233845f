//! Tables for a terminal: columns as wide as their content, or narrower if the terminal is. Text from other machines, such
//! as names of nodes, cannot contain control characters.

use std::io::IsTerminal;

use super::output::print;

const GAP: usize = 2;
/// A narrower column would be unreadable.
const MIN_WIDTH: usize = 8;
const CUT: char = '…';

pub struct Column {
    title: &'static str,
    may_be_cut: bool,
}

impl Column {
    /// Cells are never cut: for ids and other values that people copy.
    pub fn whole(title: &'static str) -> Column {
        Column { title, may_be_cut: false }
    }

    /// Cells may be cut to fit the terminal.
    pub fn cut(title: &'static str) -> Column {
        Column { title, may_be_cut: true }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Bad,
    Quiet,
}

pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub fn new(text: &str, tone: Tone) -> Cell {
        Cell { text: if text.is_empty() { "-".to_owned() } else { clean(text) }, tone }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::new(text, Tone::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::new(&text, Tone::Plain)
    }
}

/// The text without ANSI escape sequences, which programs write to their logs; otherwise like [`clean`].
pub fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.trim_start_matches(|char: char| char.is_ascii_digit() || ";:?".contains(char)));
    // A letter ends the sequence.
    clean(&rest.fold(first, |text, part| text + part.strip_prefix(|_: char| true).unwrap_or_default()))
}

/// Replaces characters that move the cursor, change colours or reverse the direction of writing.
pub fn clean(text: &str) -> String {
    let is_control = |char: char| {
        char.is_control() || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|char| if is_control(char) { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds a row: one cell per column.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    /// Prints the table as wide as the terminal; in a pipe as wide as its content, without colours.
    pub fn print(&self) {
        let terminal = std::io::stdout().is_terminal();
        let width = terminal_size::terminal_size().filter(|_| terminal).map(|(width, _)| usize::from(width.0));
        print(&self.render(width, colours()));
    }

    fn render(&self, width: Option<usize>, colours: bool) -> String {
        let widths = self.widths(width);
        let titles = self.columns.iter().map(|column| (column.title, Tone::Quiet));
        let mut text = line(titles, &widths, colours);
        for row in &self.rows {
            text += &line(row.iter().map(|cell| (cell.text.as_str(), cell.tone)), &widths, colours);
        }
        text
    }

    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let chars = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let cells = self.rows.iter().map(|row| chars(&row[index].text));
                cells.max().unwrap_or(0).max(chars(column.title))
            })
            .collect();
        let Some(limit) = limit else { return widths };
        let gaps = GAP * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > limit {
            let widest = (0..widths.len())
                .filter(|index| self.columns[*index].may_be_cut && widths[*index] > MIN_WIDTH)
                .max_by_key(|index| widths[*index]);
            match widest {
                Some(index) => widths[index] -= 1,
                None => break,
            }
        }
        widths
    }
}

fn line<'a>(cells: impl ExactSizeIterator<Item = (&'a str, Tone)>, widths: &[usize], colours: bool) -> String {
    let last = cells.len().saturating_sub(1);
    let mut text = String::new();
    for (index, (cell, tone)) in cells.enumerate() {
        let shown = cut(cell, widths[index]);
        // No trailing blanks after the last cell.
        let padding = if index == last { 0 } else { widths[index] - shown.chars().count() + GAP };
        let (on, off) = if colours { paint(tone) } else { ("", "") };
        text += &format!("{on}{shown}{off}{}", " ".repeat(padding));
    }
    text.push('\n');
    text
}

fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width - 1).chain([CUT]).collect(),
        false => text.to_owned(),
    }
}

/// Whether stdout is a terminal and NO_COLOR is not set.
pub fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub fn painted(text: &str, tone: Tone) -> String {
    let (on, off) = paint(tone);
    format!("{on}{text}{off}")
}

fn paint(tone: Tone) -> (&'static str, &'static str) {
    match tone {
        Tone::Plain => ("", ""),
        Tone::Good => ("\u{1b}[32m", "\u{1b}[0m"),
        Tone::Bad => ("\u{1b}[31m", "\u{1b}[0m"),
        Tone::Quiet => ("\u{1b}[2m", "\u{1b}[0m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([Column::whole("ID"), Column::cut("NAME"), Column::cut("STATE")]);
        table.row([
            Cell::from("17446744073709551615"),
            Cell::from("the-machine-in-the-corner-of-ward-7"),
            Cell::new("online", Tone::Good),
        ]);
        table.row([Cell::from("1"), Cell::from(""), Cell::from("off\u{1b}[31m\nline\u{202e}")]);
        table
    }

    #[test]
    fn in_a_pipe_tables_are_complete_and_without_colours() {
        let expected = "\
ID                    NAME                                 STATE
17446744073709551615  the-machine-in-the-corner-of-ward-7  online
1                     -                                    off\u{fffd}[31m\u{fffd}line\u{fffd}
";
        assert_eq!(table().render(None, false), expected);
    }

    #[test]
    fn escape_sequences_are_removed() {
        assert_eq!(
            plain("\u{1b}[2m2026\u{1b}[0m \u{1b}[1;31mERROR\u{1b}[0m: no\u{1b}[K file\u{1b}["),
            "2026 ERROR: no file"
        );
        assert_eq!(plain("as it is \u{1b}x"), "as it is \u{fffd}x");
    }

    #[test]
    fn on_a_terminal_tables_fit_and_ids_stay_complete() {
        let narrow = table().render(Some(50), false);
        let expected = "\
ID                    NAME           STATE
17446744073709551615  the-machine-…  online
1                     -              off\u{fffd}[31m\u{fffd}lin…
";
        assert_eq!(narrow, expected);
        assert!(narrow.lines().all(|line| line.chars().count() <= 50));
        let tiny = table().render(Some(3), false);
        assert!(tiny.contains("17446744073709551615  the-mac…  online\n"), "{tiny}");
        assert_eq!(table().render(Some(200), false), table().render(None, false));
    }

    #[test]
    fn colours_do_not_move_columns() {
        let coloured = table().render(None, true);
        assert!(coloured.contains("\u{1b}[32monline\u{1b}[0m\n"), "{coloured}");
        let plain = ["\u{1b}[32m", "\u{1b}[2m", "\u{1b}[0m"].iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(plain, table().render(None, false));
    }
}
