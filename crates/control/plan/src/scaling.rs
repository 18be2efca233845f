//! Rules for every pool that changes its size by itself, whichever policy computes the desired size: bounds apply at once, a
//! cooldown separates two changes, and no node is removed while it works. Pure.

use crate::Millis;

/// Settings of runs that determine how many nodes a run waits for.
pub const REQUIRED_NODES_SETTINGS: [&str; 2] = ["min-available-nodes", "min-train-nodes"];

/// A change of size that a policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    /// The current size, within bounds.
    pub from: u32,
    /// The size that the policy asks for, within bounds.
    pub to: u32,
    /// Nodes that work, or may work. At most this many are kept.
    pub at_work: u32,
    /// End of the cooldown; `None`: there is none.
    pub due_ms: Option<Millis>,
    pub now_ms: Millis,
}

/// The size that a pool gets, and why it is not the one that the policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Changed(u32),
    CoolingDown { size: u32, until_ms: Millis },
    AtWork(u32),
}

impl Size {
    pub fn count(self) -> u32 {
        match self {
            Size::Changed(size) | Size::CoolingDown { size, .. } | Size::AtWork(size) => size,
        }
    }
}

impl Resize {
    pub fn decide(self) -> Size {
        let cooled = match self.due_ms {
            Some(until_ms) if self.to != self.from && self.now_ms < until_ms => {
                Size::CoolingDown { size: self.from, until_ms }
            }
            _ => Size::Changed(self.to),
        };
        if cooled.count() < self.at_work { Size::AtWork(self.at_work) } else { cooled }
    }
}

/// Time between two changes. The effect of a change on rounds is visible after two rounds.
pub fn cooldown_ms(configured_ms: Millis, round_ms: Option<Millis>) -> Millis {
    configured_ms.max(round_ms.unwrap_or(0).saturating_mul(2))
}

/// Nodes that a pool needs for runs that wait for `needed` nodes, `others` of which are in other pools. Never fewer than there are.
pub fn for_waiting_runs(size: u32, needed: u32, others: u32) -> u32 {
    needed.saturating_sub(others).max(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resize(to: u32) -> Resize {
        Resize { from: 4, to, at_work: 0, due_ms: None, now_ms: 100 }
    }

    #[test]
    fn a_change_waits_for_the_cooldown_and_for_nodes_at_work() {
        assert_eq!(resize(6).decide(), Size::Changed(6));
        let cooling = |to| Resize { due_ms: Some(101), ..resize(to) };
        assert_eq!(cooling(6).decide(), Size::CoolingDown { size: 4, until_ms: 101 });
        assert_eq!(cooling(4).decide(), Size::Changed(4), "there is no change to wait for");
        assert_eq!(Resize { due_ms: Some(100), ..resize(6) }.decide(), Size::Changed(6));
        assert_eq!(Resize { at_work: 3, ..resize(1) }.decide(), Size::AtWork(3));
        assert_eq!(Resize { at_work: 3, ..resize(6) }.decide(), Size::Changed(6));
    }

    #[test]
    fn the_cooldown_lasts_two_rounds_at_least() {
        assert_eq!(cooldown_ms(60, Some(50)), 100);
        assert_eq!(cooldown_ms(60, Some(10)), 60);
        assert_eq!(cooldown_ms(60, None), 60);
    }

    #[test]
    fn runs_that_wait_get_all_missing_nodes_at_once() {
        assert_eq!(for_waiting_runs(2, 6, 1), 5);
        assert_eq!(for_waiting_runs(2, 2, 1), 2, "a pool does not shrink because runs wait");
    }
}
