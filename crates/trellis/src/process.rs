//! What the operating system gives this process: signals and open files.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// More open files than any SuperLink needs. Apps inherit the limit, and some programs walk through all of it.
const ENOUGH_OPEN_FILES: u64 = 1 << 20;

/// Raises the number of files that may be open at once to what the system allows: each SuperNode is a connection.
/// Returns the limit now in force.
pub fn raise_open_file_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(ENOUGH_OPEN_FILES).min(ENOUGH_OPEN_FILES);
    match current {
        Some(current) if current < wanted => {
            setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })?;
            Ok(wanted)
        }
        current => Ok(current.unwrap_or(u64::MAX)),
    }
}

/// The two signals that ask us to stop.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From now on the signals no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Resolves with the first signal. A second one ends the process at once, in the way a shell reports it.
    pub async fn requested(mut self) {
        let (name, _) = self.next().await;
        tracing::info!(signal = %name, "stopping; a second signal ends the process at once");
        tokio::spawn(async move {
            let (name, number) = self.next().await;
            tracing::warn!(signal = %name, "stopped at once by a second signal");
            std::process::exit(128 + number);
        });
    }

    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }
}
