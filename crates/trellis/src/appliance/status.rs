//! `trellis appliance status`: the status that the agent of this machine reports.

use std::process::ExitCode;

use clap::Args;
use trellis_appliance::status::Status;
use trellis_terminal::{Format, OutputArgs, clean, print, print_as, remark};

use super::WhereArgs;

const NOT_RUNNING: u8 = 1;
const NOT_READY: u8 = 3;

/// Show the status of the appliance on this machine, and its problems
///
/// Exit codes: 0 it is ready; 1 no agent runs; 3 it is not ready.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    place: WhereArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &StatusArgs) -> ExitCode {
    let path = args.place.place().status();
    let status = match Status::read(&path) {
        Ok(status) => status,
        Err(error) => {
            let advice = "start it: systemctl start trellis-agent, or `trellis appliance run`";
            remark(&format!("trellis appliance status: no agent reports a status: {error}\n  to do: {advice}"));
            return ExitCode::from(NOT_RUNNING);
        }
    };
    match args.output.format {
        format @ (Format::Json | Format::Yaml) => print_as(format, &status),
        Format::Table => print(&table(&status)),
    }
    ExitCode::from(if status.ready { 0 } else { NOT_READY })
}

fn table(status: &Status) -> String {
    let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let mut lines = vec![
        ("Role", status.role.clone()),
        ("Ready", if status.ready { "yes" } else { "no" }.to_owned()),
        ("Doing", status.doing.clone()),
        ("SuperLink", or(&status.endpoint)),
        ("Instance", or(&status.instance)),
        ("Generation", or(&status.generation)),
    ];
    if status.waiting {
        lines.push(("Waiting", "a change waits until no round is at work".to_owned()));
    }
    if let Some(failure) = &status.failure {
        lines.push(("Failure", failure.to_string()));
    }
    lines.iter().map(|(title, text)| format!("{title:<12}{}\n", clean(text))).collect()
}
