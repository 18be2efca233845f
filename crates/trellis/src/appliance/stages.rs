//! The stages of a boot, and the agent: `configure`, `bootstrap`, `agent`, `run`. Wiring only.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use trellis_appliance::agent::{Agent, Resolve, check};
use trellis_appliance::disk;
use trellis_appliance::failure::{Code, Failure};
use trellis_appliance::settings::Settings;
use trellis_appliance::status::Status;
use trellis_appliance::supervisor::systemctl;
use trellis_clock::now_s;
use trellis_logging::{LogFormat, LogSettings};
use trellis_terminal::remark;

use super::{SupervisorKind, WhereArgs};
use crate::process::StopSignals;

/// Shorter than the timeouts of OneFlow and marketplace tests, so that the reason is reported first.
const LIMIT_S: u64 = 570;
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const AGENT: &str = "trellis-agent.service";

/// Check the context, and everything that is known before anything starts; exit code 1 with all that is wrong
#[derive(Debug, Args)]
pub struct ConfigureArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// The wording of one-apps for a changed context
    #[arg(hide = true)]
    reconfigure: Option<String>,
}

/// Let the agent make it so, and wait until it truly works; exit code 1 with the reason if it does not in time
#[derive(Debug, Args)]
pub struct BootstrapArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Seconds until it must work
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT_S)]
    limit: u64,
}

/// Run the agent: keep the programs in the state that the context describes, and report it
#[derive(Debug, Args)]
pub struct AgentArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Supervisor of the programs
    #[arg(long, value_name = "WHO", value_enum, default_value_t = SupervisorKind::Auto)]
    supervisor: SupervisorKind,
}

/// Run all stages in one process that supervises the programs itself: for containers, edge machines and tests
///
/// Exit code 1, with the reason, if it is not ready in time; it continues after that.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Supervisor of the programs
    #[arg(long, value_name = "WHO", value_enum, default_value_t = SupervisorKind::Direct)]
    supervisor: SupervisorKind,
    /// Seconds until it must work for the first time
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT_S)]
    limit: u64,
}

pub fn configure(args: &ConfigureArgs) -> ExitCode {
    let place = args.place.place();
    let sources = args.place.sources(&place);
    let checked = in_runtime(async { check(place, sources).await });
    if let Ok(settings) = &checked {
        report(settings);
    }
    concluded("configure", checked.map(drop))
}

/// The message of one-apps at login, without secrets.
fn report(settings: &Settings) {
    let Some(path) = std::env::var_os("ONE_SERVICE_REPORT") else { return };
    let role = settings.role().name();
    let tls = if settings.common.tls { "on" } else { "off" };
    let text = format!("[Trellis]\nrole = {role}\ntls = {tls}\nhow it is = trellis appliance status\n");
    if let Err(error) = disk::write(Path::new(&path), text.as_bytes(), 0o600, None) {
        remark(&format!("trellis appliance configure: the report is not written: {error}"));
    }
}

pub fn bootstrap(args: &BootstrapArgs) -> ExitCode {
    let place = args.place.place();
    let limit = Duration::from_secs(args.limit);
    concluded(
        "bootstrap",
        in_runtime(async move {
            let since = now_s();
            let failed = |why: String| Failure::new(Code::StartFailed, why);
            // A running agent reloads the context itself.
            systemctl(&["start", AGENT]).await.map_err(failed)?;
            await_ready(&place.status(), since, limit).await
        }),
    )
}

/// Waits for the agent's report on a reconcile that began after `since`.
async fn await_ready(path: &Path, since: f64, limit: Duration) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let status = Status::read(path).ok().filter(|status| status.observed_at >= since);
        let over = began.elapsed() >= limit;
        match status {
            Some(status) if status.ready && status.failure.is_none() => return Ok(()),
            // Waiting for the end of a round must not delay the boot.
            Some(status) if status.waiting => return Ok(()),
            Some(Status { failure: Some(failure), .. }) if failure.code.entry().is_final || over => {
                return Err(failure);
            }
            Some(status) if over => return Err(Failure::new(Code::HealthCheckTimeout, status.doing)),
            None if over => return Err(Failure::new(Code::StartFailed, "the agent does not report a status")),
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

pub fn agent(args: &AgentArgs) -> ExitCode {
    live("agent", &args.place, args.supervisor, Resolve::Stay)
}

pub fn run(args: &RunArgs) -> ExitCode {
    live("run", &args.place, args.supervisor, Resolve::GiveUp { limit: Duration::from_secs(args.limit) })
}

fn live(stage: &str, place: &WhereArgs, supervisor: SupervisorKind, resolve: Resolve) -> ExitCode {
    let level = std::env::var("TRELLIS_LOG_LEVEL").unwrap_or_else(|_| "info".to_owned());
    let log = LogSettings { format: LogFormat::Text, level, file: None };
    if let Err(error) = trellis_logging::start("appliance", &log, None) {
        remark(&format!("trellis appliance {stage}: the log cannot be written: {error}"));
    }
    let lived = in_runtime(async {
        let failed = |error: std::io::Error| Failure::new(Code::PreflightFailed, error.to_string());
        let stop = StopSignals::listen().map_err(failed)?;
        let place_ = place.place();
        let sources = place.sources(&place_);
        let agent = Agent::new(place_, sources, supervisor.supervisor(), resolve).map_err(failed)?;
        agent.run(stop.requested()).await
    });
    concluded(stage, lived)
}

/// On this thread alone: programs are tied to the thread that started them.
fn in_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::PreflightFailed, error.to_string()))?;
    runtime.block_on(work)
}

fn concluded(stage: &str, outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            remark(&format!("trellis appliance {stage}: {failure}"));
            ExitCode::FAILURE
        }
    }
}
