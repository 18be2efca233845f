//! Errors from a SuperLink over either transport, and their meaning for a node. Texts and numbers differ between releases:
//! those up to 1.35 have everything in the text, later ones have numbers and less text.

use serde::Deserialize;

use super::error::{FleetError, Remedy};
use super::rpc::{About, Rpc};

/// Characters of an unexpected response in an error.
const QUOTED_CHARS: usize = 200;

/// Flower's numbers.
const KEY_IN_USE: u32 = 23;
const REGISTRATION_DISABLED: u32 = 2001;

/// Errors of both transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not now.
    Busy,
    /// Not to this node, or not for this run.
    Denied,
    /// The call lacks a valid signature.
    Unauthenticated,
    /// Not as things are.
    Precondition,
    /// There is no such call.
    NotServed,
    /// The SuperLink failed.
    Fault,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub kind: Kind,
    /// Flower's own number for it.
    number: Option<u32>,
    pub text: String,
}

/// Errors as Flower writes them, over gRPC with other names than over HTTP.
#[derive(Deserialize)]
struct Told {
    code: Option<u32>,
    #[serde(alias = "public_message")]
    detail: String,
    #[serde(alias = "public_details")]
    extra: Option<String>,
}

impl Told {
    fn read(text: &[u8]) -> Option<(Option<u32>, String)> {
        let told: Told = serde_json::from_slice(text).ok()?;
        let text = match told.extra {
            Some(extra) => format!("{} {extra}", told.detail),
            None => told.detail,
        };
        Some((told.code, text))
    }
}

impl Refusal {
    /// From the status of a gRPC call.
    pub fn grpc(code: u16, message: &str) -> Refusal {
        let kind = match code {
            // The number of calls is limited, and so is the size of one; only the former passes.
            8 if message.contains("larger than") => Kind::Other,
            1 | 4 | 8 | 10 | 14 => Kind::Busy,
            2 | 13 | 15 => Kind::Fault,
            7 => Kind::Denied,
            9 => Kind::Precondition,
            12 => Kind::NotServed,
            16 => Kind::Unauthenticated,
            _ => Kind::Other,
        };
        let (number, text) = Told::read(message.as_bytes()).unwrap_or_else(|| (None, message.to_owned()));
        Refusal { kind, number, text: if text.is_empty() { format!("gRPC status {code}") } else { text } }
    }

    /// From an answer over HTTP.
    pub fn http(status: u16, body: &[u8]) -> Refusal {
        let (number, text) = match Told::read(body) {
            Some((number, text)) => (number, text),
            None => (None, format!("HTTP status {status}{}", quote(body))),
        };
        let kind = match status {
            408 | 429 | 502..=504 => Kind::Busy,
            401 => Kind::Unauthenticated,
            // A proxy may deny as well, without reference to a run.
            403 if number.is_some() => Kind::Denied,
            404 | 405 | 501 if number.is_none() => Kind::NotServed,
            412 => Kind::Precondition,
            500 => Kind::Fault,
            _ => Kind::Other,
        };
        Refusal { kind, number, text }
    }

    /// Whether the key is registered already, or was once.
    pub fn is_key_in_use(&self) -> bool {
        self.number == Some(KEY_IN_USE) || self.text.contains("Public key already in use")
    }

    pub fn is_not_served(&self) -> bool {
        self.kind == Kind::NotServed
    }

    fn remedy(&self, about: About) -> Option<Remedy> {
        let says = |text: &str| self.text.contains(text);
        match (self.kind, about) {
            // Of the signature, not of the node.
            (Kind::Unauthenticated, About::Registration | About::Activation) => Some(Remedy::Person),
            (Kind::Unauthenticated, _) if says("signature") || says("timestamp") || says("metadata") => {
                Some(Remedy::Person)
            }
            (Kind::Unauthenticated, _) => Some(Remedy::Activate),
            (Kind::Precondition, About::Registration) => {
                let disabled = self.number == Some(REGISTRATION_DISABLED) || says("registered via the CLI");
                disabled.then_some(Remedy::Person)
            }
            (Kind::Precondition, About::Activation) if says("No SuperNode found") => Some(Remedy::Register),
            (Kind::Precondition, About::Activation) if says("could not be activated") => Some(Remedy::Wait),
            (Kind::Precondition, About::Activation) => Some(Remedy::RegisterOrWait),
            // Releases before 1.36 fail on unknown nodes.
            (Kind::Precondition | Kind::Fault, _) if says("Node ID") && says("not found") => Some(Remedy::Activate),
            _ => None,
        }
    }

    /// Its meaning for the node.
    pub fn into_error(self, endpoint: String, rpc: &Rpc) -> FleetError {
        let call = rpc.name;
        if let Some(remedy) = self.remedy(rpc.about) {
            let hint = match (self.kind, remedy) {
                (Kind::Unauthenticated, Remedy::Person) => ". Check the clock of this machine, and the node's key",
                (_, Remedy::Person) => ". Register the node's public key there",
                _ => "",
            };
            let why = format!("{}{hint}", self.text.trim_end_matches('.'));
            return FleetError::NotKnown { endpoint, call, remedy, why };
        }
        let why = self.text;
        match self.kind {
            Kind::Busy => FleetError::Unreachable { endpoint, call, why },
            Kind::Denied if rpc.about == About::Run => FleetError::RunOver { endpoint, call, why },
            Kind::NotServed => {
                let why = format!("it does not serve the Fleet API at this port ({why})");
                FleetError::Misdirected { endpoint, call, why }
            }
            kind => FleetError::Refused { endpoint, call, is_fault: kind == Kind::Fault, why },
        }
    }
}

/// The beginning of a strange answer, safe to print.
fn quote(body: &[u8]) -> String {
    match body {
        [] => String::new(),
        _ => format!(": {:?}", String::from_utf8_lossy(body).chars().take(QUOTED_CHARS).collect::<String>()),
    }
}

/// Decodes the percent-encoding of gRPC headers.
pub(crate) fn percent_decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let escaped = match after {
            [high, low, ..] if *first == b'%' => {
                str::from_utf8(&[*high, *low]).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
