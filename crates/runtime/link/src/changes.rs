//! Recent changes for external observers: which runs changed, and whether nodes did. A change is recorded after its
//! commit, so an observer finds it in the state.
//!
//! Bounded and in memory: a run counts once, with its latest change. An observer with an older position, or with a
//! position of another process, must read the whole state.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use trellis_core::id::RunId;
use trellis_core::port::Topic;

/// Number of runs with a recorded change.
const MAX_RUNS: usize = 4096;

pub struct Changes {
    /// Identifies this process: positions of another process are invalid.
    life: String,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// The number of the latest change.
    last: u64,
    /// The number of the latest change that is not recorded any more.
    forgotten: u64,
    nodes: u64,
    runs: HashMap<RunId, u64>,
    by_number: BTreeMap<u64, RunId>,
}

/// The changes since a position.
#[derive(Debug, PartialEq, Eq)]
pub struct Since {
    /// The current position.
    pub at: String,
    /// In the order of their latest changes.
    pub runs: Vec<RunId>,
    pub nodes: bool,
}

impl Since {
    pub fn is_nothing(&self) -> bool {
        self.runs.is_empty() && !self.nodes
    }
}

impl Changes {
    pub fn new(life: String) -> Changes {
        Changes { life, noted: Mutex::default() }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().expect("no holder panics")
    }

    /// Records the topics of a commit. Returns whether an observer may be interested.
    pub fn record(&self, topics: &[Topic]) -> bool {
        let mut noted = self.noted();
        let before = noted.last;
        for topic in topics {
            match topic {
                Topic::Run(run) => noted.run(*run),
                Topic::Nodes => {
                    noted.last += 1;
                    noted.nodes = noted.last;
                }
                _ => {}
            }
        }
        noted.last > before
    }

    /// Returns the current position.
    pub fn now(&self) -> String {
        self.at(self.noted().last)
    }

    fn at(&self, number: u64) -> String {
        format!("{}.{number}", self.life)
    }

    /// Increases with every commit that adds, removes or changes a node.
    pub fn nodes_version(&self) -> u64 {
        self.noted().nodes
    }

    /// Returns the changes after `at`, or `None` if they are not recorded.
    pub fn since(&self, at: &str) -> Option<Since> {
        let (life, number) = at.split_once('.')?;
        let number: u64 = number.parse().ok()?;
        let noted = self.noted();
        if life != self.life || number > noted.last || number < noted.forgotten {
            return None;
        }
        Some(Since {
            at: self.at(noted.last),
            runs: noted.by_number.range(number + 1..).map(|(_, run)| *run).collect(),
            nodes: noted.nodes > number,
        })
    }
}

impl Noted {
    fn run(&mut self, run: RunId) {
        self.last += 1;
        if let Some(before) = self.runs.insert(run, self.last) {
            self.by_number.remove(&before);
        }
        self.by_number.insert(self.last, run);
        if self.by_number.len() > MAX_RUNS
            && let Some((number, run)) = self.by_number.pop_first()
        {
            self.runs.remove(&run);
            self.forgotten = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use trellis_core::id::NodeId;

    use super::*;

    fn reported(changes: &Changes, at: &str) -> Option<(Vec<u64>, bool)> {
        changes.since(at).map(|since| (since.runs.iter().map(|run| run.0).collect(), since.nodes))
    }

    #[test]
    fn each_position_has_the_changes_after_it() {
        let changes = Changes::new("life".to_owned());
        let start = changes.now();
        assert!(changes.since(&start).unwrap().is_nothing());
        assert!(!changes.record(&[Topic::Launch, Topic::Node(NodeId(1)), Topic::Log(RunId(1))]));
        assert!(changes.record(&[Topic::Run(RunId(1)), Topic::Run(RunId(2))]));
        let middle = changes.now();
        assert!(changes.record(&[Topic::Nodes, Topic::Run(RunId(1))]));
        assert_eq!(reported(&changes, &start), Some((vec![2, 1], true)), "each run once");
        assert_eq!(reported(&changes, &middle), Some((vec![1], true)));
        let end = changes.since(&start).unwrap().at;
        assert_eq!(reported(&changes, &end), Some((vec![], false)));
    }

    #[test]
    fn invalid_positions_have_no_changes() {
        let changes = Changes::new("life".to_owned());
        let start = changes.now();
        for at in ["", "life", "life.x", "life.1", "other.0", "life.-1"] {
            assert_eq!(reported(&changes, at), None, "{at:?}");
        }
        for run in 0..MAX_RUNS as u64 {
            changes.record(&[Topic::Run(RunId(run))]);
        }
        assert_eq!(reported(&changes, &start).map(|(runs, _)| runs.len()), Some(MAX_RUNS));
        changes.record(&[Topic::Run(RunId(u64::MAX))]);
        assert_eq!(reported(&changes, &start), None, "the first change is not recorded any more");
        assert_eq!(changes.noted().runs.len(), MAX_RUNS);
        assert_eq!(reported(&changes, "life.1").map(|(runs, _)| runs.len()), Some(MAX_RUNS));
    }
}
