//! `trellis appliance vars`: the table of variables, for people, programs, the book and one-apps.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use trellis_appliance::settings::Role;
use trellis_appliance::shell::{appliance_sh, user_input};
use trellis_appliance::variables::{Status, VARIABLES, Variable};
use trellis_terminal::{print, print_json};

use super::RoleName;

const AFTER_HELP: &str = "\
Examples:
  trellis appliance vars --role supernode
  trellis appliance vars --role superlink -o shell > appliance.sh
";

/// List the variables of the appliances: values, default and effect of each
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct VarsArgs {
    /// Only variables of this role; required by shell
    #[arg(long, value_enum, required_if_eq("output", "shell"))]
    role: Option<RoleName>,
    /// How to show them
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// The reference, of all roles
    Markdown,
    /// appliance.sh of one-apps
    Shell,
}

pub fn run(args: &VarsArgs) -> ExitCode {
    let role = args.role.map(Role::from);
    let shown = VARIABLES.iter().filter(|variable| role.is_none_or(|role| variable.is_for(role)));
    match (args.output, role) {
        (Output::Table, _) => print(&shown.map(lines).collect::<String>()),
        (Output::Json, _) => print_json(&shown.map(as_json).collect::<Vec<_>>()),
        (Output::Shell, Some(role)) => print(&appliance_sh(role)),
        (Output::Markdown | Output::Shell, _) => print(&trellis_appliance::reference()),
    }
    ExitCode::SUCCESS
}

fn lines(variable: &Variable) -> String {
    let default = match variable.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let status = match variable.status {
        Status::Effective => variable.effect.to_owned(),
        Status::Refused { why } => format!("Refused: {why}."),
        Status::Elsewhere { owner } => format!("Belongs to {owner}."),
    };
    format!("{}{default}\n    {}; {}.\n    {status}\n", variable.name, variable.about, variable.kind)
}

fn as_json(variable: &Variable) -> Value {
    let (status, reason) = match variable.status {
        Status::Effective => ("effective", None),
        Status::Refused { why } => ("refused", Some(why)),
        Status::Elsewhere { owner } => ("elsewhere", Some(owner)),
    };
    json!({
        "name": variable.name,
        "spellings": variable.spellings(None),
        "roles": variable.roles,
        "may_be": variable.kind.to_string(),
        "default": variable.default,
        "about": variable.about,
        "effect": variable.effect,
        "stage": variable.stage.name(),
        "secret": variable.secret,
        "user_input": variable.asked.then(|| user_input(variable, false).line),
        "status": status,
        "reason": reason,
    })
}
