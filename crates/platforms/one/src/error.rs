//! Errors of calls to the front-end, with advice.

use crate::TransportError;
use crate::xmlrpc::Fault;

/// Error codes of oned.
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

/// An error response of oned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// The object of the call, if oned reports it.
    pub object: Option<i64>,
}

/// Why a call of oned or OneFlow failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("OpenNebula did not respond")]
    Unreachable(#[source] TransportError),
    #[error("OpenNebula rejected the call: {0}")]
    Refused(#[source] Refusal),
    #[error("OpenNebula does not support the call")]
    Fault(#[source] Fault),
    #[error("OneFlow rejected the request ({status}): {text}")]
    Flow { status: u16, kind: FlowRefusal, text: String },
    /// A response of another server, for example a proxy.
    #[error("{endpoint} answers {status}: {text}")]
    Http { endpoint: String, status: u16, text: String },
    #[error("the response is invalid: {0}")]
    InvalidResponse(String),
    #[error("the request is invalid: {}", .0.join("; "))]
    InvalidRequest(Vec<String>),
}

/// Meaning of an OneFlow error. The HTTP status is not sufficient: OneFlow derives it from swapped error codes of oned, and
/// reports all other errors as 500.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowRefusal {
    /// The caller is not authenticated.
    Authentication,
    /// The caller is authenticated, but not authorised.
    Authorization,
    NoExists,
    /// The body is invalid.
    Invalid,
    /// Not possible in the current state of the service.
    State,
    /// The service already has the requested state.
    Already,
    Internal,
}

impl Error {
    /// The object does not exist.
    pub fn is_absent(&self) -> bool {
        match self {
            Error::Refused(refusal) => refusal.code == Code::NoExists,
            Error::Flow { kind, .. } => *kind == FlowRefusal::NoExists,
            _ => false,
        }
    }

    /// A retry may succeed without any other action.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Unreachable(_) => true,
            Error::Refused(refusal) => {
                matches!(refusal.code, Code::Replication | Code::Locked) || is_election(&refusal.message)
            }
            Error::Flow { kind, .. } => matches!(kind, FlowRefusal::State | FlowRefusal::Internal),
            // A proxy whose front-end is starting.
            Error::Http { status, .. } => *status >= 500,
            Error::Fault(_) | Error::InvalidResponse(_) | Error::InvalidRequest(_) => false,
        }
    }
}

fn is_election(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["no leader", "election", "cannot contact leader", "replicat"].iter().any(|word| message.contains(word))
}

/// The error with advice, for users.
pub fn explain(error: &Error) -> String {
    match error {
        Error::Unreachable(source) => match std::error::Error::source(source) {
            Some(cause) => {
                format!("{source}: {cause}. Check that the endpoint is correct and the front-end is running.")
            }
            None => format!("{source}. Check that the endpoint is correct and the front-end is running."),
        },
        Error::Refused(refusal) => explain_refusal(refusal),
        Error::Fault(fault) => {
            format!("{}. The front-end's version may not support this call; see `oned --version`.", stop(&fault.text))
        }
        Error::Flow { kind, text, .. } => explain_flow(*kind, text),
        Error::Http { .. } => format!("{error}. Does the endpoint belong to OpenNebula, with its path (/RPC2)?"),
        Error::InvalidResponse(what) => {
            format!("the response is invalid: {what}. Does the endpoint belong to OpenNebula?")
        }
        Error::InvalidRequest(problems) => problems.join("; "),
    }
}

/// Adds advice to a message of oned in the log of a service.
pub fn explain_message(message: &str) -> String {
    let said = stop(message);
    quota_advice(&said).unwrap_or(said)
}

fn quota_advice(said: &str) -> Option<String> {
    let quota = quota_in(said)?;
    Some(format!(
        "the quota for {quota} is used up ({said}). `oneuser show` and `onegroup show` print limits and usage; ask the \
         administrator for more (`oneuser quota`, `onegroup quota`), or delete unused objects."
    ))
}

const CREDENTIALS: &str = "OpenNebula does not know this user or password. Look into the one_auth file of the site: it holds \
                           user:password, or user:token of `oneuser token-create`, and tokens expire.";
const PERMISSION: &str = "The owner of the object can grant it (`onetemplate chmod`, `onevm chmod`, ...), or an \
                          administrator by `oneacl create`.";
const LOCKED: &str = "The object is locked: unlock it (`onevm unlock`, `onetemplate unlock`, ...) or wait.";

fn explain_refusal(refusal: &Refusal) -> String {
    let said = stop(strip_method(&refusal.message));
    let lower = said.to_ascii_lowercase();
    if let Some(advice) = quota_advice(&said) {
        return advice;
    }
    let advice = match refusal.code {
        Code::Authentication => return CREDENTIALS.to_owned(),
        Code::Locked => LOCKED,
        // oned reports locks as missing rights.
        _ if lower.contains("is locked") => LOCKED,
        Code::Authorization => PERMISSION,
        Code::NoExists => {
            "It was deleted, or belongs to another zone, or its id is wrong: list what there is (`onevm list`, \
                           `onetemplate list`, `oneimage list`, `onevnet list`)."
        }
        Code::Action
            if lower.contains("using it") || lower.contains("leases in use") || lower.contains("with leases") =>
        {
            "The object is in use: terminate the VMs that use it first."
        }
        Code::Action => "The state of the object does not allow this; retry later.",
        Code::RpcApi => "This version of OpenNebula expects other parameters.",
        Code::Allocate if lower.contains("already taken") => "Choose another name, or delete the other object first.",
        Code::Allocate => "OpenNebula did not create the object; see its message.",
        Code::Internal if is_election(&said) => "The front-ends have no leader at the moment; the call is retried.",
        Code::Internal if lower.contains("parse error") => "OpenNebula cannot parse the template.",
        Code::Internal => "The reason is in the front-end's /var/log/one/oned.log.",
        Code::Replication => "The front-ends are not synchronised at the moment; the call is retried.",
        Code::Other(_) => "The error code is unknown; see /var/log/one/oned.log of the front-end.",
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
        FlowRefusal::Invalid => "OneFlow rejects this service description.",
        FlowRefusal::State => {
            "The request is retried when the service is RUNNING; a failed service needs `oneflow recover`."
        }
        FlowRefusal::Already => "There is nothing to do.",
        FlowRefusal::Internal => "The reason may be in the front-end's /var/log/one/oneflow.log.",
    };
    format!("{said}. {advice}")
}

/// Name of the exceeded quota.
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

/// Removes the method from a message: `[one.vm.info] Error ...`.
fn strip_method(message: &str) -> &str {
    match message.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((method, rest)) if !method.contains(' ') => rest,
        _ => message,
    }
}

fn stop(message: &str) -> String {
    message.trim().trim_end_matches(['.', ',']).to_owned()
}
