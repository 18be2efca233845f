//! Errors of calls. Front ends map the kind to a code of their protocol. Clients act on the code, so the kind is
//! control flow.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A temporary failure. Clients retry for ever.
    Transient,
    /// The run is not running. Clients drop the run without an error.
    RunOver,
    /// The caller lacks a permission.
    Denied,
    /// The caller is not authenticated.
    Unauthenticated,
    /// The request is invalid in every state.
    Invalid,
    /// The request is invalid in this state.
    Precondition,
    NotFound,
    Unimplemented,
    /// The request exceeds a limit; a retry does not help.
    TooLarge,
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Transient,
        Kind::RunOver,
        Kind::Denied,
        Kind::Unauthenticated,
        Kind::Invalid,
        Kind::Precondition,
        Kind::NotFound,
        Kind::Unimplemented,
        Kind::TooLarge,
    ];
}

/// An error of a call: the kind for programs, the text for people.
#[derive(Debug)]
pub struct Refusal {
    pub kind: Kind,
    pub text: Cow<'static, str>,
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl Refusal {
    pub fn new(kind: Kind, text: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { kind, text: text.into(), source: None }
    }

    pub fn transient(text: &'static str, source: impl Error + Send + Sync + 'static) -> Refusal {
        Refusal { kind: Kind::Transient, text: text.into(), source: Some(Box::new(source)) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
