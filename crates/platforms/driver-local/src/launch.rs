//! Launch of a part: prepares its files, ports and keys, then starts its programs. Each step is idempotent, so that the launch can
//! resume after a crash.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use trellis_files::private;
use trellis_plan::{ResourceId, Spec};
use trellis_spec::{Containers, Persistence, Resources, Runtime};
use trellis_wire::token::Token;

use crate::mark::Mark;
use crate::part::{Part, Running, blocking, write};
use crate::process::{Exit, Process};
use crate::recipe::{PartContext, Probe, Program, Recipe, admin_token, recipe};
use crate::record::{DesiredState, Record};
use crate::shared::{Claim, Shared};
use crate::{enrolment, logs, termination, tls};

/// Outcome of a launch.
pub enum Launched {
    Started,
    /// The desired state changed during the launch.
    Superseded,
    Failed(String),
}

pub async fn launch(shared: &Arc<Shared>, part: &Part) -> Launched {
    let (record, is_new, is_found) = {
        let state = part.lock().await;
        (state.record.clone(), state.is_new, state.is_alive(0))
    };
    let Some(desired) = &record.desired else {
        return Launched::Failed("its desired state is unknown".to_owned());
    };
    // Running programs hold their ports already, and need no preparation.
    let prepared = match is_found {
        true => present(shared, &record, &desired.spec),
        false => prepare(shared, &record, &desired.spec, is_new).await,
    };
    let (claim, recipe) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return Launched::Failed(why),
    };
    let recipe = Arc::new(recipe);
    if !is_found {
        for step in recipe.after.iter().chain(&recipe.before) {
            match run(shared, part, &record, step).await {
                Launched::Started => {}
                other => return other,
            }
        }
    }
    start(shared, part, &record, claim, recipe).await
}

/// The recipe with the ports and GPUs that the part was started with.
pub fn present(shared: &Shared, record: &Record, spec: &Spec) -> Result<(Claim, Recipe), String> {
    let claim = Claim { ports: record.ports, gpus: record.gpus.clone() };
    let context = context(shared, &record.id, spec, &claim);
    let recipe = recipe(spec, &context).map_err(|problems| problems.join("; "))?;
    Ok((claim, recipe))
}

async fn prepare(shared: &Arc<Shared>, record: &Record, spec: &Spec, is_new: bool) -> Result<(Claim, Recipe), String> {
    if !is_new && !apps_survive(spec) {
        termination::terminate_leftovers(shared, &record.id).await;
    }
    let (arranged, id, of) = (Arc::clone(shared), record.id.clone(), spec.clone());
    let had = Claim { ports: record.ports, gpus: record.gpus.clone() };
    let arrange = move || arrange(&arranged, &id, &of, &had).map_err(io::Error::other);
    let claim = blocking(arrange).await.map_err(|error| error.to_string())?;
    if let Spec::Node(node) = spec
        && node.node_auth
    {
        enrolment::enrol(shared, &record.id).await?;
    }
    let context = context(shared, &record.id, spec, &claim);
    let recipe = recipe(spec, &context).map_err(|problems| problems.join("; "))?;
    let files = recipe.files.clone();
    let write = move || files.iter().try_for_each(|(path, text)| private::replace(path, text.as_bytes()));
    blocking(write).await.map_err(|error| error.to_string())?;
    Ok((claim, recipe))
}

/// Prepares directories, log, ports and certificates.
fn arrange(shared: &Shared, id: &ResourceId, spec: &Spec, had: &Claim) -> Result<Claim, String> {
    let home = &shared.home;
    let text = |error: io::Error| error.to_string();
    private::make_directory(&home.state(id)).map_err(text)?;
    if let Spec::Coordinator(spec) = spec {
        private::make_directory(&home.models(&id.federation)).map_err(text)?;
        if spec.containers == Some(Containers::No) && spec.resources != Resources::default() {
            tracing::warn!(part = %id, "coordinator.resources has no effect on a SuperLink that runs as a process");
        }
        if spec.runtime == Runtime::Trellis {
            provide_token(&admin_token(spec, &home.state(id))).map_err(text)?;
        }
    }
    logs::rotate(&home.log(id)).map_err(|error| format!("cannot rotate its log: {error}"))?;
    tls::prepare(home, &id.federation, spec)?;
    shared.claim(id, spec, had, listen(spec))
}

/// Creates the administrator token with which this driver calls the SuperLink. An existing token is kept.
fn provide_token(path: &Path) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    private::make_directory(path.parent().unwrap_or(path))?;
    // Not replaced: a driver that was closed during a launch may still write the token.
    private::create_if_absent(path, format!("{}\n", Token::generate().reveal()).as_bytes())
}

fn context(shared: &Shared, id: &ResourceId, spec: &Spec, claim: &Claim) -> PartContext {
    let home = &shared.home;
    let has_key = matches!(spec, Spec::Node(spec) if spec.node_auth);
    PartContext {
        id: id.clone(),
        program: shared.program.clone(),
        directory: home.part(id),
        state: home.state(id),
        shared: home.shared(),
        models: home.models(&id.federation),
        ports: claim.ports,
        listen: listen(spec),
        tls: tls::files(home, &id.federation, spec),
        node_key: has_key.then(|| home.node_key(id)),
        gpus: claim.gpus.clone(),
        coordinator_http: coordinator_http(shared, id),
    }
}

fn coordinator_http(shared: &Shared, id: &ResourceId) -> Option<SocketAddr> {
    let coordinator = shared.coordinator(&id.federation)?;
    // `None` also if another task is changing the coordinator.
    match &coordinator.peek()?.recipe.as_ref()?.probe {
        Probe::SuperLink { address, .. } => Some(*address),
        _ => None,
    }
}

/// The loopback address, unless the document advertises another one.
fn listen(spec: &Spec) -> IpAddr {
    let is_own = |name: &String| match name.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    };
    match spec {
        Spec::Coordinator(spec) if !spec.endpoints.advertise.iter().all(is_own) => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

/// Whether ServerApps survive a restart of the coordinator: our SuperLink resumes its runs from disk.
pub fn apps_survive(spec: &Spec) -> bool {
    match spec {
        Spec::Coordinator(spec) => {
            spec.runtime == Runtime::Trellis && matches!(spec.persistence, Persistence::Disk { .. })
        }
        Spec::Node(_) => false,
    }
}

/// Runs a program to its end, unless the desired state changes meanwhile.
async fn run(shared: &Shared, part: &Part, record: &Record, program: &Program) -> Launched {
    let log = shared.home.log(&part.id);
    let from = logs::length(&log);
    let mark = Mark { home: shared.home.hash(), id: part.id.clone(), instance: record.instance, role: None };
    let process = match Process::start(&shared.program, program, &mark, &log) {
        Ok(process) => process,
        Err(error) => return Launched::Failed(not_started(program, &error)),
    };
    let exit = tokio::select! {
        exit = process.ended() => exit,
        () = part.changed.notified() => {
            termination::terminate(&[process]).await;
            return Launched::Superseded;
        }
    };
    match exit {
        Exit::Code(0) => Launched::Started,
        other => Launched::Failed(with_log_tail(&format!("{}: {other}", program.path.display()), &log, from)),
    }
}

/// Starts the programs that do not run yet, and stores their processes.
async fn start(shared: &Shared, part: &Part, record: &Record, claim: Claim, recipe: Arc<Recipe>) -> Launched {
    let mut state = part.lock().await;
    if state.record.instance != record.instance || state.record.desired_state == DesiredState::Deleted {
        return Launched::Superseded;
    }
    let log = shared.home.log(&part.id);
    state.log_from = logs::length(&log);
    let mut noted = Record { ports: claim.ports, gpus: claim.gpus, ..state.record.clone() };
    if noted != state.record {
        // The ports are stored before they are used, so that no other part gets them after a crash.
        if let Err(error) = write(&shared.home, &noted).await {
            return Launched::Failed(error.to_string());
        }
        state.record = noted.clone();
    }
    for (role, program) in recipe.programs.iter().enumerate() {
        if state.is_alive(role) {
            continue;
        }
        let (home, id) = (shared.home.hash(), part.id.clone());
        let mark = Mark { home, id, instance: record.instance, role: Some(role) };
        match Process::start(&shared.program, program, &mark, &log) {
            Ok(process) => state.running.push(Running { instance: record.instance, role: Some(role), process }),
            Err(error) => return Launched::Failed(with_log_tail(&not_started(program, &error), &log, state.log_from)),
        }
    }
    noted.launched = true;
    let own = state.running.iter().filter(|running| running.instance == record.instance);
    noted.processes = own.map(|running| running.process.identity.clone()).collect();
    // The old record suffices: processes are also found by their marks.
    if let Err(error) = write(&shared.home, &noted).await {
        tracing::warn!(part = %part.id, "cannot store its processes: {error}");
    }
    state.record = noted;
    state.recipe = Some(recipe);
    Launched::Started
}

fn not_started(program: &Program, error: &io::Error) -> String {
    format!("cannot start {}: {error}", program.path.display())
}

/// Appends the last lines of the log to a reason.
pub fn with_log_tail(why: &str, log: &Path, from: u64) -> String {
    match logs::last_lines(log, from) {
        lines if lines.is_empty() => why.to_owned(),
        lines => format!("{why}; its log ends with:\n{lines}"),
    }
}
