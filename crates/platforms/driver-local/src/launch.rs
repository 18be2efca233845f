//! The start of a part: everything that must be there before its programs, then the programs. Each step may be repeated after
//! a crash anywhere.

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
use crate::process::{Ending, Process};
use crate::recipe::{Place, Probe, Program, Recipe, admin_token, recipe};
use crate::record::{Record, Wish};
use crate::world::{Claim, World};
use crate::{ending, enrolment, logs, tls};

/// What came of it.
pub enum Launched {
    /// Its programs run.
    Yes,
    /// Something else is wanted meanwhile.
    Turned,
    Failed(String),
}

pub async fn launch(world: &Arc<World>, part: &Part) -> Launched {
    let (record, is_new, is_found) = {
        let state = part.lock().await;
        (state.record.clone(), state.is_new, state.has(0))
    };
    let Some(desired) = &record.desired else {
        return Launched::Failed("nobody knows what it was to be".to_owned());
    };
    // What runs already holds its ports, and was prepared for.
    let prepared = match is_found {
        true => present(world, &record, &desired.spec),
        false => prepare(world, &record, &desired.spec, is_new).await,
    };
    let (claim, recipe) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return Launched::Failed(why),
    };
    let recipe = Arc::new(recipe);
    if !is_found {
        for step in recipe.after.iter().chain(&recipe.before) {
            match run(world, part, &record, step).await {
                Launched::Yes => {}
                other => return other,
            }
        }
    }
    start(world, part, &record, claim, recipe).await
}

/// The recipe of a part that was started, as it was then.
pub fn present(world: &World, record: &Record, spec: &Spec) -> Result<(Claim, Recipe), String> {
    let claim = Claim { ports: record.ports, gpus: record.gpus.clone() };
    let place = place(world, &record.id, spec, &claim);
    let recipe = recipe(spec, &place).map_err(|problems| problems.join("; "))?;
    Ok((claim, recipe))
}

async fn prepare(world: &Arc<World>, record: &Record, spec: &Spec, is_new: bool) -> Result<(Claim, Recipe), String> {
    if !is_new && !apps_outlive(spec) {
        ending::end_leftovers(world, &record.id).await;
    }
    let (arranged, id, of) = (Arc::clone(world), record.id.clone(), spec.clone());
    let had = Claim { ports: record.ports, gpus: record.gpus.clone() };
    let arrange = move || arrange(&arranged, &id, &of, &had).map_err(io::Error::other);
    let claim = blocking(arrange).await.map_err(|error| error.to_string())?;
    if let Spec::Node(node) = spec
        && node.node_auth
    {
        enrolment::enrol(world, &record.id).await?;
    }
    let place = place(world, &record.id, spec, &claim);
    let recipe = recipe(spec, &place).map_err(|problems| problems.join("; "))?;
    let files = recipe.files.clone();
    let write = move || files.iter().try_for_each(|(path, text)| private::replace(path, text.as_bytes()));
    blocking(write).await.map_err(|error| error.to_string())?;
    Ok((claim, recipe))
}

/// Directories, log, ports, certificates.
fn arrange(world: &World, id: &ResourceId, spec: &Spec, had: &Claim) -> Result<Claim, String> {
    let home = &world.home;
    let told = |error: io::Error| error.to_string();
    private::make_directory(&home.state(id)).map_err(told)?;
    if let Spec::Coordinator(spec) = spec {
        private::make_directory(&home.models(&id.federation)).map_err(told)?;
        if spec.containers == Some(Containers::No) && spec.resources != Resources::default() {
            tracing::warn!(part = %id, "coordinator.resources has no effect where its SuperLink is a process");
        }
        if spec.runtime == Runtime::Trellis {
            provide_token(&admin_token(spec, &home.state(id))).map_err(told)?;
        }
    }
    logs::rotate(&home.log(id)).map_err(|error| format!("its log cannot be put aside: {error}"))?;
    tls::prepare(home, &id.federation, spec)?;
    world.claim(id, spec, had, listen(spec))
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

fn place(world: &World, id: &ResourceId, spec: &Spec, claim: &Claim) -> Place {
    let home = &world.home;
    let has_key = matches!(spec, Spec::Node(spec) if spec.node_auth);
    Place {
        id: id.clone(),
        program: world.program.clone(),
        directory: home.part(id),
        state: home.state(id),
        shared: home.shared(),
        models: home.models(&id.federation),
        ports: claim.ports,
        listen: listen(spec),
        tls: tls::files(home, &id.federation, spec),
        node_key: has_key.then(|| home.node_key(id)),
        gpus: claim.gpus.clone(),
        coordinator_http: coordinator_http(world, id),
    }
}

fn coordinator_http(world: &World, id: &ResourceId) -> Option<SocketAddr> {
    let coordinator = world.coordinator(&id.federation)?;
    // Who is just being changed is asked by nobody.
    match &coordinator.peek()?.recipe.as_ref()?.probe {
        Probe::SuperLink { address, .. } => Some(*address),
        _ => None,
    }
}

/// This machine's own address, unless others are told of another.
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

/// Ours goes on where it was, and its ServerApps wait for it.
pub fn apps_outlive(spec: &Spec) -> bool {
    match spec {
        Spec::Coordinator(spec) => {
            spec.runtime == Runtime::Trellis && matches!(spec.persistence, Persistence::Disk { .. })
        }
        Spec::Node(_) => false,
    }
}

/// Runs a program to its end, unless something else is wanted meanwhile.
async fn run(world: &World, part: &Part, record: &Record, program: &Program) -> Launched {
    let log = world.home.log(&part.id);
    let from = logs::length(&log);
    let mark = Mark { home: world.home.hash(), id: part.id.clone(), instance: record.instance, role: None };
    let process = match Process::start(&world.program, program, &mark, &log) {
        Ok(process) => process,
        Err(error) => return Launched::Failed(not_started(program, &error)),
    };
    let ending = tokio::select! {
        ending = process.ended() => ending,
        () = part.changed.notified() => {
            ending::end(&[process]).await;
            return Launched::Turned;
        }
    };
    match ending {
        Ending::Exited(0) => Launched::Yes,
        other => Launched::Failed(told(&format!("{}: {other}", program.path.display()), &log, from)),
    }
}

/// Starts what does not run yet, and notes who it is.
async fn start(world: &World, part: &Part, record: &Record, claim: Claim, recipe: Arc<Recipe>) -> Launched {
    let mut state = part.lock().await;
    if state.record.instance != record.instance || state.record.wish == Wish::Gone {
        return Launched::Turned;
    }
    let log = world.home.log(&part.id);
    state.log_from = logs::length(&log);
    let mut noted = Record { ports: claim.ports, gpus: claim.gpus, ..state.record.clone() };
    if noted != state.record {
        // Before anybody is told of a port, it is known to be the part's own.
        if let Err(error) = write(&world.home, &noted).await {
            return Launched::Failed(error.to_string());
        }
        state.record = noted.clone();
    }
    for (role, program) in recipe.programs.iter().enumerate() {
        if state.has(role) {
            continue;
        }
        let (home, id) = (world.home.hash(), part.id.clone());
        let mark = Mark { home, id, instance: record.instance, role: Some(role) };
        match Process::start(&world.program, program, &mark, &log) {
            Ok(process) => state.running.push(Running { instance: record.instance, role: Some(role), process }),
            Err(error) => return Launched::Failed(told(&not_started(program, &error), &log, state.log_from)),
        }
    }
    noted.launched = true;
    let own = state.running.iter().filter(|running| running.instance == record.instance);
    noted.processes = own.map(|running| running.process.identity.clone()).collect();
    // Who reads the old record finds the processes by their marks.
    if let Err(error) = write(&world.home, &noted).await {
        tracing::warn!(part = %part.id, "its processes are not noted: {error}");
    }
    state.record = noted;
    state.recipe = Some(recipe);
    Launched::Yes
}

fn not_started(program: &Program, error: &io::Error) -> String {
    format!("{} cannot be started: {error}", program.path.display())
}

/// A reason, with the end of the log.
pub fn told(why: &str, log: &Path, from: u64) -> String {
    match logs::last_lines(log, from) {
        lines if lines.is_empty() => why.to_owned(),
        lines => format!("{why}; its log ends with:\n{lines}"),
    }
}
