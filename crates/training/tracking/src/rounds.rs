//! Which reports are final. Pure.
//!
//! A native ServerApp reports a round once, when it is over. Rounds of other ServerApps are reported by the SuperLink, which
//! replaces the report of a round as more of it is seen: that is final when a later round has a report, or the run has ended.

use std::collections::BTreeMap;

use trellis_wire::report::TrainingReport;

use crate::point::ROUND;

/// Its round, and whether it is about the whole training: that report comes after the one of its round.
type Key = (u64, bool);

#[derive(Debug, Default)]
pub struct Rounds {
    /// Reports that may still be replaced.
    open: BTreeMap<Key, TrainingReport>,
    /// The last report that was given.
    settled: Option<Key>,
    pub strategy: Option<String>,
    pub planned: Option<u64>,
    /// Where the last model is, on the machine of the SuperLink.
    pub checkpoint: Option<String>,
}

impl Rounds {
    /// The next reports to ask for are those after this round. The last one is asked for again: the report at the end of a
    /// training has the number of its last round.
    pub fn after(&self) -> Option<u64> {
        self.settled.and_then(|(round, _)| round.checked_sub(1))
    }

    pub fn take(&mut self, reports: Vec<TrainingReport>) {
        for report in reports {
            if let Some(checkpoint) = &report.checkpoint {
                self.checkpoint = Some(checkpoint.path.clone());
            }
            self.strategy = Some(report.strategy.clone()).filter(|name| !name.is_empty()).or(self.strategy.take());
            self.planned = Some(report.rounds_planned).filter(|number| *number > 0).or(self.planned);
            let key = (report.round, report.kind != ROUND);
            if self.settled.is_none_or(|settled| key > settled) {
                self.open.insert(key, report);
            }
        }
    }

    /// Reports that are final, oldest first; each is given once. `all`: none will be replaced.
    pub fn settle(&mut self, all: bool) -> Vec<TrainingReport> {
        let mut settled = Vec::new();
        while self.open.len() > usize::from(!all)
            && let Some((key, report)) = self.open.pop_first()
        {
            self.settled = Some(key);
            settled.push(report);
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use trellis_wire::report::{CheckpointReport, PhaseReport};

    use super::*;

    fn report(round: u64, answered: u64) -> TrainingReport {
        let train = Some(PhaseReport { answered, ..Default::default() });
        TrainingReport { round, kind: ROUND.to_owned(), train, ..Default::default() }
    }

    fn nodes(reports: &[TrainingReport]) -> Vec<(u64, Option<u64>)> {
        reports.iter().map(|report| (report.round, report.train.as_ref().map(|train| train.answered))).collect()
    }

    #[test]
    fn a_report_that_may_be_replaced_is_kept_back() {
        let mut rounds = Rounds::default();
        rounds.take(vec![report(0, 1)]);
        assert_eq!((nodes(&rounds.settle(false)), rounds.after()), (vec![], None));
        rounds.take(vec![report(0, 2), report(1, 3)]);
        assert_eq!((nodes(&rounds.settle(false)), rounds.after()), (vec![(0, Some(2))], None));
        rounds.take(vec![report(0, 9), report(1, 4)]);
        assert_eq!((nodes(&rounds.settle(true)), rounds.after()), (vec![(1, Some(4))], Some(0)));
        rounds.take(vec![report(1, 9)]);
        assert_eq!(rounds.settle(true), []);
    }

    #[test]
    fn the_report_at_the_end_has_the_last_model() {
        let mut rounds = Rounds::default();
        let checkpoint = Some(CheckpointReport { path: "/models/1/round-000002".to_owned(), size_bytes: None });
        let end = TrainingReport { kind: "end".to_owned(), checkpoint, round: 2, ..Default::default() };
        rounds.take(vec![end, report(2, 1)]);
        assert_eq!(nodes(&rounds.settle(true)), [(2, Some(1)), (2, None)]);
        assert_eq!(rounds.checkpoint.as_deref(), Some("/models/1/round-000002"));
    }
}
