//! The clock port: the time, timers, and wake-ups. In simulations time is virtual.

use crate::Millis;
use crate::driver::Call;

pub trait Clock: Send + Sync {
    fn now_ms(&self) -> Millis;

    fn sleep_until(&self, at_ms: Millis) -> Call<'_, ()>;

    /// Resolves when a reconcile is due at once, for example after a change of the document or the end of a process. A wake-up
    /// without a waiter ends the next wait.
    fn woken(&self) -> Call<'_, ()>;
}
