//! A long-lived program: logging, a runtime, and its end.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::logging::{self, LogSettings};
use crate::settings::here::{complain, fail};

/// How long work that was given up may go on after the program has stopped.
const LEFTOVERS: Duration = Duration::from_secs(2);

pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Runs a service to its end, on a runtime of this kind; `role` is what it is called in the log.
pub fn run<F: Future<Output = Outcome>>(
    role: &'static str,
    log: &LogSettings,
    warnings: &[String],
    mut runtime: Builder,
    service: impl FnOnce() -> F,
) -> ExitCode {
    if let Err(error) = logging::start(role, log) {
        let file = log.file.as_ref().map(|file| file.path.clone()).unwrap_or_default();
        complain(&format!("the log file {} cannot be opened: {error}\n", file.display()));
        return ExitCode::FAILURE;
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let outcome = runtime.block_on(async { service().await });
    // Without a limit, a blocked file system could hold up the exit for ever.
    runtime.shutdown_timeout(LEFTOVERS);
    match outcome {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(error) => fail(error.as_ref()),
    }
}
