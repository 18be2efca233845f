//! Why a call has no good answer. What to do about it is not known here.

use crate::Problem;

/// Refusals that say so themselves: the SuperLink does not answer yet; the same is being done already.
const PASSING: [&str; 2] = ["urn:trellis:not-now", "urn:trellis:under-way"];

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody was reached, or nobody who is trusted.
    #[error(transparent)]
    Unreached(#[from] trellis_client::Error),

    /// The server understood and said no.
    #[error("{}", said(problem))]
    Refused { endpoint: String, status: u16, problem: Box<Problem> },

    /// Something answered, but not as a server of this API does.
    #[error("{endpoint} answered {call} in an unknown way (status {status}): {what}")]
    Unexpected { endpoint: String, call: String, status: u16, what: String },
}

impl CallError {
    /// Whether the same call may succeed later, without anything being changed by its caller.
    pub fn may_pass(&self) -> bool {
        match self {
            CallError::Unreached(error) => error.may_pass(),
            CallError::Refused { status, problem, .. } => {
                matches!(status, 429 | 503) || PASSING.contains(&problem.kind.as_str())
            }
            CallError::Unexpected { .. } => false,
        }
    }

    /// The token does not count, or does not any more.
    pub fn is_unknown_caller(&self) -> bool {
        matches!(self, CallError::Refused { status: 401, .. })
    }

    /// There is no such federation, node or run.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CallError::Refused { status: 404, .. })
    }
}

fn said(problem: &Problem) -> &str {
    if problem.detail.is_empty() { &problem.title } else { &problem.detail }
}
