//! `trellis operator manifests`: from arguments to an installation, and from its objects to text.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use trellis_kube::crd;
use trellis_kube::manifests::{Installation, NAMESPACE, default_image, objects};
use trellis_kube::pod_policy::PodPolicy;
use trellis_spec::yaml;

const AFTER_HELP: &str = "\
Examples:
  trellis operator manifests | kubectl apply --server-side -f -
  trellis operator manifests --image registry.example.org/trellis-operator:0.2.0 --replicas 2
  trellis operator manifests --watch-namespace blue --watch-namespace green
";

/// Print all that an installation of the operator needs: resource definitions, permissions, the operator itself
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ManifestsArgs {
    /// Namespace of the operator
    #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
    namespace: String,
    /// Image of the operator
    #[arg(long, value_name = "IMAGE", default_value_t = default_image())]
    image: String,
    /// Secret with which the image is pulled; may be repeated
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Vec<String>,
    /// Watch the federations of this namespace only, with permissions for nothing else; may be repeated
    #[arg(long, value_name = "NAME")]
    watch_namespace: Vec<String>,
    /// Let federations ask for pods with host namespaces, host paths, privileged containers and any service account
    #[arg(long)]
    allow_privileged_pods: bool,
    /// Let pods of federations run as this service account of their namespace; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_service_account: Vec<String>,
    /// How many operators; one works, the others wait to take its place
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    replicas: u32,
    /// Add a ServiceMonitor of the Prometheus operator
    #[arg(long)]
    service_monitor: bool,
    /// Add a NetworkPolicy: only namespaces labelled metrics=enabled reach the operator's metrics
    #[arg(long)]
    network_policy: bool,
    /// Add roles for people who use federations: admin, editor, viewer
    #[arg(long)]
    user_roles: bool,
    /// Leave out the definitions of the resources
    #[arg(long)]
    without_crds: bool,
    /// How it is written
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Yaml)]
    output: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Documents
    Yaml,
    /// One list
    Json,
}

pub fn run(args: &ManifestsArgs) -> ExitCode {
    let installation = Installation {
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        image_pull_secrets: args.image_pull_secret.clone(),
        watched: without_repetition(&args.watch_namespace),
        pod_policy: PodPolicy {
            allow_privileged: args.allow_privileged_pods,
            service_accounts: without_repetition(&args.allow_service_account),
        },
        replicas: args.replicas,
        service_monitor: args.service_monitor,
        network_policy: args.network_policy,
        people: args.user_roles,
    };
    let definitions = if args.without_crds { Vec::new() } else { crd::all().to_vec() };
    let all: Vec<Value> =
        definitions.into_iter().chain(objects(&installation).into_iter().map(|object| object.0)).collect();
    let text = match args.output {
        Format::Yaml => yaml::documents(&all),
        Format::Json => format!("{:#}\n", json!({"apiVersion": "v1", "kind": "List", "items": all})),
    };
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn without_repetition(names: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for name in names {
        if !kept.contains(name) {
            kept.push(name.clone());
        }
    }
    kept
}
