//! The load generator: simulates nodes, a SuperExec and a ServerApp, and measures the cost on a SuperLink.
//!
//! It knows servers only by their flags and the wire, and links no server code.

mod call;
mod cli;
mod client;
mod fab;
mod fleet;
mod identity;
mod measure;
mod node;
mod pacing;
mod payload;
mod process;
mod report;
mod rpc;
mod serverapp;
mod sizes;
mod stats;
mod superlink;
mod table;
mod transfer;

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Cli;
use crate::client::Transport;
use crate::measure::Measurement;
use crate::report::Section;
use crate::superlink::{Contender, Programs, SuperLink};

/// Why a measurement failed. It is printed, and the next measurement runs.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = tokio::select! {
        outcome = bench(&cli) => outcome,
        () = stop_signal() => Err("interrupted".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trellis-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Waits for an interrupt or a termination signal. Both must run destructors, which stop the servers.
async fn stop_signal() {
    let mut terminate = signal(SignalKind::terminate()).expect("signal handlers can be installed");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

async fn bench(cli: &Cli) -> Result<(), Failure> {
    cli.check()?;
    let descriptors = process::raise_descriptor_limit()?;
    let command = report::command_line(std::env::args(), std::env::var("HOME").ok().as_deref());
    let when = jiff::Timestamp::now().strftime("%Y-%m-%d");
    let machine = process::machine();
    let circumstances =
        format!("Machine: {machine}, {descriptors} descriptors for each process. Measured {when} with\n`{command}`");
    for transport in cli.transports() {
        let report = report::render(transport, &circumstances, measure_all(cli, transport).await);
        println!("## {}\n{report}", transport.name());
        if let Some(path) = &cli.write {
            report::write(path, transport, &report)?;
        }
    }
    Ok(())
}

async fn measure_all(cli: &Cli, transport: Transport) -> Vec<Section> {
    let (programs, contenders) = (cli.programs(transport), cli.contenders());
    let mut sections = Vec::new();
    for measurement in cli.measurements(transport) {
        eprintln!("{}, {}", transport.name(), measurement.title());
        let mut section = Section::new(&measurement, transport);
        for &contender in &contenders {
            if measurement.nodes() > cli.max_nodes(contender, transport) {
                section.add_missing(contender, "not run: too many nodes for it", Vec::new());
                continue;
            }
            eprint!("  {:<16}", contender.title(transport));
            let measuring = start_and_run(&measurement, contender, transport, &programs);
            match tokio::time::timeout(cli.limit(), measuring).await {
                Ok(outcome) => record(outcome, contender, &mut section),
                Err(_) => {
                    let note = format!("no result within {} s", cli.limit().as_secs());
                    eprintln!("cut off: {note}");
                    section.add_missing(contender, "cut off", vec![note]);
                }
            }
        }
        sections.push(section);
    }
    sections
}

fn record(outcome: Result<measure::Outcome, Failure>, contender: Contender, section: &mut Section) {
    match outcome {
        Ok(outcome) => {
            let numbers: Vec<String> = section
                .metrics
                .iter()
                .zip(&outcome.cells)
                .map(|(metric, cell)| format!("{} {cell}", metric.name))
                .collect();
            eprintln!("{}", numbers.join("; "));
            outcome.notes.iter().for_each(|note| eprintln!("    {note}"));
            section.add(contender, outcome.cells, outcome.notes);
        }
        Err(error) => {
            eprintln!("failed: {error}");
            section.add_missing(contender, "failed", vec![error.to_string()]);
        }
    }
}

async fn start_and_run(
    measurement: &Measurement,
    contender: Contender,
    transport: Transport,
    programs: &Programs,
) -> Result<measure::Outcome, Failure> {
    let mut earlier = Vec::new();
    let mut attempt = 1;
    loop {
        let server = SuperLink::start(contender, transport, programs).await?;
        let run = measurement.run(&server).await;
        let mut outcome = run.inspect_err(|_| eprintln!("the server's log ends:\n{}", server.log_tail()))?;
        if outcome.complete || attempt == measurement.attempts(contender) {
            outcome.notes.splice(0..0, earlier);
            return Ok(outcome);
        }
        earlier.extend(outcome.notes.into_iter().map(|note| format!("attempt {attempt}, incomplete: {note}")));
        attempt += 1;
    }
}
