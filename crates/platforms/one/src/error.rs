//! What can go wrong between a caller and the front-end, and what to do about it.

use crate::TransportError;
use crate::xmlrpc::Fault;

/// The numbers by which oned tells what kind of refusal it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    Authentication,
    Authorization,
    NoExists,
    Action,
    RpcApi,
    Internal,
    Allocate,
    Locked,
    Replication,
    Other(i64),
}

impl Code {
    pub fn from_number(number: i64) -> Code {
        match number {
            0x0100 => Code::Authentication,
            0x0200 => Code::Authorization,
            0x0400 => Code::NoExists,
            0x0800 => Code::Action,
            0x1000 => Code::RpcApi,
            0x2000 => Code::Internal,
            0x4000 => Code::Allocate,
            0x8000 => Code::Locked,
            0x1_0000 => Code::Replication,
            other => Code::Other(other),
        }
    }

    pub fn number(self) -> i64 {
        match self {
            Code::Authentication => 0x0100,
            Code::Authorization => 0x0200,
            Code::NoExists => 0x0400,
            Code::Action => 0x0800,
            Code::RpcApi => 0x1000,
            Code::Internal => 0x2000,
            Code::Allocate => 0x4000,
            Code::Locked => 0x8000,
            Code::Replication => 0x1_0000,
            Code::Other(number) => number,
        }
    }
}

/// A no, in oned's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// The object in question, where oned tells.
    pub object: Option<i64>,
}

/// Why a call of oned or OneFlow did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("OpenNebula gives no answer")]
    Unreachable(#[source] TransportError),
    #[error("OpenNebula refuses: {0}")]
    Refused(#[source] Refusal),
    #[error("OpenNebula does not understand the call")]
    Fault(#[source] Fault),
    #[error("OneFlow refuses ({status}): {text}")]
    Flow { status: u16, kind: FlowRefusal, text: String },
    /// Not oned itself, but something before it.
    #[error("{endpoint} answers {status}: {text}")]
    Http { endpoint: String, status: u16, text: String },
    #[error("the answer cannot be understood: {0}")]
    NotUnderstood(String),
    #[error("this cannot be sent: {}", .0.join("; "))]
    Unsendable(Vec<String>),
}

/// What a refusal of OneFlow means. Its statuses say otherwise: they come from numbers of oned that are swapped on the way,
/// and everything else is 500.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowRefusal {
    /// Who calls is not known.
    Authentication,
    /// Who calls is known, and may not.
    Authorization,
    NoExists,
    /// The body makes no sense.
    Invalid,
    /// Not in the present state of the service; later perhaps.
    State,
    /// There is nothing to do.
    Already,
    Internal,
}

impl Error {
    /// The object is not there.
    pub fn is_absent(&self) -> bool {
        match self {
            Error::Refused(refusal) => refusal.code == Code::NoExists,
            Error::Flow { kind, .. } => *kind == FlowRefusal::NoExists,
            _ => false,
        }
    }

    /// Asking again later may help, without anybody doing anything.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Unreachable(_) => true,
            Error::Refused(refusal) => {
                matches!(refusal.code, Code::Replication | Code::Locked) || is_election(&refusal.message)
            }
            Error::Flow { kind, .. } => matches!(kind, FlowRefusal::State | FlowRefusal::Internal),
            // A proxy whose front-end is being started.
            Error::Http { status, .. } => *status >= 500,
            Error::Fault(_) | Error::NotUnderstood(_) | Error::Unsendable(_) => false,
        }
    }
}

fn is_election(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["no leader", "election", "cannot contact leader", "replicat"].iter().any(|word| message.contains(word))
}

/// What is wrong, and what to do: for people.
pub fn explain(error: &Error) -> String {
    match error {
        Error::Unreachable(source) => match std::error::Error::source(source) {
            Some(cause) => format!("{source}: {cause}. Is the endpoint right, and does the front-end run?"),
            None => format!("{source}. Is the endpoint right, and does the front-end run?"),
        },
        Error::Refused(refusal) => explain_refusal(refusal),
        Error::Fault(fault) => {
            format!("{}. The front-end's version may not have this call; see `oned --version`.", stop(&fault.text))
        }
        Error::Flow { kind, text, .. } => explain_flow(*kind, text),
        Error::Http { .. } => format!("{error}. Does the endpoint belong to OpenNebula, with its path (/RPC2)?"),
        Error::NotUnderstood(what) => {
            format!("the answer cannot be understood: {what}. Does the endpoint belong to OpenNebula?")
        }
        Error::Unsendable(problems) => problems.join("; "),
    }
}

/// Explains a message of oned from the log of a service.
pub fn explain_message(message: &str) -> String {
    let said = stop(message);
    quota_advice(&said).unwrap_or(said)
}

fn quota_advice(said: &str) -> Option<String> {
    let quota = quota_in(said)?;
    Some(format!(
        "the quota for {quota} is used up ({said}). `oneuser show` and `onegroup show` tell limits and use; ask the \
         administrator for more (`oneuser quota`, `onegroup quota`), or take away what is not needed."
    ))
}

const CREDENTIALS: &str = "OpenNebula does not know this user or password. Look into the one_auth file of the site: it holds \
                           user:password, or user:token of `oneuser token-create`, and tokens expire.";
const PERMISSION: &str = "The owner of the object can grant it (`onetemplate chmod`, `onevm chmod`, ...), or an \
                          administrator by `oneacl create`.";
const LOCKED: &str = "Somebody locked it on purpose: unlock it (`onevm unlock`, `onetemplate unlock`, ...) or wait.";

fn explain_refusal(refusal: &Refusal) -> String {
    let said = stop(strip_method(&refusal.message));
    let lower = said.to_ascii_lowercase();
    if let Some(advice) = quota_advice(&said) {
        return advice;
    }
    let advice = match refusal.code {
        Code::Authentication => return CREDENTIALS.to_owned(),
        Code::Locked => LOCKED,
        // Locks are told as a lack of rights.
        _ if lower.contains("is locked") => LOCKED,
        Code::Authorization => PERMISSION,
        Code::NoExists => {
            "It was deleted, or belongs to another zone, or its id is wrong: list what there is (`onevm list`, \
                           `onetemplate list`, `oneimage list`, `onevnet list`)."
        }
        Code::Action
            if lower.contains("using it") || lower.contains("leases in use") || lower.contains("with leases") =>
        {
            "It is in use: end the VMs that use it first."
        }
        Code::Action => "The object is in a state in which this cannot be done; look at it again in a while.",
        Code::RpcApi => "The call was not made as this version of OpenNebula expects it.",
        Code::Allocate if lower.contains("already taken") => "Choose another name, or delete the other object first.",
        Code::Allocate => "OpenNebula did not make it; the reason is in its words.",
        Code::Internal if is_election(&said) => "The front-ends have no leader at the moment; it is tried again.",
        Code::Internal if lower.contains("parse error") => "The template cannot be read by OpenNebula.",
        Code::Internal => "The reason is in the front-end's /var/log/one/oned.log.",
        Code::Replication => "The front-ends are not in step at the moment; it is tried again.",
        Code::Other(_) => "This kind of refusal is not known; see /var/log/one/oned.log of the front-end.",
    };
    format!("{said}. {advice}")
}

fn explain_flow(kind: FlowRefusal, text: &str) -> String {
    let said = stop(strip_method(text));
    if let Some(advice) = quota_advice(&said) {
        return advice;
    }
    let advice = match kind {
        FlowRefusal::Authentication => return CREDENTIALS.to_owned(),
        FlowRefusal::Authorization => PERMISSION,
        FlowRefusal::NoExists => {
            "The service or its template was deleted: see `oneflow list` and `oneflow-template list`."
        }
        FlowRefusal::Invalid => "OneFlow does not take this description of a service.",
        FlowRefusal::State => "It is tried again when the service is at rest; one that failed needs `oneflow recover`.",
        FlowRefusal::Already => "There is nothing to do.",
        FlowRefusal::Internal => "The reason may be in the front-end's /var/log/one/oneflow.log.",
    };
    format!("{said}. {advice}")
}

/// Which quota a refusal is about, in words.
fn quota_in(message: &str) -> Option<String> {
    let lower = message.to_ascii_lowercase();
    if !lower.contains("quota") {
        return None;
    }
    let kinds = [
        ("running_memory", "memory of running VMs"),
        ("running_cpu", "CPU of running VMs"),
        ("running_vms", "running VMs"),
        ("system_disk_size", "disk of VMs"),
        ("pci", "PCI devices"),
        ("memory", "memory"),
        ("cpu", "CPU"),
        ("vms", "VMs"),
        ("leases", "addresses of a network"),
        ("rvms", "VMs of an image"),
        ("images", "images in a datastore"),
        ("size", "space in a datastore"),
    ];
    let found = kinds.iter().find(|(key, _)| lower.contains(key)).map_or("something", |(_, words)| words);
    Some(found.to_owned())
}

/// `[one.vm.info] Error ...` is of use in logs only.
fn strip_method(message: &str) -> &str {
    match message.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((method, rest)) if !method.contains(' ') => rest,
        _ => message,
    }
}

fn stop(message: &str) -> String {
    message.trim().trim_end_matches(['.', ',']).to_owned()
}
