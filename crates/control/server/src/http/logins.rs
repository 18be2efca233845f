//! Logins of `flwr`, approved for an identity of single sign-on: the account of the SuperLink has its name and its role.

use std::sync::Arc;

use http::StatusCode;
use trellis_api::LoginApproval;

use super::Api;
use super::audit::{Event, record};
use super::call::{Answer, Call, empty};
use super::fault::{Fault, Kind};

pub async fn approve(api: Arc<Api>, call: Call) -> Answer {
    let LoginApproval { code } = call.json()?;
    let federation = call.part("federation");
    // Tokens that an administrator issued have any name: it could be that of another user's account.
    let session = api.sign_on.as_ref().filter(|_| call.caller.is_identity());
    let Some(on) = session else {
        let told = "This token belongs to no identity of single sign-on. Approve with the token of an account: \
                    trellis login approve CODE --token-file FILE";
        return Err(Fault::new(Kind::FORBIDDEN, told));
    };
    let ttl_s = on.session().as_secs_f64();
    api.platform.approve_login(federation, &code, &call.caller.name, call.caller.role, ttl_s).await?;
    record(&api, Event::LoginApproved, &call.caller.name, federation, "flwr login").await;
    empty(StatusCode::NO_CONTENT)
}
