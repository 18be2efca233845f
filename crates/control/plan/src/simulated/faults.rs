//! Faults and their frequencies.

use crate::Millis;

/// Numbers are cases per thousand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// An action fails, without effect.
    pub action_fails: u32,
    /// An action takes effect, but its response is lost.
    pub answer_lost: u32,
    /// Maximum delay of an action. It takes effect even if its caller has ended.
    pub slow_ms: Millis,
    /// An observation is incomplete.
    pub partial: u32,
    /// A start fails.
    pub start_fails: u32,
    /// A save fails, half of the time after it was stored.
    pub save_fails: u32,
}
