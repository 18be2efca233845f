//! What the programs are called with, by release. An argument that the user gives is theirs: it is not given twice.

use trellis_flower::Program;
use trellis_flower::changes::{
    APPS_BY_HTTP, APPS_IN_DATABASE, CONTROL_BY_HTTP, FLEET_BY_HTTP, NO_SUPEREXEC_PLUGINS, RUNTIME_API_ADDRESS,
    SUPEREXEC_TLS,
};

use crate::federation::Isolation;

pub const SERVERAPPIO_PORT: u16 = 9091;
pub const FLEET_PORT: u16 = 9092;
pub const CONTROL_PORT: u16 = 9093;
pub const CLIENTAPPIO_PORT: u16 = 9094;
pub const HTTP_PORT: u16 = 8000;
/// Of the gRPC health protocol: of the first program of a pod, and of the SuperExec beside it.
pub const HEALTH_PORT: u16 = 9098;
pub const SUPEREXEC_HEALTH_PORT: u16 = 9099;
/// Of the programs of Trellis, for Prometheus.
pub const METRICS_PORT: u16 = 9464;

/// How a program is reached, or reaches others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel<'f> {
    Plain,
    /// TLS with files that are mounted for it.
    Tls(Files<'f>),
    /// TLS as the user's own arguments say.
    Theirs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files<'f> {
    pub certificate: &'f str,
    pub key: &'f str,
    pub authority: &'f str,
}

/// Arguments in the making; what the user gave stays last, and is not said twice.
#[derive(Debug)]
pub struct Arguments<'u> {
    list: Vec<String>,
    given: &'u [String],
}

impl<'u> Arguments<'u> {
    pub fn beside(given: &'u [String]) -> Arguments<'u> {
        Arguments { list: Vec::new(), given }
    }

    pub fn flag(&mut self, name: &str) {
        if !gives(self.given, name) {
            self.list.push(name.to_owned());
        }
    }

    pub fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        if !gives(self.given, name) {
            self.list.push(format!("{name}={value}"));
        }
    }

    pub fn finish(mut self) -> Vec<String> {
        self.list.extend_from_slice(self.given);
        self.list
    }
}

/// Whether one of the arguments is this flag, with or without a value.
pub fn gives(arguments: &[String], flag: &str) -> bool {
    arguments.iter().any(|argument| argument == flag || value_in(argument, flag).is_some())
}

/// The value of the last `--flag value` or `--flag=value`.
pub fn value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    let apart =
        arguments.windows(2).enumerate().filter(|(_, pair)| pair[0] == flag).map(|(at, pair)| (at, pair[1].as_str()));
    let joined = arguments.iter().enumerate().filter_map(|(at, argument)| Some((at, value_in(argument, flag)?)));
    apart.chain(joined).max_by_key(|(at, _)| *at).map(|(_, value)| value)
}

fn value_in<'a>(argument: &'a str, flag: &str) -> Option<&'a str> {
    argument.strip_prefix(flag)?.strip_prefix('=')
}

/// The port of an address that the user gave, or the usual one.
pub fn port(arguments: &[String], flag: &str, usual: u16) -> u16 {
    let given = value(arguments, flag).and_then(|address| address.rsplit(':').next()?.parse().ok());
    given.unwrap_or(usual)
}

#[derive(Debug, Clone, Copy)]
pub struct SuperLink<'s> {
    pub program: Program,
    pub isolation: Isolation,
    pub channel: Channel<'s>,
    pub node_auth: bool,
    /// A directory that outlives the program.
    pub state: Option<&'s str>,
    pub admin_token: Option<&'s str>,
    /// The name of its Service with the namespace: `NAME.NAMESPACE`.
    pub service: &'s str,
    pub metrics: bool,
    pub json_logs: bool,
    pub given: &'s [String],
}

pub fn superlink(call: &SuperLink<'_>) -> Vec<String> {
    let mut arguments = Arguments::beside(call.given);
    arguments.set("--isolation", isolation(call.isolation));
    match call.channel {
        Channel::Plain => arguments.flag("--insecure"),
        Channel::Theirs => {}
        Channel::Tls(files) => {
            arguments.set("--ssl-certfile", files.certificate);
            arguments.set("--ssl-keyfile", files.key);
            arguments.set("--ssl-ca-certfile", files.authority);
        }
    }
    match call.program {
        Program::Trellis => trellis_superlink(&mut arguments, call),
        program => flower_superlink(&mut arguments, program, call),
    }
    if call.node_auth {
        arguments.flag("--enable-supernode-auth");
    }
    arguments.finish()
}

fn flower_superlink(arguments: &mut Arguments<'_>, program: Program, call: &SuperLink<'_>) {
    if program.since(APPS_BY_HTTP) {
        // The default is this machine only.
        arguments.set("--host", "0.0.0.0");
    }
    match call.channel {
        Channel::Tls(files) if apps_have_own_certificate(program, call.isolation) => {
            arguments.set("--appio-ssl-certfile", files.certificate);
            arguments.set("--appio-ssl-keyfile", files.key);
            arguments.set("--appio-ssl-ca-certfile", files.authority);
        }
        channel if program.before(APPS_BY_HTTP) && !serves_serverappio(program, call.isolation, channel) => {
            // It asks nobody who they are: nobody outside of the pod shall reach it.
            arguments.set("--serverappio-api-address", format_args!("127.0.0.1:{SERVERAPPIO_PORT}"));
        }
        _ => {}
    }
    if let Some(directory) = call.state {
        arguments.set("--database", format_args!("{directory}/superlink.db"));
        if program.before(APPS_IN_DATABASE) {
            arguments.set("--storage-dir", format_args!("{directory}/apps"));
        }
    }
    if !superlink_answers_http(program) {
        arguments.set("--health-server-address", format_args!("0.0.0.0:{HEALTH_PORT}"));
    }
}

fn trellis_superlink(arguments: &mut Arguments<'_>, call: &SuperLink<'_>) {
    if call.channel == Channel::Plain {
        arguments.flag("--allow-insecure-network");
        arguments.set("--account-auth", "off");
        arguments.set("--host", "0.0.0.0");
        arguments.set("--control-api-address", format_args!("0.0.0.0:{CONTROL_PORT}"));
        arguments.set("--fleet-api-address", format_args!("0.0.0.0:{FLEET_PORT}"));
        // With TLS the certificate has this name. `NAME` and `NAME.NAMESPACE.svc` are allowed without a flag.
        arguments.set("--allowed-host", call.service);
    } else if let Some(file) = call.admin_token {
        arguments.set("--admin-token-file", file);
    }
    if call.isolation == Isolation::Process {
        // The SuperExec container runs as another user, and the pod's network has no other programs.
        arguments.set("--serverappio-trust", "machine");
    }
    if let Some(directory) = call.state {
        arguments.set("--state-dir", directory);
    }
    trellis_sandbox(arguments, call.isolation);
    trellis_monitoring(arguments, call.metrics, call.json_logs);
}

/// Not `required`, because the kernels of the cluster's machines are unknown here. Users can set it.
fn trellis_sandbox(arguments: &mut Arguments<'_>, isolation: Isolation) {
    if isolation == Isolation::Subprocess {
        arguments.set("--sandbox", "best-effort");
    }
}

fn trellis_monitoring(arguments: &mut Arguments<'_>, metrics: bool, json_logs: bool) {
    if metrics {
        arguments.set("--metrics-address", format_args!("0.0.0.0:{METRICS_PORT}"));
    }
    if json_logs {
        arguments.set("--log-format", "json");
    }
}

/// Whether `/health` of the HTTP API tells how the SuperLink is. Before 1.40 it is that of apps alone.
pub fn superlink_answers_http(program: Program) -> bool {
    program.is_trellis() || program.since(FLEET_BY_HTTP)
}

/// The API for apps has certificate flags of its own in 1.30 to 1.36. In 1.35 and 1.36 it is the HTTP port, which others reach
/// too; before, it is worth it only where a SuperExec calls it.
fn apps_have_own_certificate(program: Program, isolation: Isolation) -> bool {
    let at_all = program.since(SUPEREXEC_TLS) && program.before(CONTROL_BY_HTTP);
    at_all && (isolation == Isolation::Process || program.since(APPS_BY_HTTP))
}

/// Whether the API for apps can be reached from other pods, at a port of its own.
pub fn serves_serverappio(program: Program, isolation: Isolation, channel: Channel<'_>) -> bool {
    let own_port = match program {
        Program::Trellis => false,
        Program::Unknown => true,
        Program::Flower(release) => release < APPS_BY_HTTP,
    };
    let open = !matches!(channel, Channel::Tls(_)) || apps_have_own_certificate(program, isolation);
    own_port && isolation == Isolation::Process && open
}

#[derive(Debug, Clone, Copy)]
pub struct SuperNode<'s> {
    pub program: Program,
    /// `name:port`.
    pub superlink: &'s str,
    pub isolation: Isolation,
    pub channel: Channel<'s>,
    pub key: Option<&'s str>,
    pub state: &'s str,
    /// What a node of Trellis is called in reports.
    pub name: &'s str,
    pub metrics: bool,
    pub json_logs: bool,
    pub given: &'s [String],
    pub node_config: Option<&'s str>,
}

pub fn supernode(call: &SuperNode<'_>) -> Vec<String> {
    let mut arguments = Arguments::beside(call.given);
    arguments.set("--superlink", call.superlink);
    arguments.set("--isolation", isolation(call.isolation));
    match call.channel {
        Channel::Plain => arguments.flag("--insecure"),
        Channel::Theirs => {}
        Channel::Tls(files) => arguments.set("--root-certificates", files.authority),
    }
    // Who reaches it can take work from the node. Apps and the SuperExec are in the same pod.
    let unknown_with_superexec = call.program == Program::Unknown && call.isolation == Isolation::Process;
    if unknown_with_superexec || call.program.before(APPS_BY_HTTP) {
        arguments.set("--clientappio-api-address", format_args!("127.0.0.1:{CLIENTAPPIO_PORT}"));
    }
    if let Some(key) = call.key {
        arguments.set("--auth-supernode-private-key", key);
    }
    if call.program.is_trellis() {
        arguments.set("--name", call.name);
        arguments.set("--state-dir", call.state);
        trellis_sandbox(&mut arguments, call.isolation);
        trellis_monitoring(&mut arguments, call.metrics, call.json_logs);
    }
    arguments.set("--health-server-address", format_args!("0.0.0.0:{HEALTH_PORT}"));
    let mut list = arguments.finish();
    list.extend(call.node_config.map(|config| format!("--node-config={config}")));
    list
}

/// Whose apps a SuperExec starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apps {
    Server,
    Client,
}

#[derive(Debug, Clone, Copy)]
pub struct SuperExec<'s> {
    pub program: Program,
    pub apps: Apps,
    /// What it serves, in the same pod, and how that is called.
    pub host: Program,
    pub channel: Channel<'s>,
    pub host_given: &'s [String],
    pub given: &'s [String],
}

pub fn superexec(call: &SuperExec<'_>) -> Vec<String> {
    let mut arguments = Arguments::beside(call.given);
    if !call.program.since(NO_SUPEREXEC_PLUGINS) {
        let apps = match call.apps {
            Apps::Server => "serverapp",
            Apps::Client => "clientapp",
        };
        arguments.set("--plugin-type", apps);
    }
    let flag = if call.program.since(RUNTIME_API_ADDRESS) { "--runtime-api-address" } else { "--appio-api-address" };
    arguments.set(flag, format_args!("localhost:{}", apps_port(call)));
    if !gives(call.given, "--insecure") && !gives(call.given, "--root-certificates") {
        match authority(call) {
            Some(file) => arguments.set("--root-certificates", file),
            None => arguments.flag("--insecure"),
        }
    }
    arguments.set("--health-server-address", format_args!("0.0.0.0:{SUPEREXEC_HEALTH_PORT}"));
    arguments.finish()
}

/// Whether a SuperExec is told whom to trust, and so must start anew when that changes.
pub fn superexec_trusts(call: &SuperExec<'_>) -> bool {
    authority(call).is_some()
}

fn apps_port(call: &SuperExec<'_>) -> u16 {
    match call.apps {
        Apps::Client if gives(call.host_given, "--port") => port(call.host_given, "--port", CLIENTAPPIO_PORT),
        Apps::Client => port(call.host_given, "--clientappio-api-address", CLIENTAPPIO_PORT),
        Apps::Server if call.program.since(APPS_BY_HTTP) => port(call.host_given, "--port", HTTP_PORT),
        Apps::Server => port(call.host_given, "--serverappio-api-address", SERVERAPPIO_PORT),
    }
}

/// The file with whom to trust, where what the SuperExec calls has TLS. Where it has none, the two talk inside of their pod: the
/// API of a node is for this pod alone, that of a SuperLink before 1.30 knows no TLS.
fn authority<'s>(call: &SuperExec<'s>) -> Option<&'s str> {
    if !call.program.since(SUPEREXEC_TLS) {
        return None;
    }
    let theirs = ["--appio-ssl-ca-certfile", "--ssl-ca-certfile"].map(|flag| value(call.host_given, flag));
    let [own, shared] = theirs;
    if call.apps == Apps::Client {
        return own.or(shared);
    }
    match (call.channel, call.host) {
        (Channel::Plain, _) => None,
        (Channel::Theirs, Program::Trellis) => shared.filter(|_| call.program.since(APPS_BY_HTTP)),
        (Channel::Theirs, host) if host.since(CONTROL_BY_HTTP) => shared,
        (Channel::Theirs, _) => own,
        (Channel::Tls(files), Program::Trellis) => call.program.since(APPS_BY_HTTP).then_some(files.authority),
        (Channel::Tls(files), host) => host.since(SUPEREXEC_TLS).then_some(files.authority),
    }
}

fn isolation(mode: Isolation) -> &'static str {
    match mode {
        Isolation::Process => "process",
        Isolation::Subprocess => "subprocess",
    }
}
