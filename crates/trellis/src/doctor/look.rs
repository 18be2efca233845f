//! Looks at this machine and changes nothing. What cannot be seen is left out, not guessed.

mod machine;
mod outside;
mod ports;
mod service;

pub use outside::{answer, driver_version, lines};

use trellis_sandbox::{Kernel, Level, Settings};

use super::facts::Facts;
use crate::home::Home;
use crate::python::FlwrHere;

/// Everything at the same time: the slowest (Python, container engines) takes seconds.
pub async fn look(home: Option<&Home>) -> Facts {
    let (flwr, engines, gpu, server, program) = tokio::join!(
        FlwrHere::look(true),
        outside::engines(),
        outside::gpus(),
        service::server(home),
        outside::program(),
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
