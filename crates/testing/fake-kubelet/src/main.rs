//! The kubelet for tests as a program, for test suites in other languages.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use trellis_fake_kubelet::processes::ProcessSettings;
use trellis_fake_kubelet::processes::images::Images;
use trellis_fake_kubelet::{Kubelet, ServiceSettings, Settings, Storage};

/// Registers nodes with an API server, and runs the pods on them or reports them as running.
#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Number of nodes: `node-0`, `node-1` and so on.
    #[arg(long, default_value_t = 2)]
    nodes: usize,
    /// No storage class: claims stay without volumes.
    #[arg(long)]
    no_storage: bool,
    /// Run pods as processes with files in this directory. Needs root and a network namespace of its own.
    #[arg(long, value_name = "DIRECTORY", requires = "images")]
    processes: Option<PathBuf>,
    /// JSON: programs of this machine by image.
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Serve services, names (here) and volumes for pods of a real kubelet; usually with --nodes 0.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "volumes")]
    name_server: Option<SocketAddr>,
    /// Directory with the content of those volumes.
    #[arg(long, value_name = "DIRECTORY")]
    volumes: Option<PathBuf>,
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match settings(Arguments::parse()) {
        Ok((kubeconfig, settings)) => serve(&kubeconfig, settings),
        Err(why) => {
            eprintln!("fake-kubelet: {why}");
            ExitCode::FAILURE
        }
    }
}

fn settings(arguments: Arguments) -> Result<(PathBuf, Settings), String> {
    let mut settings = Settings::nodes("node", arguments.nodes);
    if arguments.no_storage {
        settings.storage = Storage::Nothing;
    }
    if let (Some(directory), Some(file)) = (arguments.processes, arguments.images) {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
        let content = std::fs::read(&file).map_err(|why| failed(&why))?;
        let images: Images = serde_json::from_slice(&content).map_err(|why| failed(&why))?;
        let directory = std::path::absolute(directory).map_err(|why| failed(&why))?;
        settings.processes = Some(ProcessSettings { directory, images });
    }
    if let (Some(name_server), Some(volumes)) = (arguments.name_server, arguments.volumes) {
        settings.service = Some(ServiceSettings { name_server, volumes });
    }
    Ok((arguments.kubeconfig, settings))
}

/// Runs until a signal ends the process with all pods.
fn serve(kubeconfig: &std::path::Path, settings: Settings) -> ExitCode {
    let _kubelet = Kubelet::start(kubeconfig, settings);
    println!("ready");
    loop {
        std::thread::park();
    }
}
