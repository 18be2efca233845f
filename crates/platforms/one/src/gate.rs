//! OneGate: reads and updates the attributes of a VM and its service from inside the VM. The callers define the meaning of
//! attributes.

mod snapshot;
mod update;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};

use crate::http::{Answer, Caller};
use crate::{Endpoint, HttpLimits, TransportError, Trust};

pub use snapshot::{Nic, NodeSnapshot, RoleSnapshot, ServiceSnapshot, VmSnapshot, parse_service, parse_vm};
pub use update::{MAX_UPDATE_BYTES, render_update};

/// Secret on a VM's context disk. It is never printed, not even by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct GateToken(String);

/// Why a text is not a token. The text is not part of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GateTokenError {
    #[error("the token of OneGate is empty: the VM needs TOKEN=\"YES\" in its context")]
    Empty,
    #[error("the token of OneGate is not one word of printable ASCII")]
    NotOneWord,
}

impl GateToken {
    /// Parses the contents of `token.txt`; ignores surrounding white space.
    pub fn parse(text: &str) -> Result<GateToken, GateTokenError> {
        match text.trim() {
            "" => Err(GateTokenError::Empty),
            word if word.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(GateToken(word.to_owned())),
            _ => Err(GateTokenError::NotOneWord),
        }
    }
}

impl fmt::Debug for GateToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateToken")
    }
}

/// Why a call of OneGate failed.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("OneGate did not respond")]
    Unreachable(#[source] TransportError),
    #[error("OneGate rejects the token of this VM: was the VM recreated, or its owner changed?")]
    Unauthorised,
    #[error("OneGate rejected the request ({status}): {text}")]
    Refused { status: u16, text: String },
    #[error("the response of OneGate is invalid: {0}")]
    InvalidResponse(String),
    #[error("these attributes cannot be sent: {}", .0.join("; "))]
    InvalidRequest(Vec<String>),
    #[error("OneGate took the update, but the VM does not have it: {}", .0.join(", "))]
    NotKept(Vec<String>),
}

impl GateError {
    /// A retry may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            GateError::Unreachable(_) | GateError::NotKept(_) => true,
            GateError::Refused { status, .. } => *status >= 500,
            GateError::Unauthorised | GateError::InvalidResponse(_) | GateError::InvalidRequest(_) => false,
        }
    }
}

/// Client of OneGate for one VM.
#[derive(Debug)]
pub struct OneGate {
    caller: Caller,
    vm_id: u32,
}

/// Not the form type of curl, because OneGate would parse parameters from the body and fail on percent signs.
const PLAIN: &str = "text/plain";

impl OneGate {
    pub fn new(endpoint: Endpoint, vm_id: u32, token: GateToken) -> OneGate {
        let trust = Trust::system_for(&endpoint);
        OneGate::with(endpoint, vm_id, token, trust, HttpLimits::for_gate())
    }

    pub fn with(endpoint: Endpoint, vm_id: u32, token: GateToken, trust: Trust, limits: HttpLimits) -> OneGate {
        let mut caller = Caller::new(endpoint, trust, limits);
        let token = HeaderValue::from_str(&token.0).expect("a token is printable ASCII");
        caller.add_header(HeaderName::from_static("x-onegate-token"), token);
        caller.add_header(HeaderName::from_static("x-onegate-vmid"), HeaderValue::from(vm_id));
        OneGate { caller, vm_id }
    }

    pub fn vm_id(&self) -> u32 {
        self.vm_id
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.caller.endpoint()
    }

    /// Date header of the last response.
    pub fn date(&self) -> Option<String> {
        self.caller.date()
    }

    /// Reads this VM.
    pub async fn vm(&self) -> Result<VmSnapshot, GateError> {
        parse_vm(&self.get("/vm").await?)
    }

    /// Reads a VM of the same service.
    pub async fn vm_of_service(&self, id: u32) -> Result<VmSnapshot, GateError> {
        parse_vm(&self.get(&format!("/vms/{id}")).await?)
    }

    /// Reads the service of this VM. Its nodes have ids and names, but no attributes.
    pub async fn service(&self) -> Result<ServiceSnapshot, GateError> {
        parse_service(&self.get("/service").await?)
    }

    /// Reads the service with states, attributes and addresses of all nodes. OneGate calls oned for each of them.
    pub async fn service_extended(&self) -> Result<ServiceSnapshot, GateError> {
        parse_service(&self.get("/service?extended=true").await?)
    }

    /// Sets attributes of this VM atomically.
    pub async fn update(&self, attributes: &BTreeMap<String, String>) -> Result<(), GateError> {
        let body = render_update(attributes).map_err(GateError::InvalidRequest)?;
        if body.is_empty() {
            return Ok(());
        }
        self.put("/vm", body).await
    }

    /// Sets attributes, and reads them back.
    pub async fn update_and_read_back(&self, attributes: &BTreeMap<String, String>) -> Result<VmSnapshot, GateError> {
        self.update(attributes).await?;
        let vm = self.vm().await?;
        let lost = attributes.iter().filter(|&(key, value)| vm.attribute(key).unwrap_or_default() != value);
        let lost: Vec<String> = lost.map(|(key, _)| key.clone()).collect();
        if lost.is_empty() { Ok(vm) } else { Err(GateError::NotKept(lost)) }
    }

    /// Erases an attribute. The attribute is read before, because OneGate returns 500 if it does not exist.
    pub async fn erase(&self, key: &str) -> Result<(), GateError> {
        if !update::is_key(key) {
            return Err(GateError::InvalidRequest(vec![format!("{key:?} is not the name of an attribute")]));
        }
        if self.vm().await?.attribute(key).is_none() {
            return Ok(());
        }
        self.put("/vm?type=2", key.to_owned()).await
    }

    async fn get(&self, path: &str) -> Result<Bytes, GateError> {
        let answer = self.caller.call(Method::GET, path, PLAIN, Bytes::new()).await.map_err(GateError::Unreachable)?;
        interpret(answer)
    }

    async fn put(&self, path: &str, body: String) -> Result<(), GateError> {
        let call = self.caller.call(Method::PUT, path, PLAIN, Bytes::from(body));
        interpret(call.await.map_err(GateError::Unreachable)?)?;
        Ok(())
    }
}

fn interpret(answer: Answer) -> Result<Bytes, GateError> {
    match answer.status {
        200..=299 => Ok(answer.body),
        401 => Err(GateError::Unauthorised),
        status => Err(GateError::Refused { status, text: answer.text() }),
    }
}
