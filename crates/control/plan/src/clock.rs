//! The clock port: what time it is, waiting, and being woken. In simulations time is virtual and nobody sleeps.

use crate::Millis;
use crate::driver::Call;

pub trait Clock: Send + Sync {
    fn now_ms(&self) -> Millis;

    fn sleep_until(&self, at_ms: Millis) -> Call<'_, ()>;

    /// Ends when there is a reason to look at once: another document, a process that ended. Signals are not lost: one
    /// that came while nobody waited ends the next wait.
    fn woken(&self) -> Call<'_, ()>;
}
