//! The known runs of a federation, so that they can be listed while the SuperLink is unreachable. Bounded: the oldest runs are dropped.
//! Includes runs of earlier SuperLinks of the federation.

use std::collections::BTreeMap;
use std::sync::Arc;

use trellis_api::{Run, RunState, Training};
use trellis_plan::RunMetrics;
use trellis_registry::MAX_RUNS;

#[derive(Clone, Default)]
pub struct RunBook {
    runs: BTreeMap<String, Arc<Run>>,
    /// All runs of the SuperLink were listed at least once.
    pub complete: bool,
}

impl RunBook {
    pub fn get(&self, id: &str) -> Option<&Run> {
        self.runs.get(id).map(Arc::as_ref)
    }

    /// Newest first.
    pub fn newest(&self) -> Vec<Run> {
        let mut runs: Vec<&Arc<Run>> = self.runs.values().collect();
        runs.sort_by(|one, other| age(one).total_cmp(&age(other)).then_with(|| one.id.cmp(&other.id)));
        runs.into_iter().map(|run| Run::clone(run)).collect()
    }

    /// Number of unfinished runs; `None`: unknown.
    pub fn active(&self) -> Option<u32> {
        self.complete.then(|| u32::try_from(self.unfinished().count()).unwrap_or(u32::MAX))
    }

    pub fn unfinished(&self) -> impl Iterator<Item = &Run> {
        self.runs.values().map(Arc::as_ref).filter(|run| run.state != RunState::Finished)
    }

    /// Adds a stored run, unless a newer state is known.
    pub fn recall(&mut self, run: Run) {
        self.runs.entry(run.id.clone()).or_insert_with(|| Arc::new(run));
        self.forget_oldest();
    }

    /// Metrics of the active runs, for scaling.
    pub fn run_metrics(&self) -> RunMetrics {
        let seconds = self.unfinished().filter_map(|run| run.training.as_ref()?.round_seconds);
        let round_ms = seconds.map(|seconds| (seconds * 1000.0) as u64).max();
        RunMetrics { round_ms, required_nodes: None }
    }

    /// Records a run, and returns it if it is new or its state changed. Keeps known training progress that is newer.
    pub fn note(&mut self, mut run: Run) -> Option<Run> {
        let before = self.runs.get(&run.id);
        // Two sources may report out of order; a finished run stays finished.
        if before.is_some_and(|before| progress(before.state) > progress(run.state)) {
            return None;
        }
        if let Some(before) = before {
            run.training = later(before.training.clone(), run.training.take());
            run.started_by = run.started_by.or_else(|| before.started_by.clone());
        }
        let is_news = before.is_none_or(|before| (before.state, &before.outcome) != (run.state, &run.outcome));
        self.runs.insert(run.id.clone(), Arc::new(run.clone()));
        self.forget_oldest();
        is_news.then_some(run)
    }

    fn forget_oldest(&mut self) {
        while self.runs.len() > MAX_RUNS {
            let oldest = self.runs.values().max_by(|one, other| age(one).total_cmp(&age(other)));
            let Some(id) = oldest.map(|run| run.id.clone()) else { return };
            self.runs.remove(&id);
        }
    }
}

/// Lower is newer.
fn age(run: &Run) -> f64 {
    -run.submitted_at
}

fn progress(state: RunState) -> u8 {
    match state {
        RunState::Pending => 0,
        RunState::Starting => 1,
        RunState::Running => 2,
        RunState::Finished => 3,
    }
}

fn later(one: Option<Training>, other: Option<Training>) -> Option<Training> {
    match (one, other) {
        (Some(one), Some(other)) if other.round >= one.round => Some(other),
        (Some(one), _) => Some(one),
        (None, other) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, state: RunState, submitted_at: f64) -> Run {
        Run {
            id: id.to_owned(),
            federation: "fed".to_owned(),
            app: String::new(),
            version: String::new(),
            state,
            outcome: None,
            details: String::new(),
            native: true,
            account: String::new(),
            started_by: None,
            config: Default::default(),
            submitted_at,
            started_at: None,
            finished_at: None,
            training: None,
        }
    }

    #[test]
    fn only_changes_are_returned_and_states_never_go_back() {
        let mut book = RunBook::default();
        assert!(book.active().is_none(), "nobody has asked yet");
        book.complete = true;
        let started_by = Some("night shift".to_owned());
        assert!(book.note(Run { started_by, ..run("1", RunState::Pending, 1.0) }).is_some());
        assert!(book.note(run("1", RunState::Pending, 1.0)).is_none());
        assert!(book.note(run("1", RunState::Running, 1.0)).is_some());
        assert_eq!(book.active(), Some(1));
        let training = Some(Training { round: 3, round_seconds: Some(2.5), ..Training::default() });
        assert!(book.note(Run { training, ..run("1", RunState::Running, 1.0) }).is_none());
        assert_eq!(book.run_metrics().round_ms, Some(2500));
        let finished = book.note(run("1", RunState::Finished, 1.0)).unwrap();
        assert_eq!(finished.training.unwrap().round, 3, "what was known of its rounds stays");
        assert_eq!(finished.started_by.as_deref(), Some("night shift"), "the SuperLink does not know who started it");
        assert!(book.note(run("1", RunState::Running, 1.0)).is_none());
        assert_eq!((book.active(), book.get("1").unwrap().state), (Some(0), RunState::Finished));
        assert_eq!(book.run_metrics(), RunMetrics::default(), "what is over says nothing about now");
    }

    #[test]
    fn the_newest_are_kept() {
        let mut book = RunBook::default();
        for number in 0..MAX_RUNS + 5 {
            book.note(run(&number.to_string(), RunState::Finished, number as f64));
        }
        let newest = book.newest();
        assert_eq!((newest.len(), newest[0].id.as_str()), (MAX_RUNS, (MAX_RUNS + 4).to_string().as_str()));
        assert!(book.get("4").is_none() && book.get("5").is_some());
    }
}
