//! Recipe of a SuperLink, ours or official.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use trellis_flower::changes::FLEET_BY_HTTP;
use trellis_flower::launch::{self, SERVERAPPIO_PORT, Serving, State, SuperLink, TlsFiles};

use super::{Calls, Probe, Program, RUN_DEFAULTS, Recipe, Surroundings, describe_common, reached, submission};
use crate::place::Place;
use crate::settings::{Common, Role, SuperLinkSettings, Training};

/// File with the token of the first admin, in the state directory of the SuperLink.
const ADMIN_TOKEN: &str = "admin.token";

pub fn recipe(common: &Common, link: &SuperLinkSettings, around: &Surroundings, place: &Place) -> Recipe {
    let superlink = describe(common, link, around, place);
    let (launch, listens, program) = (superlink.launch(), superlink.listens(), superlink.common.program);
    let mut files = launch.files.clone();
    if let (Some(path), Some(chosen)) = (&superlink.admin_token, &link.admin_token) {
        files.insert(path.clone(), format!("{chosen}\n"));
    }
    let mut programs = vec![Program::of(Role::SuperLink, &launch, common, place)];
    let superexec = superlink.superexec(reached(listens.apps));
    programs.extend(superexec.map(|superexec| Program::superexec(&superexec.launch(), common, place)));
    // Callers from this machine need no account.
    let accounts = program.is_trellis() && !(link.http.ip().is_loopback() && link.control.ip().is_loopback());
    let token = superlink.admin_token.clone().unwrap_or_else(|| place.service(Role::SuperLink).join(ADMIN_TOKEN));
    let calls = Calls {
        address: reached(listens.http.unwrap_or(listens.control)),
        http: program.control_is_http(),
        token: accounts.then_some(token),
    };
    let trust = match &superlink.serving {
        Serving::Tls(files) => Some(files.authority.clone()),
        Serving::Plain | Serving::Given => None,
    };
    let http = program.since(FLEET_BY_HTTP);
    let mut all = vec![listens.fleet, listens.control];
    all.extend(listens.http);
    let mut listens: Vec<SocketAddr> = Vec::new();
    for address in all {
        if !listens.contains(&address) {
            listens.push(address);
        }
    }
    let probe = Probe::SuperLink { fleet: reached(listens[0]), http, trust, calls: Some(calls) };
    Recipe { files, directories: superlink.directories(), programs, probe, listens }
}

pub fn describe(common: &Common, link: &SuperLinkSettings, around: &Surroundings, place: &Place) -> SuperLink {
    let state = place.service(Role::SuperLink);
    let described = launch::Common {
        metrics: link.metrics_port.map(|port| SocketAddr::new(link.fleet.ip(), port)),
        ..describe_common(Role::SuperLink, common, around, place)
    };
    let served = place.served(&link.certificates);
    let serving = match common.tls {
        false => Serving::Plain,
        true => Serving::Tls(TlsFiles {
            certificate: served.join("server.pem"),
            key: served.join("server.key"),
            authority: served.join("ca.crt"),
        }),
    };
    let models =
        link.training.checkpoints.as_ref().map(|checkpoints| match Path::new(&checkpoints.directory).is_absolute() {
            true => place.named(&checkpoints.directory),
            false => state.join(&checkpoints.directory),
        });
    // Official SuperLinks serve the Fleet API at this address even as part of the HTTP API.
    let http = match described.program {
        program if program.is_trellis() => link.http,
        program if program.since(FLEET_BY_HTTP) => link.fleet,
        _ => link.control,
    };
    // The port is fixed, because apps outlive the SuperLink and reconnect.
    let apps = SocketAddr::from((Ipv4Addr::LOCALHOST, around.apps_port.unwrap_or(SERVERAPPIO_PORT)));
    let defaults = run_defaults(&link.training).filter(|_| link.use_case.is_none());
    let database = Some(state.join(&link.database));
    SuperLink {
        fleet: Some(link.fleet.into()),
        control: Some(link.control.into()),
        apps: Some(apps.into()),
        http: Some(http.into()),
        open_network: !common.tls,
        admin_token: link.admin_token.as_ref().map(|_| place.etc().join(ADMIN_TOKEN)),
        endpoints: around.advertised.filter(|_| common.tls).map(|ip| ip.to_string()).into_iter().collect(),
        node_auth: link.node_auth,
        models,
        run_defaults: defaults.map(|defaults| (place.etc().join(RUN_DEFAULTS), defaults)),
        common: described,
        serving,
        state: State::Directory { path: state, database },
        ..SuperLink::default()
    }
}

/// Defaults of all runs: the settings of the user. Apps decide the others.
fn run_defaults(training: &Training) -> Option<String> {
    let table: toml::Table = submission::said(training).map(|(key, value)| (key.to_owned(), value.clone())).collect();
    (!table.is_empty()).then(|| toml::to_string(&table).expect("a table of plain values is TOML"))
}
