//! Who may do what over the Control API.

use trellis_core::refusal::{Kind, Refusal};

use trellis_wire::proto::GetLoginDetailsResponse;

use super::control::{ACCOUNT_ID, ACCOUNT_NAME};

/// What a call of the Control API needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    View,
    Run,
    Administer,
}

/// The account that calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    pub id: String,
    pub name: String,
    administers: bool,
}

impl Who {
    /// The one account there is while accounts are off: it may do everything.
    pub fn nobody() -> Who {
        Who { id: ACCOUNT_ID.to_owned(), name: ACCOUNT_NAME.to_owned(), administers: true }
    }

    /// Runs are their owner's, and the administrators'.
    pub fn check_owner(&self, owner: &str) -> Result<(), Refusal> {
        if self.administers || owner == self.id {
            return Ok(());
        }
        Err(Refusal::new(Kind::Denied, "Run ID does not belong to the account"))
    }
}

const NO_ACCOUNT_AUTH: &str = "ControlServicer initialized without account authentication";

pub fn get_login_details() -> GetLoginDetailsResponse {
    GetLoginDetailsResponse { authn_type: "noop".to_owned(), ..Default::default() }
}

pub fn get_auth_tokens() -> Refusal {
    Refusal::new(Kind::Unimplemented, NO_ACCOUNT_AUTH)
}
