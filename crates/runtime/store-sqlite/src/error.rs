//! SQLite's errors in the core's words: whatever it is, the question may succeed later.

use trellis_core::refusal::Refusal;

pub(crate) const CANNOT: &str = "The SuperLink cannot use its state right now; it will be tried again.";

/// Any database or file error: transient for the client, kept as source for the log.
pub(crate) trait OrTransient<T> {
    fn or_transient(self) -> Result<T, Refusal>;
}

impl<T, E: std::error::Error + Send + Sync + 'static> OrTransient<T> for Result<T, E> {
    fn or_transient(self) -> Result<T, Refusal> {
        self.map_err(|error| Refusal::transient(CANNOT, error))
    }
}
