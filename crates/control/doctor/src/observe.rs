//! Reads facts about this machine and changes nothing. Facts that cannot be read are omitted, not guessed.

mod machine;
mod ports;
mod programs;
mod service;

pub use programs::{answer, driver_version, lines, on_path};

use trellis_api::Home;
use trellis_flwr::Installation;
use trellis_sandbox::{Kernel, Level, Settings};

use crate::facts::Facts;

/// Concurrent, because Python and container engines take seconds to answer.
pub async fn observe(home: Option<&Home>) -> Facts {
    let (flwr, engines, gpu, server, program) = tokio::join!(
        Installation::detect(true),
        programs::engines(),
        programs::gpus(),
        service::server(home),
        programs::program(),
    );
    Facts {
        program,
        home: machine::home(home.map(Home::directory)),
        clock: machine::clock(),
        open_files: Some(machine::open_files()),
        memory: machine::memory(),
        cgroup: machine::cgroup(),
        sandbox: Level::of(&Settings::default(), &Kernel::detect(), true, false),
        gpu,
        engines,
        flwr,
        ports: ports::ports(),
        server,
        certificates: home.map(|home| service::certificates(home.directory())).unwrap_or_default(),
        connections: service::connections(),
    }
}
