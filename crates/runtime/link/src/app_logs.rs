//! Output of ClientApps, as SuperNodes send it: a file for each run and node, outside of the store. It is not worth
//! transactions: a crash may lose the last lines, a restart loses nothing.
//!
//! A node adds only to files of runs that it takes part in, one for each, with a limit that drops the oldest lines of that
//! file: so it cannot displace the output of another node.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use trellis_clock::now_ms;
use trellis_core::Seconds;
use trellis_core::id::{NodeId, RunId};
use trellis_core::refusal::{Kind, Refusal};
use trellis_files::{PRIVATE_FILE, replace};
use trellis_front::Rate;

use crate::log_tail::{Position, Tail};

/// Directory below the state directory.
const DIRECTORY: &str = "app-logs";
/// Maximum size of the file of a node in a run; then its older half is dropped.
const MAX_FILE_BYTES: usize = 256 << 10;
/// Maximum number of nodes with a file in a run; the output of further nodes is dropped.
const MAX_NODES: usize = 1024;
/// Maximum size of all files; above it, those of the oldest runs are deleted.
const MAX_BYTES: u64 = 1 << 30;
/// The size is checked when a run begins to write, and after this many bytes.
const CHECK_BYTES: u64 = MAX_BYTES / 16;
/// Messages of a node: burst, and interval after the burst.
const BURST: u32 = 20;
const INTERVAL_S: f64 = 0.5;
/// Maximum number of nodes with a rate of their own.
const MAX_RATES: usize = 1 << 16;
/// Finished runs whose nodes may still send their last lines.
const MAX_ENDED_RUNS: usize = 64;

pub struct AppLogs {
    directory: PathBuf,
    rate: Rate<NodeId>,
    parts: Mutex<Parts>,
    /// Bytes that were written since the last check of the size. Locked while files change.
    written: Mutex<u64>,
}

/// The nodes of each run that got an instruction from this process.
#[derive(Default)]
struct Parts {
    nodes: HashMap<RunId, HashSet<NodeId>>,
    ended: VecDeque<RunId>,
}

impl AppLogs {
    pub fn new(state: &Path) -> AppLogs {
        AppLogs {
            directory: state.join(DIRECTORY),
            rate: Rate::new(BURST, INTERVAL_S, MAX_RATES),
            parts: Mutex::default(),
            written: Mutex::default(),
        }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().expect("no holder panics")
    }

    /// Notes that a node got an instruction of a run.
    pub fn takes_part(&self, run: RunId, node: NodeId) {
        self.parts().nodes.entry(run).or_default().insert(node);
    }

    pub fn has_part(&self, run: RunId, node: NodeId) -> bool {
        self.parts().nodes.get(&run).is_some_and(|nodes| nodes.contains(&node))
    }

    /// Forgets the nodes of runs that ended a while ago.
    pub fn runs_ended(&self, runs: &[RunId]) {
        let Parts { nodes, ended } = &mut *self.parts();
        ended.extend(runs.iter().filter(|run| nodes.contains_key(run)));
        let surplus = ended.len().saturating_sub(MAX_ENDED_RUNS);
        ended.drain(..surplus).for_each(|run| drop(nodes.remove(&run)));
    }

    /// Refuses a message of a node that sends too many.
    pub fn admit(&self, node: Option<NodeId>, now: Seconds) -> Result<(), Refusal> {
        let admitted = node.is_some_and(|node| self.rate.admit(node, now).is_some());
        let text = "The node sends its output too fast: send it again later, in larger parts.";
        admitted.then_some(()).ok_or_else(|| Refusal::new(Kind::Transient, text))
    }

    /// Appends complete lines. Control characters, which would reach the terminal of a reader, are dropped.
    pub fn append(&self, run: RunId, node: NodeId, text: &str) -> io::Result<()> {
        let mut text: String = text.chars().filter(|it| matches!(it, '\n' | '\t') || !it.is_control()).collect();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let of_run = self.directory.join(run.to_string());
        let path = of_run.join(node.to_string());
        let mut written = self.written.lock().expect("no holder panics");
        *written += text.len() as u64;
        if *written > CHECK_BYTES || !of_run.exists() {
            self.make_room()?;
            *written = 0;
        }
        match File::options().append(true).open(&path) {
            Ok(file) if file.metadata()?.len() as usize + text.len() <= MAX_FILE_BYTES => {
                (&file).write_all(text.as_bytes())
            }
            Ok(_) => {
                let mut tail = load(&path)?;
                tail.end += text.len() as u64;
                tail.bytes.extend(text.as_bytes());
                let surplus = tail.bytes.len().saturating_sub(MAX_FILE_BYTES / 2);
                let rest_of_line = tail.bytes.iter().skip(surplus).position(|byte| *byte == b'\n');
                tail.bytes.drain(..rest_of_line.map_or(surplus, |rest| surplus + rest + 1));
                save(&path, &tail)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&of_run)?;
                if fs::read_dir(&of_run)?.count() >= MAX_NODES {
                    return Ok(());
                }
                let bytes = VecDeque::from(text.into_bytes());
                save(&path, &Tail { started_ms: now_ms(), end: bytes.len() as u64, bytes })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns output after a position, by default from the beginning.
    pub fn read(&self, run: RunId, node: NodeId, after: Option<Position>) -> io::Result<(String, Position)> {
        let after = after.unwrap_or(Position::BEGIN);
        match load(&self.directory.join(run.to_string()).join(node.to_string())) {
            Ok(tail) => Ok(tail.after(Some(after))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((String::new(), after)),
            Err(error) => Err(error),
        }
    }

    /// Deletes the output of the oldest runs above the limit.
    fn make_room(&self) -> io::Result<()> {
        if !self.directory.exists() {
            return Ok(());
        }
        let mut runs: Vec<(SystemTime, PathBuf, u64)> = fs::read_dir(&self.directory)?
            .map(|run| {
                let run = run?;
                let files = fs::read_dir(run.path())?.map(|file| Ok(file?.metadata()?.len()));
                Ok((run.metadata()?.modified()?, run.path(), files.sum::<io::Result<u64>>()?))
            })
            .collect::<io::Result<_>>()?;
        runs.sort();
        let mut bytes: u64 = runs.iter().map(|(_, _, bytes)| bytes).sum();
        for (_, path, of_run) in runs {
            if bytes <= MAX_BYTES {
                break;
            }
            fs::remove_dir_all(path)?;
            bytes -= of_run;
        }
        Ok(())
    }
}

/// The first line of a file: when it was created, and how many bytes were dropped.
fn load(path: &Path) -> io::Result<Tail> {
    let mut bytes = VecDeque::from(fs::read(path)?);
    let head: Vec<u8> = bytes.iter().copied().take_while(|byte| *byte != b'\n').collect();
    let numbers = str::from_utf8(&head).ok().and_then(|head| head.split_once(' '));
    let numbers = numbers.and_then(|(started_ms, dropped)| Some((started_ms.parse().ok()?, dropped.parse().ok()?)));
    // A file that is damaged begins again.
    let (started_ms, dropped): (u64, u64) = numbers.unwrap_or((now_ms(), 0));
    bytes.drain(..bytes.len().min(head.len() + 1));
    Ok(Tail { started_ms, end: dropped + bytes.len() as u64, bytes })
}

fn save(path: &Path, tail: &Tail) -> io::Result<()> {
    let dropped = tail.end - tail.bytes.len() as u64;
    let mut content = format!("{} {dropped}\n", tail.started_ms).into_bytes();
    content.extend(&tail.bytes);
    replace(path, &content, PRIVATE_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId(7);
    const NODE: NodeId = NodeId(5);

    fn logs() -> (tempfile::TempDir, AppLogs) {
        let directory = tempfile::tempdir().unwrap();
        let logs = AppLogs::new(directory.path());
        (directory, logs)
    }

    #[test]
    fn a_reader_follows_the_output_over_a_restart() {
        let (directory, logs) = logs();
        assert_eq!(logs.read(RUN, NODE, None).unwrap(), (String::new(), Position::BEGIN));
        logs.append(RUN, NODE, "one\x1b[2J\ttwo").unwrap();
        let (text, place) = logs.read(RUN, NODE, Some(Position::BEGIN)).unwrap();
        assert_eq!(text, "one[2J\ttwo\n", "control characters are dropped");
        let logs = AppLogs::new(directory.path());
        logs.append(RUN, NODE, "three\n").unwrap();
        logs.append(RUN, NodeId(6), "other\n").unwrap();
        let (text, place) = logs.read(RUN, NODE, Some(place)).unwrap();
        assert_eq!(text, "three\n");
        assert_eq!(logs.read(RUN, NODE, Some(place)).unwrap(), (String::new(), place));
    }

    #[test]
    fn a_node_displaces_only_its_own_oldest_lines() {
        let (directory, logs) = logs();
        logs.append(RUN, NodeId(6), "kept\n").unwrap();
        logs.append(RUN, NODE, "first\n").unwrap();
        let (_, begin) = logs.read(RUN, NODE, None).unwrap();
        let lines = |number: u32| format!("{number:>15}\n").repeat(1024);
        (0..40).for_each(|number| logs.append(RUN, NODE, &lines(number)).unwrap());
        let file = directory.path().join(DIRECTORY).join("7/5");
        assert!(file.metadata().unwrap().len() as usize <= MAX_FILE_BYTES);
        let (mut text, mut place) = (String::new(), begin);
        loop {
            let (part, next) = logs.read(RUN, NODE, Some(place)).unwrap();
            place = next;
            if part.is_empty() {
                break;
            }
            text += &part;
        }
        assert!(text.len() >= MAX_FILE_BYTES / 2 - 16 && text.ends_with(&lines(39)), "{} bytes", text.len());
        assert!(text.lines().all(|line| line.len() == 15), "lines are whole");
        assert_eq!(logs.read(RUN, NodeId(6), None).unwrap().0, "kept\n");
    }

    #[test]
    fn the_output_of_the_oldest_run_makes_room() {
        let (directory, logs) = logs();
        logs.append(RUN, NODE, "old\n").unwrap();
        let old = File::options().append(true).open(directory.path().join(DIRECTORY).join("7/5")).unwrap();
        logs.append(RunId(8), NODE, "new\n").unwrap();
        assert_eq!(logs.read(RUN, NODE, None).unwrap().0, "old\n");
        // Sparse.
        old.set_len(MAX_BYTES).unwrap();
        let hour = std::time::Duration::from_secs(3600);
        let of_run = File::open(directory.path().join(DIRECTORY).join("7")).unwrap();
        of_run.set_modified(SystemTime::now() - hour).unwrap();
        logs.append(RunId(9), NODE, "newest\n").unwrap();
        let texts = [7, 8, 9].map(|run| logs.read(RunId(run), NODE, None).unwrap().0);
        assert_eq!(texts, ["", "new\n", "newest\n"]);
    }

    #[test]
    fn only_so_many_nodes_of_a_run_have_a_file() {
        let (directory, logs) = logs();
        let of_run = directory.path().join(DIRECTORY).join("7");
        fs::create_dir_all(&of_run).unwrap();
        (0..MAX_NODES).for_each(|node| drop(File::create(of_run.join(format!("{node}"))).unwrap()));
        logs.append(RUN, NodeId(1 << 20), "late\n").unwrap();
        logs.append(RUN, NodeId(3), "in time\n").unwrap();
        assert_eq!(logs.read(RUN, NodeId(1 << 20), None).unwrap().0, "");
        assert_eq!(fs::read_dir(&of_run).unwrap().count(), MAX_NODES);
    }

    #[test]
    fn nodes_take_part_until_their_run_ended_a_while_ago() {
        let (_directory, logs) = logs();
        logs.takes_part(RUN, NODE);
        assert!(logs.has_part(RUN, NODE) && !logs.has_part(RUN, NodeId(6)) && !logs.has_part(RunId(8), NODE));
        logs.runs_ended(&[RUN]);
        assert!(logs.has_part(RUN, NODE), "its last lines may come");
        for run in 100..100 + MAX_ENDED_RUNS as u64 {
            logs.takes_part(RunId(run), NODE);
            logs.runs_ended(&[RunId(run)]);
        }
        assert!(!logs.has_part(RUN, NODE) && logs.has_part(RunId(100), NODE));
    }

    #[test]
    fn a_flood_of_one_node_is_refused_and_others_are_not() {
        let (_directory, logs) = logs();
        let admitted = |node, now| logs.admit(Some(NodeId(node)), now).is_ok();
        assert_eq!((0..100).filter(|_| admitted(5, 0.0)).count(), BURST as usize);
        assert!(admitted(6, 0.0) && !admitted(5, 0.1) && admitted(5, 1.0));
    }
}
