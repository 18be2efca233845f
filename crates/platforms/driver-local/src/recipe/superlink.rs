//! The recipe of a SuperLink, ours or official.

use std::path::{Path, PathBuf};

use trellis_client::fleet::Transport;
use trellis_flower::changes::{CONTROL_BY_HTTP, FLEET_BY_HTTP};
use trellis_flower::launch::{Common, Serving, State, SuperLink, TlsFiles};
use trellis_plan::{Addresses, CoordinatorSpec};
use trellis_spec::Persistence;

use super::{PartContext, Probe, Programs, Recipe, reached};

/// File with the token of the SuperLink's first administrator, in its state directory.
const ADMIN_TOKEN: &str = "admin.token";

pub fn recipe(spec: &CoordinatorSpec, context: &PartContext, programs: Programs) -> Result<Recipe, Vec<String>> {
    let superlink = describe(spec, context, programs)?;
    let launch = superlink.launch();
    let mut all = vec![programs.program(&launch, context)];
    let superexec = superlink.superexec(reached(superlink.listens().apps));
    all.extend(superexec.map(|superexec| programs.program(&superexec.launch(), context)));
    let probe = probe(&superlink, spec, context);
    Ok(Recipe {
        files: launch.files,
        before: programs.provide(&spec.runtime, spec.python.as_deref(), context),
        programs: all,
        after: Vec::new(),
        probe,
        version: super::version(&spec.runtime),
    })
}

pub fn describe(spec: &CoordinatorSpec, context: &PartContext, programs: Programs) -> Result<SuperLink, Vec<String>> {
    let ports = &context.ports;
    let common = Common {
        python: spec.python.clone(),
        metrics: spec.metrics.then(|| context.reached(ports.metrics)),
        json_logs: spec.json_logs,
        keepalive: spec.keepalive,
        env: spec.env.clone(),
        extra_args: spec.extra_args.clone(),
        ..programs.common(&spec.runtime, spec.isolation, context)
    };
    let serving = match &context.tls {
        None => Serving::Plain,
        Some(tls) => {
            let missing = || vec!["a coordinator with TLS needs a certificate, its key and its authority".to_owned()];
            let (served, trust) = tls.served.as_ref().zip(tls.trust.as_ref()).ok_or_else(missing)?;
            let (certificate, key) = (served.certificate.clone(), served.key.clone());
            Serving::Tls(TlsFiles { certificate, key, authority: trust.clone() })
        }
    };
    let state = match &spec.persistence {
        Persistence::Memory => State::Memory,
        Persistence::Disk { .. } => {
            State::Directory { path: state_dir(spec, &context.state).to_owned(), database: None }
        }
    };
    // If there is only one port, the document may set it by the name of an earlier release.
    let (program, wanted) = (common.program, &spec.endpoints);
    let http = match (wanted.http, wanted.fleet, wanted.control) {
        (None, Some(_), _) if program.since(FLEET_BY_HTTP) => ports.fleet,
        (None, _, Some(_)) if program.since(CONTROL_BY_HTTP) => ports.control,
        _ => ports.http,
    };
    Ok(SuperLink {
        fleet: Some(context.listens(ports.fleet).into()),
        control: Some(context.listens(ports.control).into()),
        apps: Some(context.app_address().into()),
        http: Some(context.listens(http).into()),
        // Other users of this machine can reach the ports, too.
        accounts: Some(true),
        admin_token: Some(admin_token(spec, &context.state)),
        endpoints: spec.endpoints.advertise.clone(),
        node_auth: spec.node_auth,
        models: Some(context.models.clone()),
        common,
        serving,
        state,
        ..SuperLink::default()
    })
}

fn probe(superlink: &SuperLink, spec: &CoordinatorSpec, context: &PartContext) -> Probe {
    let (listens, program) = (superlink.listens(), superlink.common.program);
    let (tls, trust) = (context.tls.is_some(), context.trust().map(Path::to_owned));
    match listens.http {
        Some(http) if program.is_trellis() => {
            Probe::SuperLink { address: reached(http), tls, trust, token: admin_token(spec, &context.state) }
        }
        http => {
            let at = |address| Some(reached(address).to_string());
            Probe::FlowerSuperLink {
                address: reached(listens.control),
                transport: if program.control_is_http() { Transport::Http } else { Transport::Grpc },
                tls,
                trust,
                addresses: Addresses {
                    fleet: at(listens.fleet),
                    control: at(listens.control),
                    app: at(listens.apps),
                    http: http.and_then(at),
                },
            }
        }
    }
}

fn state_dir<'a>(spec: &'a CoordinatorSpec, state: &'a Path) -> &'a Path {
    match &spec.persistence {
        Persistence::Disk { path: Some(path), .. } => path,
        Persistence::Disk { path: None, .. } | Persistence::Memory => state,
    }
}

/// Path of the token of the SuperLink's first administrator; `state` is the state directory of the part.
pub fn admin_token(spec: &CoordinatorSpec, state: &Path) -> PathBuf {
    state_dir(spec, state).join(ADMIN_TOKEN)
}
