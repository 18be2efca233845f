//! Why something was not done. Front ends turn the kind into their protocol's code; clients act on that code, so the
//! kind is control flow and not decoration.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Nothing wrong with the question, the answer may be different soon. Clients try again for ever.
    Transient,
    /// The run is not running (any more). Clients drop it quietly.
    RunOver,
    /// The caller may not do this.
    Denied,
    /// The caller is not who it says.
    Unauthenticated,
    /// The question makes no sense in any state.
    Invalid,
    /// The question makes no sense in this state.
    Precondition,
    NotFound,
    Unimplemented,
    /// Over a limit that waiting does not change.
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

/// A refusal: the kind for programs, the text for people.
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
