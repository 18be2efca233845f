//! `trellis appliance rotate-ca`: replaces the authority of a SuperLink's certificates in two steps, while runs continue.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use trellis_appliance::place::Place;
use trellis_appliance::status::Status;
use trellis_client::{Security, Target, Trust, handshake};
use trellis_clock::now_unix;
use trellis_pki::Authority;
use trellis_pki::authority::Step;
use trellis_pki::rotation::State;
use trellis_terminal::{print, remark};

use super::WhereArgs;

const LIMIT_S: u64 = 120;
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const HANDSHAKE: Duration = Duration::from_secs(5);
const CERTIFICATE_ENDS: &str = "-----END CERTIFICATE-----\n";

/// Replace the authority of this SuperLink's certificates: once to begin, again with --finish
///
/// The first step publishes a new authority beside the old one (FL_CA_CERT). When every node has it - nodes of the service
/// within a minute; others get it from their operators - the second step lets the new one sign, waits until the SuperLink
/// serves with it, and withdraws the old one. Runs continue. Each step is idempotent.
///
/// Exit codes: 0 the step succeeded; 1 it failed, and can be repeated.
#[derive(Debug, Args)]
pub struct RotateArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Let the new authority sign, and withdraw the old one
    #[arg(long)]
    finish: bool,
    /// Seconds until the SuperLink must serve with the new authority
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT_S)]
    limit: u64,
}

pub fn run(args: &RotateArgs) -> ExitCode {
    let place = args.place.place();
    let done = match args.finish {
        false => begin(&place),
        true => finish(&place, Duration::from_secs(args.limit)),
    };
    match done {
        Ok(text) => {
            print(text);
            ExitCode::SUCCESS
        }
        Err(why) => {
            remark(&format!("trellis appliance rotate-ca: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn open(place: &Place) -> Result<Authority, String> {
    let advice = "an authority exists in the VM of a SuperLink that issues its own certificates, after its first start; run this as root";
    Authority::open(&place.authority()).map_err(|error| format!("{error}\n  to do: {advice}"))
}

fn begin(place: &Place) -> Result<&'static str, String> {
    open(place)?.rotate(Step::Begin, false, now_unix()).map_err(|error| error.to_string())?;
    Ok("Two authorities are trusted from now on. When all nodes have FL_CA_CERT as it is now:\n  \
        trellis appliance rotate-ca --finish\n")
}

fn finish(place: &Place, limit: Duration) -> Result<&'static str, String> {
    let mut authority = open(place)?;
    if matches!(authority.rotation(), State::Steady { .. }) {
        return Err("no rotation has begun\n  to do: trellis appliance rotate-ca".to_owned());
    }
    authority.rotate(Step::Switch, false, now_unix()).map_err(|error| error.to_string())?;
    await_served(place, &authority, limit)?;
    authority.rotate(Step::Finish, false, now_unix()).map_err(|error| error.to_string())?;
    Ok("The new authority alone is trusted.\n")
}

/// Waits until clients that trust only the new authority can connect: the agent issues, the SuperLink reloads.
fn await_served(place: &Place, authority: &Authority, limit: Duration) -> Result<(), String> {
    let failed = |error: &dyn std::error::Error| error.to_string();
    let bundle = authority.trust_bundle().map_err(|error| failed(&error))?;
    let first = bundle.split_inclusive(CERTIFICATE_ENDS).next().unwrap_or(&bundle);
    let mut file = tempfile::NamedTempFile::new().map_err(|error| failed(&error))?;
    file.write_all(first.as_bytes()).map_err(|error| failed(&error))?;
    let trust = Trust::bundle(file.path()).map_err(|error| failed(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
    let began = Instant::now();
    loop {
        let target = endpoint(place).map(|(host, port)| {
            let security = Security::Tls(trust.clone());
            Target { host, port, security, token: None }
        });
        let why = match target {
            None => "the agent does not report the address of the SuperLink: is it running?".to_owned(),
            Some(target) => {
                let shaken = runtime.block_on(async { tokio::time::timeout(HANDSHAKE, handshake(&target)).await });
                match shaken {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "it does not answer".to_owned(),
                }
            }
        };
        if began.elapsed() >= limit {
            let advice =
                "check `trellis appliance status`, then repeat this command; both authorities are trusted until then";
            return Err(format!("the SuperLink does not serve with the new authority yet: {why}\n  to do: {advice}"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn endpoint(place: &Place) -> Option<(String, u16)> {
    let endpoint = Status::read(&place.status()).ok()?.endpoint?;
    let (host, port) = endpoint.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}
