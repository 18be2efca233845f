//! Runs a long-lived program: logging, runtime, shutdown.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Builder;
use trellis_logging::LogSettings;

use crate::settings::system::{fail, print_error};

/// Limit for blocking tasks after the service has stopped: a blocked file system must not prevent the exit.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Runs a service on the given runtime until it stops. For `role` and `copy` see [`trellis_logging::start`].
pub fn run<F: Future<Output = Outcome>>(
    role: &'static str,
    log: &LogSettings,
    copy: Option<fn(&[u8])>,
    warnings: &[String],
    mut runtime: Builder,
    service: impl FnOnce() -> F,
) -> ExitCode {
    if let Err(error) = trellis_logging::start(role, log, copy) {
        let file = log.file.as_ref().map(|file| file.path.clone()).unwrap_or_default();
        print_error(&format!("the log file {} cannot be opened: {error}\n", file.display()));
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
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    match outcome {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(error) => fail(error.as_ref()),
    }
}
