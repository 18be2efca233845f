//! Why a call of a ServerApp has no good answer.

use crate::error::Error;
use crate::fleet::FleetError;
use crate::fleet::refusal::{Kind, Refusal};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppError {
    /// The run was stopped, or belongs to another ServerApp.
    #[error("{endpoint} has ended the run ({call}): {why}")]
    RunOver { endpoint: String, call: &'static str, why: String },

    /// The endpoint is not the expected SuperLink.
    #[error("{endpoint} cannot be used: {why}")]
    Misdirected { endpoint: String, why: String },

    /// Anything else.
    #[error("{endpoint} refused {call}: {why}")]
    Refused { endpoint: String, call: &'static str, why: String },
}

/// The result of one attempt.
pub(super) enum Failure {
    /// It may work later.
    Away(String),
    /// The SuperLink broke over it.
    Fault(AppError),
    Misdirected(AppError),
    Final(AppError),
}

impl Failure {
    pub fn of_refusal(refusal: Refusal, endpoint: String, call: &'static str) -> Failure {
        let Refusal { kind, text: why, .. } = refusal;
        match kind {
            Kind::Busy => Failure::Away(format!("{endpoint} cannot answer {call} just now: {why}")),
            // A token is good for as long as its run is.
            Kind::Denied | Kind::Unauthenticated => Failure::Final(AppError::RunOver { endpoint, call, why }),
            Kind::Fault => Failure::Fault(AppError::Refused { endpoint, call, why }),
            Kind::NotServed => {
                let why = format!("it does not serve {call} at this port ({why})");
                Failure::Misdirected(AppError::Misdirected { endpoint, why })
            }
            Kind::Precondition | Kind::Other => Failure::Final(AppError::Refused { endpoint, call, why }),
        }
    }
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Failure {
        match error {
            FleetError::Misdirected { endpoint, why, .. } => {
                Failure::Misdirected(AppError::Misdirected { endpoint, why })
            }
            FleetError::Unreachable { .. } => Failure::Away(error.to_string()),
            FleetError::RunOver { endpoint, call, why }
            | FleetError::NotKnown { endpoint, call, why, .. }
            | FleetError::Refused { endpoint, call, why, .. } => {
                Failure::Final(AppError::Refused { endpoint, call, why })
            }
        }
    }
}

/// Of our own calls.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let why = error.to_string();
        match error {
            error if error.may_pass() => Failure::Away(why),
            Error::Refused { endpoint, call, status: 401 | 403, detail } => {
                Failure::Final(AppError::RunOver { endpoint, call, why: detail })
            }
            Error::Refused { endpoint, call, detail, .. } => {
                Failure::Final(AppError::Refused { endpoint, call, why: detail })
            }
            Error::Unexpected { endpoint, call, what, .. } => {
                Failure::Final(AppError::Refused { endpoint, call, why: what })
            }
            Error::Lookup { host, .. } => Failure::Misdirected(AppError::Misdirected { endpoint: host, why }),
            Error::Distrusted { endpoint, .. }
            | Error::NotTls { endpoint }
            | Error::Tls { endpoint, .. }
            | Error::NotHttp { endpoint, .. }
            | Error::Connect { endpoint, .. }
            | Error::Broken { endpoint, .. }
            | Error::TooSlow { endpoint, .. } => Failure::Misdirected(AppError::Misdirected { endpoint, why }),
        }
    }
}
