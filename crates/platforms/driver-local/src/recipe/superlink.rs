//! The recipe of a SuperLink, ours or official.

use std::path::{Path, PathBuf};

use trellis_client::fleet::Transport;
use trellis_flower::changes::{CONTROL_BY_HTTP, FLEET_BY_HTTP};
use trellis_flower::launch::{Common, Serving, State, SuperLink, TlsFiles};
use trellis_plan::{Addresses, CoordinatorSpec};
use trellis_spec::Persistence;

use super::{Place, Probe, Programs, Recipe, reached};

/// File with the token of the SuperLink's first administrator, in its state directory.
const ADMIN_TOKEN: &str = "admin.token";

pub fn recipe(spec: &CoordinatorSpec, place: &Place, programs: Programs) -> Result<Recipe, Vec<String>> {
    let superlink = describe(spec, place, programs)?;
    let launch = superlink.launch();
    let mut all = vec![programs.program(&launch, place)];
    let superexec = superlink.superexec(reached(superlink.listens().apps));
    all.extend(superexec.map(|superexec| programs.program(&superexec.launch(), place)));
    let probe = probe(&superlink, spec, place);
    Ok(Recipe {
        files: launch.files,
        before: programs.provide(&spec.runtime, spec.python.as_deref(), place),
        programs: all,
        after: Vec::new(),
        probe,
        version: super::version(&spec.runtime),
    })
}

pub fn describe(spec: &CoordinatorSpec, place: &Place, programs: Programs) -> Result<SuperLink, Vec<String>> {
    let ports = &place.ports;
    let common = Common {
        python: spec.python.clone(),
        metrics: spec.metrics.then(|| place.reached(ports.metrics)),
        json_logs: spec.json_logs,
        keepalive: spec.keepalive,
        env: spec.env.clone(),
        extra_args: spec.extra_args.clone(),
        ..programs.common(&spec.runtime, spec.isolation, place)
    };
    let serving = match &place.tls {
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
        Persistence::Disk { .. } => State::Directory { path: state_dir(spec, &place.state).to_owned(), database: None },
    };
    // The document may know the one port by the name it had in an earlier release.
    let (program, wanted) = (common.program, &spec.endpoints);
    let http = match (wanted.http, wanted.fleet, wanted.control) {
        (None, Some(_), _) if program.since(FLEET_BY_HTTP) => ports.fleet,
        (None, _, Some(_)) if program.since(CONTROL_BY_HTTP) => ports.control,
        _ => ports.http,
    };
    Ok(SuperLink {
        fleet: Some(place.listens(ports.fleet).into()),
        control: Some(place.listens(ports.control).into()),
        apps: Some(place.app_address().into()),
        http: Some(place.listens(http).into()),
        // Other users of this machine can reach the ports, too.
        accounts: Some(true),
        admin_token: Some(admin_token(spec, &place.state)),
        endpoints: spec.endpoints.advertise.clone(),
        node_auth: spec.node_auth,
        models: Some(place.models.clone()),
        common,
        serving,
        state,
        ..SuperLink::default()
    })
}

fn probe(superlink: &SuperLink, spec: &CoordinatorSpec, place: &Place) -> Probe {
    let (listens, program) = (superlink.listens(), superlink.common.program);
    let (tls, trust) = (place.tls.is_some(), place.trust().map(Path::to_owned));
    match listens.http {
        Some(http) if program.is_trellis() => {
            Probe::SuperLink { address: reached(http), tls, trust, token: admin_token(spec, &place.state) }
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
