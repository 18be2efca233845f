//! `trellis operator run`: from arguments and environment to a running operator. Wiring only: the operator is
//! `trellis_operator`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::runtime::Builder;
use trellis_kube::pod_policy::PodPolicy;
use trellis_logging::{LogFormat, LogSettings};
use trellis_operator::Settings;
use trellis_operator::context::{RESYNC, WORKERS};
use trellis_operator::lease::LEASE;
use trellis_operator::reach::Reach;

use crate::process::{StopSignals, hold_no_memory_in_reserve};
use crate::service;
use crate::settings::system::print_error;

const REFUSED: u8 = 2;
/// Longer than the longest silence of a watch: a connection without data for this time is dead.
const READ_LIMIT: Duration = Duration::from_secs(300);
const NAMESPACE_VARIABLE: &str = "POD_NAMESPACE";
const NAME_VARIABLE: &str = "POD_NAME";

const AFTER_HELP: &str = "\
Examples:
  trellis operator run                                          with the current context of ~/.kube/config
  trellis operator run --context test --namespace team-a        only federations of one namespace
  trellis operator run --leader-elect --metrics-address 0.0.0.0:8080 --health-address 0.0.0.0:8081

In a pod it uses the pod's service account. `trellis operator manifests` prints the manifests of an installation.

Exit codes:
  0 stopped on request; 1 failed; 2 refused arguments; 130, 143 stopped by a second signal.
";

/// Reconcile the federations of a cluster
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RunArgs {
    /// The file with the cluster's address and credentials [default: the pod's account, else KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Which context of that file [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Reconcile the federations of this namespace only; may be repeated [default: all namespaces]
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Vec<String>,

    /// Act only while holding a Lease, so that several operators can run and one acts
    #[arg(long)]
    leader_elect: bool,

    /// Name of the Lease; operators of one namespace for different federations need one each
    #[arg(long, value_name = "NAME", default_value = LEASE)]
    lease_name: String,

    /// Namespace of the Lease [default: POD_NAMESPACE, else the context's namespace]
    #[arg(long, value_name = "NAMESPACE")]
    operator_namespace: Option<String>,

    /// How many federations are worked on at the same time
    #[arg(long, value_name = "N", default_value_t = WORKERS, value_parser = workers)]
    workers: usize,

    /// Interval in seconds after which each federation is reconciled without a change
    #[arg(long, value_name = "SECONDS", default_value_t = RESYNC.as_secs(), value_parser = clap::value_parser!(u64).range(10..=86_400))]
    resync_seconds: u64,

    /// Serve /metrics on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_address: Option<SocketAddr>,

    /// Serve /healthz and /readyz on this address; it may be the one of the metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    health_address: Option<SocketAddr>,

    /// Addresses of SuperLinks for an operator outside of the cluster: lines of `name.namespace.svc:port address:port`
    #[arg(long, value_name = "FILE")]
    reach: Option<PathBuf>,

    /// Allow federations with host namespaces, host paths, privileged containers and any service account in their pods
    ///
    /// Without it such a federation is refused, because any user who may write Federations could take over the
    /// machines.
    #[arg(long)]
    allow_privileged_pods: bool,

    /// Let pods of federations run as this service account of their namespace; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_service_account: Vec<String>,

    /// `text` (coloured on a terminal, unless NO_COLOR is set) or `json`
    #[arg(long, value_name = "FORMAT", default_value = "text", env = "TRELLIS_LOG_FORMAT")]
    log_format: String,

    /// `error`, `warn`, `info`, `debug` or `trace`; finer: filters as in `warn,trellis=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "TRELLIS_LOG_LEVEL")]
    log_level: String,
}

fn workers(text: &str) -> Result<usize, String> {
    const MAX: usize = 256;
    let number: usize = text.parse().map_err(|_| "it must be a number".to_owned())?;
    if (1..=MAX).contains(&number) { Ok(number) } else { Err(format!("it must be from 1 to {MAX}")) }
}

pub fn run(args: &RunArgs) -> ExitCode {
    // All objects of the cluster pass through the process, which stores few of them.
    hold_no_memory_in_reserve();
    let log = match log_settings(args) {
        Ok(log) => log,
        Err(why) => {
            print_error(&format!("trellis operator run: {why}\n"));
            return ExitCode::from(REFUSED);
        }
    };
    service::run("operator", &log, None, &[], Builder::new_multi_thread(), || operate(args))
}

fn log_settings(args: &RunArgs) -> Result<LogSettings, String> {
    let format = match args.log_format.as_str() {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        other => return Err(format!("--log-format: `{other}` is neither `text` nor `json`")),
    };
    if trellis_logging::filter(&args.log_level).is_none() {
        let level = &args.log_level;
        return Err(format!(
            "--log-level: `{level}` is neither error, warn, info, debug or trace nor a list of filters"
        ));
    }
    Ok(LogSettings { format, level: args.log_level.clone(), file: None })
}

async fn operate(args: &RunArgs) -> service::Outcome {
    let stop = StopSignals::listen()?;
    let mut config = cluster(args).await?;
    config.read_timeout = Some(READ_LIMIT);
    let from_environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let own_namespace = args.operator_namespace.clone().or_else(|| from_environment(NAMESPACE_VARIABLE));
    let settings = Settings {
        namespaces: args.namespace.clone(),
        own_namespace: own_namespace.unwrap_or_else(|| config.default_namespace.clone()),
        identity: from_environment(NAME_VARIABLE).unwrap_or_else(|| Settings::default().identity),
        leader_election: args.leader_elect,
        lease_name: args.lease_name.clone(),
        workers: args.workers,
        resync: Duration::from_secs(args.resync_seconds),
        metrics_address: args.metrics_address,
        health_address: args.health_address,
        reach: args.reach.clone().map(Reach::by_file).unwrap_or_default(),
        pod_policy: PodPolicy {
            allow_privileged: args.allow_privileged_pods,
            service_accounts: args.allow_service_account.clone(),
        },
    };
    tracing::info!(
        version = %env!("CARGO_PKG_VERSION"),
        cluster = %config.cluster_url,
        namespaces = ?settings.namespaces,
        identity = settings.identity,
        "starting operator"
    );
    let client = Client::try_from(config)?;
    trellis_operator::run(client, settings, stop.requested()).await?;
    Ok(())
}

async fn cluster(args: &RunArgs) -> Result<Config, Box<dyn std::error::Error + Send + Sync>> {
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &args.kubeconfig {
        let file = Kubeconfig::read_from(path).map_err(|error| format!("--kubeconfig {}: {error}", path.display()))?;
        return Ok(Config::from_custom_kubeconfig(file, &options).await?);
    }
    if args.context.is_some() {
        return Ok(Config::from_kubeconfig(&options).await?);
    }
    match Config::incluster() {
        Ok(config) => Ok(config),
        Err(outside) => match Config::from_kubeconfig(&options).await {
            Ok(config) => Ok(config),
            Err(error) => Err(format!(
                "no cluster: not in a pod ({outside}), and no usable kubeconfig ({error}); give --kubeconfig"
            )
            .into()),
        },
    }
}
