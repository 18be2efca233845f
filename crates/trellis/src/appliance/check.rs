//! `trellis appliance check`: validates the context of a VM and shows its settings. Changes nothing.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use trellis_appliance::context::{MAX_CONTEXT_BYTES, Values};
use trellis_appliance::problem::{Diagnostic, Problems};
use trellis_appliance::settings::Role;
use trellis_appliance::{EffectiveValue, effective_values, read};
use trellis_terminal::{Format, OutputArgs, print, print_as};

use super::RoleName;

const ONE_ENV: &str = "/var/run/one-context/one_env";
const IMAGE_ROLE: &str = "/etc/trellis/role";
const AFTER_HELP: &str = "\
Without --context the environment and /var/run/one-context/one_env are read, as in a VM.

Exit codes:
  0 the appliance could start; 1 there are problems, all of which are printed

Examples:
  trellis appliance check
  trellis appliance check --context context.sh --role superlink
";

/// Show the settings of a context, and all problems with it
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CheckArgs {
    /// A context.sh or a one_env, instead of those of this VM
    #[arg(long, value_name = "FILE")]
    context: Option<PathBuf>,
    /// The role of the VM, if neither FL_ROLE nor its image names it
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &CheckArgs) -> ExitCode {
    let (values, role) = match values(args).and_then(|values| Ok((values, role(args)?))) {
        Ok(found) => found,
        Err(text) => {
            eprintln!("trellis appliance check: {text}");
            return ExitCode::FAILURE;
        }
    };
    let used = effective_values(&values, role);
    let (problems, warnings) = match read(&values, role) {
        Ok((_, warnings)) => (Vec::new(), warnings),
        Err(Problems(problems, warnings)) => (problems, warnings),
    };
    match args.output.format {
        Format::Table => print(&report(&used, &problems, &warnings)),
        format => print_as(format, &as_json(&used, &problems, &warnings)),
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn values(args: &CheckArgs) -> Result<Values, String> {
    let mut values = Values::default();
    let path = args.context.clone().unwrap_or_else(|| PathBuf::from(ONE_ENV));
    let bytes = match std::fs::metadata(&path) {
        Ok(file) if file.len() > MAX_CONTEXT_BYTES as u64 => {
            return Err(format!("{} is longer than {MAX_CONTEXT_BYTES} bytes: is it a context?", path.display()));
        }
        Ok(_) => std::fs::read(&path),
        Err(error) => Err(error),
    };
    match bytes {
        Ok(bytes) if is_one_env(&bytes) => values.add_one_env(&bytes),
        Ok(bytes) => values.add_context_sh(&bytes),
        Err(error) if args.context.is_some() => return Err(format!("cannot read {}: {error}", path.display())),
        // Not in a VM: the environment is all there is.
        Err(_) => {}
    }
    if args.context.is_none() {
        values.add_environment(std::env::vars_os());
    }
    Ok(values)
}

/// Every variable in a one_env has this prefix, and none in a context.sh that OpenNebula wrote.
fn is_one_env(bytes: &[u8]) -> bool {
    bytes.starts_with(b"export ") || bytes.windows(8).any(|window| window == b"\nexport ")
}

fn role(args: &CheckArgs) -> Result<Role, String> {
    if let Some(role) = args.role {
        return Ok(role.into());
    }
    match std::fs::read_to_string(IMAGE_ROLE) {
        Ok(text) => Role::parse(&text).ok_or_else(|| format!("{IMAGE_ROLE} names no role: say --role")),
        Err(_) => Err("the role of the VM is unknown: give --role superlink, supernode or gateway".to_owned()),
    }
}

fn report(used: &[EffectiveValue], problems: &[Diagnostic], warnings: &[Diagnostic]) -> String {
    let mut text = String::new();
    for used in used {
        let value = used.value.as_deref().unwrap_or("(a secret)");
        let whence = used.said.as_ref().map_or_else(
            || "default".to_owned(),
            |(spelling, origin)| match spelling == used.variable {
                true => origin.name().to_owned(),
                false => format!("{}, as {spelling}", origin.name()),
            },
        );
        text.push_str(&format!("{:<28} {value}  ({whence})\n", used.variable));
    }
    for (word, all) in [("warning", warnings), ("problem", problems)] {
        text.extend(all.iter().map(|one| format!("{word}: {one}\n")));
    }
    text
}

fn as_json(used: &[EffectiveValue], problems: &[Diagnostic], warnings: &[Diagnostic]) -> Value {
    let as_json = |all: &[Diagnostic]| -> Vec<Value> {
        let one = |one: &Diagnostic| json!({"variable": one.place.variable, "value": one.place.value, "what": one.what, "advice": one.advice});
        all.iter().map(one).collect()
    };
    let used: Vec<Value> = used
        .iter()
        .map(|used| {
            let (spelling, origin) = used.said.as_ref().map(|(name, origin)| (name, origin.name())).unzip();
            json!({"variable": used.variable, "value": used.value, "spelling": spelling, "origin": origin})
        })
        .collect();
    json!({"used": used, "problems": as_json(problems), "warnings": as_json(warnings)})
}
