//! Resources of this process: signals, open files, memory.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// More open files than any SuperLink needs. Apps inherit the limit, and some programs walk through all of it.
const MAX_OPEN_FILES: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard limit, because each SuperNode is a connection.
/// Returns the new limit.
pub fn raise_open_file_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(MAX_OPEN_FILES).min(MAX_OPEN_FILES);
    match current {
        Some(current) if current < wanted => {
            setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })?;
            Ok(wanted)
        }
        current => Ok(current.unwrap_or(u64::MAX)),
    }
}

/// The running program. Children execute the same file even if it was replaced or deleted.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Makes the allocator commit memory on demand. By default it commits pages of 2 MiB, so an idle program holds 8 MiB.
pub const MEMORY_AS_NEEDED: (&str, &str) = ("MIMALLOC_ARENA_EAGER_COMMIT", "0");

/// Makes the allocator return free memory at once, for programs with a few peaks: they read large inputs and keep little.
const MEMORY_BACK_AT_ONCE: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "0");

pub fn take_memory_as_needed() {
    configure_allocator(&[MEMORY_AS_NEEDED]);
}

pub fn hold_no_memory_in_reserve() {
    configure_allocator(&[MEMORY_AS_NEEDED, MEMORY_BACK_AT_ONCE]);
}

/// Executes this program again in the same process, unless the environment has the settings already: the allocator reads
/// them before `main`. If that fails, the program continues and uses more memory.
fn configure_allocator(settings: &[(&str, &str)]) {
    if settings.iter().all(|(variable, _)| std::env::var_os(variable).is_some()) {
        return;
    }
    let mut arguments = std::env::args_os();
    let mut again = Command::new(OWN_PROGRAM);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // Returns only when it failed.
    let _ = again.args(arguments).envs(settings.iter().copied()).exec();
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

    /// The next one: its name and number.
    pub async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }
}
