//! What goes wrong, and how often.

use crate::Millis;

/// Numbers are cases in a thousand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// An action fails, without effect.
    pub action_fails: u32,
    /// An action takes effect, and its answer never comes.
    pub answer_lost: u32,
    /// An action is under way so long at most before it takes effect, even if who asked is gone by then.
    pub slow_ms: Millis,
    /// An observation shows only a part.
    pub partial: u32,
    /// What starts fails.
    pub start_fails: u32,
    /// A store that saves fails, half of the time after it has saved.
    pub save_fails: u32,
}
