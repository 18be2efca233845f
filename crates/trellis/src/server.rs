//! `trellis server`: from arguments to a running control plane. Wiring only: `check` interprets flags, `trellis_server` is the
//! server.

mod check;
mod sign_on;
mod table;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use check::{Checked, check};
pub use table::SERVER;
use tokio::runtime::Builder;
use trellis_api::{Home, Lock, Serving};
use trellis_server::{
    Bound, Limits, Platform, PlatformSettings, ServeError, ServeSettings, SimulatedSites, SiteDrivers,
};

use crate::keep;
use crate::private_dir;
use crate::process::{OWN_PROGRAM, StopSignals, raise_open_file_limit, take_memory_as_needed};
use crate::service;
use crate::settings::system::{self, print_error};
use crate::settings::{Flags, problem};

const CALLED: &str = "trellis server";
const REFUSED: u8 = 2;
/// Responses are short and rare: more threads would only hold memory.
const THREADS: usize = 2;

/// Time scale of simulated sites, so that tests of large federations do not wait.
const SIMULATED_SPEED: u32 = 100;

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0} is in use by another server, process {1}; stop that one, or give this one another --home")]
    Held(PathBuf, u32),
    #[error("the home {0} cannot be used")]
    Home(PathBuf, #[source] io::Error),
    #[error("{0} is in use by another program; give another port with --listen, or 0 for a free one")]
    Taken(SocketAddr),
    #[error("the server cannot be announced in {0}")]
    Announce(PathBuf, #[source] io::Error),
}

/// Runs the sub-command. `arguments` do not include its name.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let given = match system::read(&Flags::new(CALLED, &SERVER), arguments) {
        Ok(given) => given,
        Err(shown) => return shown,
    };
    match system::with_system(|system| check(&given, system)) {
        Err(problems) => {
            print_error(&problem::report(CALLED, &problems));
            ExitCode::from(REFUSED)
        }
        Ok(checked) => {
            take_memory_as_needed();
            start(checked)
        }
    }
}

fn start(checked: Checked) -> ExitCode {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(THREADS);
    let (log, warnings) = (checked.log.clone(), checked.warnings.clone());
    service::run("server", &log, None, &warnings, runtime, || {
        if let Err(error) = raise_open_file_limit() {
            tracing::warn!(%error, "the limit of open files could not be raised: fewer processes can be watched");
        }
        serve(checked)
    })
}

async fn serve(checked: Checked) -> service::Outcome {
    let stop = StopSignals::listen()?;
    let home = &checked.home;
    let directory = home.directory().to_owned();
    private_dir::claim(home.directory())?;
    let taken = Lock::take(&home.server_lock()).map_err(|error| StartError::Home(directory.clone(), error))?;
    let lock = taken.map_err(|pid| StartError::Held(directory.clone(), pid))?;
    let bound = bind(&checked).await?;
    // This process holds the lock, so no wait for resources of an earlier server is needed.
    let settings = PlatformSettings {
        exclusive: true,
        sites: sites(checked.simulated_sites),
        ..PlatformSettings::new(directory.clone(), OWN_PROGRAM.into())
    };
    let platform = Platform::start(settings).await?;
    // Written before the announcement, so that every reader of the announcement finds the token.
    bound.provide_admin(&platform).await?;
    let (address, url) = (bound.address(), bound.url());
    let serving = Serving {
        pid: std::process::id(),
        url: url.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        root_certificates: checked.tls.as_ref().map(|tls| tls.ca.clone()),
    };
    home.announce(&serving).map_err(|error| StartError::Announce(directory.clone(), error))?;
    tracing::info!(%address, %url, home = %directory.display(), version = env!("CARGO_PKG_VERSION"), "serving");
    let keeper = checked.kept.then(|| tokio::spawn(keep::hold(home.clone())));
    let served = bound.serve(Arc::clone(&platform), stop.requested()).await;
    if let Some(keeper) = keeper {
        keeper.abort();
    }
    platform.stop().await;
    home.withdraw()?;
    drop(lock);
    Ok(served?)
}

/// The requested port, or the port of the last server, the default port, or any port, whichever is free first.
async fn bind(checked: &Checked) -> Result<Bound, Box<dyn std::error::Error + Send + Sync>> {
    for listen in &checked.listen {
        let settings = ServeSettings {
            listen: *listen,
            tls: checked.tls.clone(),
            allow_plaintext_network: checked.allow_insecure_network,
            home: checked.home.directory().to_owned(),
            hosts: checked.hosts.clone(),
            limits: Limits::default(),
            sign_on: checked.sign_on.clone(),
        };
        match Bound::bind(settings).await {
            Err(ServeError::Bind(address, error)) if error.kind() == io::ErrorKind::AddrInUse => {
                tracing::debug!(%address, "in use by another program");
            }
            bound => return Ok(bound?),
        }
    }
    Err(StartError::Taken(checked.listen[0]).into())
}

fn sites(simulated: bool) -> SiteDrivers {
    if simulated { SiteDrivers::Simulated(SimulatedSites::new(SIMULATED_SPEED)) } else { SiteDrivers::default() }
}

/// The ports to try, the best first.
fn ports(home: &Home, usual: SocketAddr) -> Vec<SocketAddr> {
    let last = home.last_serving().and_then(|serving| serving.url.rsplit_once(':')?.1.parse().ok());
    let mut ports = vec![SocketAddr::new(usual.ip(), 0)];
    if last != Some(usual.port()) {
        ports.insert(0, usual);
    }
    ports.splice(0..0, last.map(|port| SocketAddr::new(usual.ip(), port)));
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_port_comes_first_and_any_port_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::find(Some(directory.path())).expect("a home");
        let usual: SocketAddr = "127.0.0.1:7766".parse().expect("an address");
        let tried = |home: &Home| ports(home, usual).iter().map(SocketAddr::port).collect::<Vec<_>>();
        assert_eq!(tried(&home), [7766, 0]);
        for (url, expected) in
            [("http://127.0.0.1:4040", vec![4040, 7766, 0]), ("http://127.0.0.1:7766", vec![7766, 0])]
        {
            let serving = Serving { pid: 1, url: url.to_owned(), version: String::new(), root_certificates: None };
            home.announce(&serving).expect("written");
            assert_eq!(tried(&home), expected);
        }
    }
}
