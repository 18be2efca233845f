//! `trellis image verify`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Serialize;
use trellis_appliance::context::single_quoted;
use trellis_appliance::disc;
use trellis_image::recipe::Role;
use trellis_image::verify::{Accelerator, Check, Firmware, Trial, Verdict, script, verify};
use trellis_terminal::{OutputArgs, Tone, clean, colours, explain, painted, print, remark};

use super::{RoleName, failure};
use crate::remote::CommandError;

/// Start an image in QEMU with a context, and check the result
#[derive(Debug, Args)]
pub struct VerifyArgs {
    image: PathBuf,
    /// Role of the image [default: by its name]
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    /// Start with UEFI instead of a BIOS
    #[arg(long)]
    uefi: bool,
    /// Use hardware virtualization, if the machine has it
    #[arg(long)]
    kvm: bool,
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    image: String,
    passed: bool,
    took_s: f64,
    checks: &'a [Check],
}

pub fn run(args: &VerifyArgs) -> Result<(), CommandError> {
    let role = role(args)?;
    let disc = disc::write(&context(role)).map_err(|error| CommandError::failed(explain(&error), None))?;
    let trial = Trial {
        image: &args.image,
        role,
        firmware: if args.uefi { Firmware::Uefi } else { Firmware::Bios },
        accelerator: if args.kvm { Accelerator::Kvm } else { Accelerator::Tcg },
        limit: Duration::from_secs(args.limit),
        disc: &disc,
    };
    let verdict = verify(&trial).map_err(|error| failure(&error))?;
    let failed = verdict.checks.iter().filter(|check| !check.passed).count();
    let report = Report {
        image: args.image.display().to_string(),
        passed: failed == 0,
        took_s: verdict.took.as_secs_f64(),
        checks: &verdict.checks,
    };
    args.output.print(&report, || show(&verdict));
    if failed == 0 {
        return Ok(());
    }
    verdict.console.lines().for_each(|line| remark(&clean(line)));
    let what = format!("{failed} of {} checks failed; above is the end of its console", verdict.checks.len());
    Err(CommandError::failed(what, None))
}

fn role(args: &VerifyArgs) -> Result<Role, CommandError> {
    let name = args.image.file_name().unwrap_or_default().to_string_lossy();
    match args.role {
        Some(role) => Ok(role.into()),
        None if name.contains("superlink") => Ok(Role::Superlink),
        None if name.contains("supernode") => Ok(Role::Supernode),
        None => Err(CommandError::usage(
            "the name of the image does not contain its role",
            "give --role superlink or --role supernode",
        )),
    }
}

/// A context without a cloud: no reports to OneGate, no discovery.
fn context(role: Role) -> BTreeMap<String, Vec<u8>> {
    let script = STANDARD.encode(script());
    let mut said = vec![
        ("VMID", "1"),
        ("NETWORK", "YES"),
        ("REPORT_READY", "NO"),
        ("ETH0_MAC", "02:00:0a:00:02:0f"),
        ("ETH0_IP", "10.0.2.15"),
        ("ETH0_MASK", "255.255.255.0"),
        ("START_SCRIPT_BASE64", &script),
    ];
    if role == Role::Supernode {
        said.extend([("FL_SUPERLINK_ADDRESS", "10.0.2.2:9092"), ("FL_TLS_ENABLED", "NO")]);
    }
    let line = |(name, value): &(&str, &str)| format!("{name}={}\n", single_quoted(value));
    let text: String = said.iter().map(line).collect();
    BTreeMap::from([("context.sh".to_owned(), text.into_bytes())])
}

fn show(verdict: &Verdict) {
    let width = verdict.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, passed, found } in &verdict.checks {
        let word = if *passed { "ok    " } else { "FAILED" };
        let tone = if *passed { Tone::Good } else { Tone::Bad };
        let word = if colours() { painted(word, tone) } else { word.to_owned() };
        print(&format!("{word}  {name:<width$}  {}\n", clean(found)));
    }
    print(&format!("after {:.0} s\n", verdict.took.as_secs_f64()));
}
