//! What changed lately, for those who watch from outside: which runs, and whether nodes did. A change is noted after its
//! commit, so whoever hears of it finds it in the state.
//!
//! Kept in memory, and bounded: a run counts once, by its newest change. Who asks from before what is kept, or from another
//! life of the process, is told to look at everything.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use trellis_core::id::RunId;
use trellis_core::port::Topic;

/// Runs whose last change is kept.
const MAX_RUNS: usize = 4096;

pub struct Changes {
    /// Names this process: a number of another one means nothing.
    life: String,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    /// The number of the newest change.
    last: u64,
    /// That of the newest change which is kept no more.
    forgotten: u64,
    nodes: u64,
    runs: HashMap<RunId, u64>,
    by_number: BTreeMap<u64, RunId>,
}

/// What changed since a moment.
#[derive(Debug, PartialEq, Eq)]
pub struct Since {
    /// Now.
    pub at: String,
    /// In the order of their newest changes.
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

    /// Notes what a commit announced; `false`: nothing in it that is watched.
    pub fn note(&self, topics: &[Topic]) -> bool {
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

    /// This moment.
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

    /// What changed after `at`; `None`: that cannot be said.
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

    fn told(changes: &Changes, at: &str) -> Option<(Vec<u64>, bool)> {
        changes.since(at).map(|since| (since.runs.iter().map(|run| run.0).collect(), since.nodes))
    }

    #[test]
    fn each_moment_knows_what_came_after_it() {
        let changes = Changes::new("life".to_owned());
        let start = changes.now();
        assert!(changes.since(&start).unwrap().is_nothing());
        assert!(!changes.note(&[Topic::Launch, Topic::Node(NodeId(1)), Topic::Log(RunId(1))]));
        assert!(changes.note(&[Topic::Run(RunId(1)), Topic::Run(RunId(2))]));
        let middle = changes.now();
        assert!(changes.note(&[Topic::Nodes, Topic::Run(RunId(1))]));
        assert_eq!(told(&changes, &start), Some((vec![2, 1], true)), "a run is told once");
        assert_eq!(told(&changes, &middle), Some((vec![1], true)));
        let end = changes.since(&start).unwrap().at;
        assert_eq!(told(&changes, &end), Some((vec![], false)));
    }

    #[test]
    fn what_cannot_be_said_is_not_said() {
        let changes = Changes::new("life".to_owned());
        let start = changes.now();
        for at in ["", "life", "life.x", "life.1", "other.0", "life.-1"] {
            assert_eq!(told(&changes, at), None, "{at:?}");
        }
        for run in 0..MAX_RUNS as u64 {
            changes.note(&[Topic::Run(RunId(run))]);
        }
        assert_eq!(told(&changes, &start).map(|(runs, _)| runs.len()), Some(MAX_RUNS));
        changes.note(&[Topic::Run(RunId(u64::MAX))]);
        assert_eq!(told(&changes, &start), None, "the first change is forgotten");
        assert_eq!(changes.noted().runs.len(), MAX_RUNS);
        assert_eq!(told(&changes, "life.1").map(|(runs, _)| runs.len()), Some(MAX_RUNS));
    }
}
