//! The printed results per transport: machine, command, table, notes; and their insertion into a document.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Failure;
use crate::client::Transport;
use crate::measure::Measurement;
use crate::superlink::Contender;
use crate::table::{Cell, Metric, Row, markdown};

/// One measurement of all servers.
pub struct Section {
    transport: Transport,
    title: String,
    label: String,
    pub metrics: Vec<Metric>,
    columns: Vec<(Contender, Vec<Cell>)>,
    notes: Vec<String>,
}

impl Section {
    pub fn new(measurement: &Measurement, transport: Transport) -> Self {
        let (title, label, metrics) = (measurement.title(), measurement.label(), measurement.metrics(transport));
        Self { transport, title, label, metrics, columns: Vec::new(), notes: Vec::new() }
    }

    pub fn add(&mut self, contender: Contender, cells: Vec<Cell>, notes: Vec<String>) {
        self.columns.push((contender, cells));
        let title = contender.title(self.transport);
        self.notes.extend(notes.into_iter().map(|note| format!("{}, {title}: {note}", self.label)));
    }

    /// Adds a server without results.
    pub fn add_missing(&mut self, contender: Contender, why: &str, notes: Vec<String>) {
        let cells = self.metrics.iter().map(|_| Cell::Missing(why.to_owned())).collect();
        self.add(contender, cells, notes);
    }

    fn rows(self) -> Vec<Row> {
        let cell = |contender: Contender, index: usize| {
            let column = self.columns.iter().find(|(name, _)| *name == contender);
            column.and_then(|(_, cells)| cells.get(index)).cloned().unwrap_or(Cell::Missing("not run".to_owned()))
        };
        let row = |(index, metric): (usize, Metric)| Row {
            memory: cell(Contender::Memory, index),
            database: cell(Contender::Database, index),
            ours: cell(Contender::Trellis, index),
            metric,
        };
        self.metrics.into_iter().enumerate().map(row).collect()
    }
}

/// Renders the results of one transport. `circumstances` names machine, command and day.
pub fn render(transport: Transport, circumstances: &str, sections: Vec<Section>) -> String {
    let notes: Vec<String> = sections.iter().flat_map(|section| section.notes.clone()).collect();
    let tables: Vec<(String, Vec<Row>)> =
        sections.into_iter().map(|section| (section.title.clone(), section.rows())).collect();
    let names = Contender::ALL.map(|contender| contender.title(transport));
    let mut text = format!("{circumstances}\n\n");
    text.push_str(&markdown(names.each_ref().map(String::as_str), &tables));
    if !notes.is_empty() {
        text.push_str("\nSeen during the run:\n");
        for note in notes {
            let _ = writeln!(text, "- {note}");
        }
    }
    text
}

/// Returns the command to reproduce the result, with the home directory as `~`.
pub fn command_line(arguments: impl Iterator<Item = String>, home: Option<&str>) -> String {
    let words: Vec<String> = arguments
        .map(|word| match home {
            Some(home) if !home.is_empty() => word.replace(home, "~"),
            _ => word,
        })
        .collect();
    words.join(" ")
}

/// Returns the lines of a document that enclose the results of a transport.
fn markers(transport: Transport) -> (String, String) {
    let name = transport.name();
    (format!("<!-- bench {name}: begin -->"), format!("<!-- bench {name}: end -->"))
}

/// Replaces the text between the markers of the transport; creates a missing file.
pub fn write(path: &Path, transport: Transport, report: &str) -> Result<(), Failure> {
    let old = match fs::read_to_string(path) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => empty_document(),
        Err(error) => return Err(error.into()),
    };
    let (begin, end) = markers(transport);
    let new = splice(&old, &begin, &end, report)
        .ok_or_else(|| format!("{} has no lines {begin} and {end}", path.display()))?;
    fs::write(path, new)?;
    Ok(())
}

fn empty_document() -> String {
    let mut text = "# Performance\n".to_owned();
    for transport in Transport::ALL {
        let (begin, end) = markers(transport);
        let _ = write!(text, "\n## {}\n{begin}\n{end}\n", transport.name());
    }
    text
}

fn splice(document: &str, begin: &str, end: &str, report: &str) -> Option<String> {
    let (before, rest) = document.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{report}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::idle::Idle;
    use std::time::Duration;

    #[test]
    fn a_report_lists_all_servers_including_failed_ones() {
        let idle = Measurement::Idle(Idle { nodes: 7, duration: Duration::from_secs(1) });
        let mut section = Section::new(&idle, Transport::Http);
        let numbers = (1..=section.metrics.len()).map(|n| Cell::Number(n as f64)).collect();
        section.add(Contender::Trellis, numbers, vec!["all well".into()]);
        section.add_missing(Contender::Memory, "failed", vec![]);
        let text = render(Transport::Http, "2 cores", vec![section]);
        assert!(text.starts_with("2 cores\n\n| | 1.42 memory | 1.42 --database | trellis |"), "{text}");
        assert!(text.contains("| RSS MB | failed | not run | 4 | - | - |  |  |"), "{text}");
        assert!(text.contains("- 7 idle nodes, trellis: all well"), "{text}");
    }

    #[test]
    fn only_the_text_between_the_markers_changes() {
        let document = "# Title\n<b>\nold\n</b>\ntail\n";
        assert_eq!(splice(document, "<b>", "</b>", "new\n").unwrap(), "# Title\n<b>\nnew\n</b>\ntail\n");
        assert_eq!(splice("# Title\n", "<b>", "</b>", "new\n"), None);
    }

    #[test]
    fn a_new_file_is_created_and_one_without_markers_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("performance.md");
        write(&path, Transport::Http, "one table\n").unwrap();
        write(&path, Transport::Grpc, "another table\n").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("one table") && text.contains("another table"), "{text}");
        fs::write(&path, "my own text").unwrap();
        write(&path, Transport::Http, "table\n").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "my own text");
    }

    #[test]
    fn the_home_directory_is_hidden() {
        let arguments = ["bench", "--official-venv", "/home/ada/venv"].map(str::to_owned);
        assert_eq!(command_line(arguments.into_iter(), Some("/home/ada")), "bench --official-venv ~/venv");
    }
}
