//! The printed result: machine, command, table, notes; and its place in a document.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Failure;
use crate::measure::Measurement;
use crate::superlink::Contender;
use crate::table::{Cell, Metric, Row, markdown};

const BEGIN: &str = "<!-- bench: begin -->";
const END: &str = "<!-- bench: end -->";

const CONDITIONS: &str = "Server and load generator share this machine; numbers are only comparable inside one run. CPU \
is user + system time of the server process. Every node has its own key and connection. Signatures are made before \
the clock starts and renewed after 120 s, so that signing, which real nodes do on their own machines, does not weigh \
on the server. The original runs with `--isolation process`, as trellis does; trellis with its default durable state \
directory. `overloaded`: heartbeats take more than 1 s (p99) or more than 1 % of the calls fail; no ratio is given \
then. Small rounds: `wall s` is without any waiting in nodes and ServerApp (the server's own time), `at official \
pacing` with the 3 s polls of the official components. `n lost`: replies that never arrived; a server that sheds \
messages is done early, so compare replies per second.";

/// One measurement of all servers.
pub struct Section {
    title: String,
    label: String,
    pub metrics: Vec<Metric>,
    columns: Vec<(Contender, Vec<Cell>)>,
    notes: Vec<String>,
}

impl Section {
    pub fn new(measurement: &Measurement) -> Self {
        let (title, label, metrics) = (measurement.title(), measurement.label(), measurement.metrics());
        Self { title, label, metrics, columns: Vec::new(), notes: Vec::new() }
    }

    pub fn add(&mut self, contender: Contender, cells: Vec<Cell>, notes: Vec<String>) {
        self.columns.push((contender, cells));
        self.notes.extend(notes.into_iter().map(|note| format!("{}, {contender}: {note}", self.label)));
    }

    /// A server of which nothing could be measured.
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

pub fn render(machine: &str, command: &str, when: &str, sections: Vec<Section>) -> String {
    let notes: Vec<String> = sections.iter().flat_map(|section| section.notes.clone()).collect();
    let tables: Vec<(String, Vec<Row>)> =
        sections.into_iter().map(|section| (section.title.clone(), section.rows())).collect();
    let mut text = format!("Machine: {machine}. Measured {when} with\n`{command}`\n\n");
    text.push_str(&markdown(&tables));
    let _ = write!(text, "\n{CONDITIONS}\n");
    if !notes.is_empty() {
        text.push_str("\nSeen during the run:\n");
        for note in notes {
            let _ = writeln!(text, "- {note}");
        }
    }
    text
}

/// The command as somebody else could type it: the home directory as `~`.
pub fn command_line(arguments: impl Iterator<Item = String>, home: Option<&str>) -> String {
    let words: Vec<String> = arguments
        .map(|word| match home {
            Some(home) if !home.is_empty() => word.replace(home, "~"),
            _ => word,
        })
        .collect();
    words.join(" ")
}

/// Replaces what stands between the markers; a file that does not exist is made.
pub fn write(path: &Path, report: &str) -> Result<(), Failure> {
    let old = match fs::read_to_string(path) {
        Ok(old) => old,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => format!("# Performance\n\n{BEGIN}\n{END}\n"),
        Err(error) => return Err(error.into()),
    };
    let new = splice(&old, report).ok_or_else(|| format!("{} has no lines {BEGIN} and {END}", path.display()))?;
    fs::write(path, new)?;
    Ok(())
}

fn splice(document: &str, report: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{report}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::idle::Idle;
    use std::time::Duration;

    #[test]
    fn a_report_holds_every_server_even_those_that_failed() {
        let idle = Measurement::Idle(Idle { nodes: 7, duration: Duration::from_secs(1) });
        let mut section = Section::new(&idle);
        let numbers = (1..=section.metrics.len()).map(|n| Cell::Number(n as f64)).collect();
        section.add(Contender::Trellis, numbers, vec!["all well".into()]);
        section.add_missing(Contender::Memory, "failed", vec![]);
        let text = render("2 cores", "bench all", "2026-01-01", vec![section]);
        assert!(text.contains("| RSS MB | failed | not run | 3 | - | - |  |  |"), "{text}");
        assert!(text.contains("- 7 idle nodes, trellis: all well"), "{text}");
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let document = format!("# Title\n{BEGIN}\nold\n{END}\ntail\n");
        assert_eq!(splice(&document, "new\n").unwrap(), format!("# Title\n{BEGIN}\nnew\n{END}\ntail\n"));
        assert_eq!(splice("# Title\n", "new\n"), None);
    }

    #[test]
    fn a_new_file_is_made_and_one_without_markers_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("performance.md");
        write(&path, "table\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("table"));
        fs::write(&path, "my own text").unwrap();
        write(&path, "table\n").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "my own text");
    }

    #[test]
    fn the_home_directory_is_not_shown() {
        let arguments = ["bench", "--official-venv", "/home/ada/venv"].map(str::to_owned);
        assert_eq!(command_line(arguments.into_iter(), Some("/home/ada")), "bench --official-venv ~/venv");
    }
}
