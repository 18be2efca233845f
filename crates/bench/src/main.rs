//! The load generator: plays nodes, SuperExec and ServerApp against a SuperLink and measures what that costs it.
//!
//! It knows servers only by their flags and the wire; nothing of our own server's code is linked in.

mod call;
mod cli;
mod fab;
mod fleet;
mod identity;
mod measure;
mod node;
mod pacing;
mod payload;
mod process;
mod report;
mod serverapp;
mod stats;
mod superlink;
mod table;
mod transfer;

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Cli;
use crate::measure::Measurement;
use crate::report::Section;
use crate::superlink::{Contender, Programs, SuperLink};

/// Why a measurement could not be made. Nothing reacts to the kind of it: it is shown, and the next one is tried.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = tokio::select! {
        outcome = bench(&cli) => outcome,
        () = told_to_stop() => Err("interrupted".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trellis-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An interrupt or a request to end; both must run the destructors, for those end the servers.
async fn told_to_stop() {
    let mut terminate = signal(SignalKind::terminate()).expect("signal handlers can be installed");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

async fn bench(cli: &Cli) -> Result<(), Failure> {
    let (programs, contenders) = (cli.programs(), cli.contenders());
    let mut sections = Vec::new();
    for measurement in cli.measurements() {
        eprintln!("{}", measurement.title());
        let mut section = Section::new(&measurement);
        for &contender in &contenders {
            measure(&measurement, contender, &programs, cli.max_nodes(contender), &mut section).await;
        }
        sections.push(section);
    }

    let command = report::command_line(std::env::args(), std::env::var("HOME").ok().as_deref());
    let when = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let report = report::render(&process::machine(), &command, &when, sections);
    println!("{report}");
    if let Some(path) = &cli.write {
        report::write(path, &report)?;
    }
    Ok(())
}

async fn measure(
    measurement: &Measurement,
    contender: Contender,
    programs: &Programs,
    max_nodes: usize,
    section: &mut Section,
) {
    if measurement.nodes() > max_nodes {
        section.add_missing(contender, "not run: too many nodes for it", Vec::new());
        return;
    }
    eprint!("  {contender:<16}");
    match start_and_run(measurement, contender, programs).await {
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
    programs: &Programs,
) -> Result<measure::Outcome, Failure> {
    let mut earlier = Vec::new();
    let mut attempt = 1;
    loop {
        let server = SuperLink::start(contender, programs).await?;
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
