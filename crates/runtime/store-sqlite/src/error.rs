//! SQLite's errors as errors of the core.

use trellis_core::refusal::Refusal;

pub(crate) const CANNOT: &str = "The SuperLink cannot use its state right now; retry later.";

/// Converts any database or file error to a transient error for the client, with the source for the log.
pub(crate) trait OrTransient<T> {
    fn or_transient(self) -> Result<T, Refusal>;
}

impl<T, E: std::error::Error + Send + Sync + 'static> OrTransient<T> for Result<T, E> {
    fn or_transient(self) -> Result<T, Refusal> {
        self.map_err(|error| Refusal::transient(CANNOT, error))
    }
}
