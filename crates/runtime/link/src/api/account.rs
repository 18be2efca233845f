//! Callers of the Control API and of Trellis' own API: accounts, tokens, and the login of the `flwr` command line.

use std::collections::HashMap;
use std::sync::Mutex;

use trellis_core::Seconds;
use trellis_core::access::{self, Pair};
use trellis_core::account::{Account, NOBODY_ID, NOBODY_NAME, Permission, Role};
use trellis_core::refusal::{Kind, Refusal};
use trellis_digest::{hex, sha256};
use trellis_front::Source;
use trellis_wire::proto::*;

use super::random;
use crate::link::Link;

/// Official command lines compare this text exactly.
const NO_ACCOUNT_AUTH: &str = "ControlServicer initialized without account authentication";
/// Timeout for the approval of a login.
const LOGIN_TIMEOUT_S: f64 = 600.0;
/// Poll interval of clients that wait for the approval.
const LOGIN_POLL_S: i64 = 2;
/// Retention of a login after its tokens were returned: the answer may have been lost.
const LOGIN_GRACE_S: f64 = 60.0;
/// Maximum number of pending logins: in total, and from one address.
const MAX_LOGINS: usize = 10_000;
const MAX_LOGINS_PER_SOURCE: usize = 50;

/// The calling account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerAccount {
    pub id: String,
    pub name: String,
    pub role: Role,
}

impl CallerAccount {
    /// The built-in account of a SuperLink without accounts. It has all permissions.
    pub fn built_in() -> CallerAccount {
        CallerAccount { id: NOBODY_ID.to_owned(), name: NOBODY_NAME.to_owned(), role: Role::Admin }
    }

    /// Checks that the account owns the run or is an administrator.
    pub fn check_owner(&self, owner: &str) -> Result<(), Refusal> {
        if self.role.may(Permission::Administer) || owner == self.id {
            return Ok(());
        }
        Err(Refusal::new(Kind::Denied, "Run ID does not belong to the account"))
    }
}

impl From<Account> for CallerAccount {
    fn from(account: Account) -> CallerAccount {
        CallerAccount { role: account.role(), id: account.id, name: account.name }
    }
}

/// Generates a token and its hash.
pub fn new_token() -> (String, [u8; 32]) {
    let token = format!("trellis_{}", hex(&random::<32>()));
    let hash = sha256(token.as_bytes());
    (token, hash)
}

/// Returns the account of the token if it has the permission.
pub fn authenticate(link: &Link, token: &str, permission: Permission) -> Result<CallerAccount, Refusal> {
    let (hash, now) = (sha256(token.as_bytes()), link.now());
    let account = link.read(|view| access::authenticate(view, &hash, now))?;
    account.needs(permission)?;
    Ok(account.into())
}

/// The permission of a long-running call. It survives the expiry of the token, but neither its revocation, nor a
/// disabled account, nor the loss of the permission.
pub struct LastingRight {
    /// `None` if accounts are off.
    pub shown: Option<(String, Permission)>,
    pub since: Seconds,
}

impl LastingRight {
    pub fn check(&self, link: &Link) -> Result<(), Refusal> {
        let Some((token, permission)) = &self.shown else { return Ok(()) };
        let hash = sha256(token.as_bytes());
        link.read(|view| access::authenticate(view, &hash, self.since))?.needs(*permission)
    }
}

/// Exchanges a refresh token for a new pair of tokens.
pub async fn renew(link: &Link, refresh_token: &str) -> Result<Tokens, Refusal> {
    let (tokens, pair) = new_pair();
    let (hash, now) = (sha256(refresh_token.as_bytes()), link.now());
    link.write(move |tx| access::refresh(tx, &hash, &pair, now)).await?;
    Ok(tokens)
}

/// A pair of tokens for its owner.
#[derive(Debug, Clone)]
pub struct Tokens {
    pub access: String,
    pub refresh: String,
}

fn new_pair() -> (Tokens, Pair) {
    let ((access, access_hash), (refresh, refresh_hash)) = (new_token(), new_token());
    (Tokens { access, refresh }, Pair { access: access_hash, refresh: refresh_hash })
}

/// Pending logins. In memory only: a login is short and can be repeated.
#[derive(Default)]
pub struct Logins(Mutex<HashMap<String, Login>>);

struct Login {
    source: Source,
    /// The code that the user enters to approve the login.
    code: String,
    until: Seconds,
    approved: Option<Approval>,
    tokens: Option<Tokens>,
}

/// Who approved a login.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// The id of the account.
    pub account: String,
    /// The login ends then; `None`: 30 days after its last use.
    pub ttl_s: Option<f64>,
}

impl Logins {
    fn begin(&self, source: Source, now: Seconds) -> Result<(String, String), Refusal> {
        let mut logins = self.0.lock().expect("no holder panics");
        logins.retain(|_, login| login.until > now);
        let of_source = logins.values().filter(|login| login.source == source).count();
        if logins.len() >= MAX_LOGINS || of_source >= MAX_LOGINS_PER_SOURCE {
            return Err(Refusal::new(Kind::Transient, "too many logins wait for approval; retry later"));
        }
        let (device, code) = (hex(&random::<32>()), hex(&random::<5>()).to_uppercase());
        let login = Login { source, code: code.clone(), until: now + LOGIN_TIMEOUT_S, approved: None, tokens: None };
        logins.insert(device.clone(), login);
        Ok((device, code))
    }

    /// Approves the login with this code for an account.
    pub fn approve(&self, code: &str, approval: Approval, now: Seconds) -> Result<(), Refusal> {
        let mut logins = self.0.lock().expect("no holder panics");
        let wanted = code.trim().to_uppercase();
        let waiting = logins.values_mut().find(|login| login.code == wanted && login.until > now);
        match waiting {
            Some(login) if login.approved.as_ref().is_none_or(|by| by.account == approval.account) => {
                login.approved = Some(approval);
                Ok(())
            }
            _ => {
                Err(Refusal::new(Kind::NotFound, "No pending login has this code: it may have expired. Log in again."))
            }
        }
    }

    fn approved(&self, device: &str, now: Seconds) -> Result<(Option<Approval>, Option<Tokens>), Refusal> {
        let logins = self.0.lock().expect("no holder panics");
        match logins.get(device).filter(|login| login.until > now) {
            Some(login) => Ok((login.approved.clone(), login.tokens.clone())),
            None => Err(Refusal::new(Kind::Precondition, "The login has expired. Log in again.")),
        }
    }

    fn done(&self, device: &str, tokens: &Tokens, now: Seconds) {
        if let Some(login) = self.0.lock().expect("no holder panics").get_mut(device) {
            login.tokens = Some(tokens.clone());
            login.until = now + LOGIN_GRACE_S;
        }
    }
}

/// Starts a login. `page` is the page on which users approve it.
pub fn get_login_details(link: &Link, source: Source, page: &str) -> Result<GetLoginDetailsResponse, Refusal> {
    if !link.accounts {
        return Ok(GetLoginDetailsResponse { authn_type: "noop".to_owned(), ..Default::default() });
    }
    let (device_code, code) = link.logins.begin(source, link.now())?;
    Ok(GetLoginDetailsResponse {
        authn_type: "oidc".to_owned(),
        device_code,
        verification_uri_complete: format!("{page}?code={code}"),
        expires_in: LOGIN_TIMEOUT_S as i64,
        interval: LOGIN_POLL_S,
    })
}

/// Returns tokens, or an empty response while the login is not approved.
pub async fn get_auth_tokens(link: &Link, request: GetAuthTokensRequest) -> Result<GetAuthTokensResponse, Refusal> {
    if !link.accounts {
        return Err(Refusal::new(Kind::Unimplemented, NO_ACCOUNT_AUTH));
    }
    let now = link.now();
    let (account, tokens) = link.logins.approved(&request.device_code, now)?;
    let tokens = match (account, tokens) {
        (_, Some(tokens)) => tokens,
        (None, None) => return Ok(GetAuthTokensResponse::default()),
        (Some(Approval { account, ttl_s }), None) => {
            let (tokens, pair) = new_pair();
            link.write(move |tx| access::login(tx, &account, &pair, ttl_s, now)).await?;
            link.logins.done(&request.device_code, &tokens, now);
            tokens
        }
    };
    Ok(GetAuthTokensResponse { access_token: tokens.access, refresh_token: tokens.refresh })
}

pub async fn refresh_auth_tokens(
    link: &Link,
    request: RefreshAuthTokensRequest,
) -> Result<RefreshAuthTokensResponse, Refusal> {
    if !link.accounts {
        return Err(Refusal::new(Kind::Unimplemented, NO_ACCOUNT_AUTH));
    }
    let tokens = renew(link, &request.refresh_token).await?;
    Ok(RefreshAuthTokensResponse { access_token: tokens.access, refresh_token: tokens.refresh })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn at(last: u8) -> Source {
        IpAddr::from([192, 0, 2, last]).into()
    }

    fn by(account: &str) -> Approval {
        Approval { account: account.to_owned(), ttl_s: None }
    }

    #[test]
    fn a_login_is_approved_once_and_by_its_code() {
        let logins = Logins::default();
        let (device, code) = logins.begin(at(1), 0.0).unwrap();
        assert_eq!(logins.approved(&device, 1.0).unwrap().0, None, "not yet");
        assert!(logins.approve("0000000000", by("a"), 1.0).is_err(), "another code");
        logins.approve(&format!(" {} ", code.to_lowercase()), by("a"), 1.0).unwrap();
        assert!(logins.approve(&code, by("b"), 1.0).is_err(), "another account comes too late");
        assert_eq!(logins.approved(&device, 2.0).unwrap().0, Some(by("a")));
        let (tokens, _) = new_pair();
        logins.done(&device, &tokens, 2.0);
        assert_eq!(
            logins.approved(&device, 3.0).unwrap().1.unwrap().access,
            tokens.access,
            "a retry after a lost answer"
        );
        assert!(logins.approved(&device, 2.0 + LOGIN_GRACE_S).is_err(), "after the grace period");
    }

    #[test]
    fn logins_expire_and_their_number_is_limited() {
        let logins = Logins::default();
        let (device, code) = logins.begin(at(1), 0.0).unwrap();
        assert!(logins.approve(&code, by("a"), LOGIN_TIMEOUT_S).is_err());
        assert!(logins.approved(&device, LOGIN_TIMEOUT_S).is_err());
        for _ in 0..MAX_LOGINS_PER_SOURCE {
            logins.begin(at(1), LOGIN_TIMEOUT_S).unwrap();
        }
        assert_eq!(logins.begin(at(1), LOGIN_TIMEOUT_S).unwrap_err().kind, Kind::Transient);
        assert!(logins.begin(at(2), LOGIN_TIMEOUT_S).is_ok(), "other addresses can log in");
    }

    #[test]
    fn runs_belong_to_their_account_and_to_administrators() {
        let who = |id: &str, role| CallerAccount { id: id.to_owned(), name: id.to_owned(), role };
        assert!(who("a", Role::Runner).check_owner("a").is_ok());
        assert!(who("a", Role::Runner).check_owner("b").is_err());
        assert!(who("a", Role::Admin).check_owner("b").is_ok());
        assert!(CallerAccount::built_in().check_owner("b").is_ok());
    }
}
