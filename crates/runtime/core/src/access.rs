//! Operations on secrets: issue, authenticate, refresh, revoke, and enrol nodes.
//!
//! All invalid secrets get the same error text. The reason is the error's source, for the audit log ([`Rejected::of`]).
//! The core sees only hashes of secrets.

use crate::Seconds;
use crate::account::{Account, NOBODY_ID, NOBODY_NAME, Permission, State as AccountState, named};
use crate::audit;
use crate::control::{self, NewNode};
use crate::fleet::KEY_IN_USE;
use crate::id::NodeId;
use crate::node;
use crate::port::{Read, Tx};
use crate::refusal::{Kind, Refusal};
use crate::secret::{Event, Hash, Purpose, Secret, SecretId, State};

/// Lifetime of the access secret of a login. The refresh secret renews it.
pub const LOGIN_ACCESS_TTL_S: f64 = 3600.0;
/// Lifetime of the refresh secret of a login. After that, the user logs in again.
pub const LOGIN_REFRESH_TTL_S: f64 = 30.0 * 86_400.0;
pub const MAX_JOIN_TTL_S: f64 = 30.0 * 86_400.0;
/// A refresh secret stays valid for this long after its use: the answer may have been lost, and two commands of one
/// user may refresh at the same time.
const REFRESH_GRACE_S: f64 = 60.0;
/// Retention of ended secrets in the list. The audit log keeps them longer.
pub(crate) const RETENTION_S: f64 = 7.0 * 86_400.0;
const MAX_LABEL_CHARS: usize = 64;

/// Why a secret is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejected {
    #[error("unknown secret")]
    Unknown,
    #[error("expired secret")]
    Expired,
    #[error("revoked secret")]
    Revoked,
    #[error("secret used before")]
    Used,
    #[error("secret for another purpose")]
    WrongPurpose,
    #[error("the account of the secret is disabled or may not do this")]
    Disabled,
}

impl Rejected {
    /// Returns why a secret was not accepted, if `refusal` is about a secret.
    pub fn of(refusal: &Refusal) -> Option<Rejected> {
        refusal.source.as_ref()?.downcast_ref().copied()
    }

    fn refusal(self, purpose: Purpose) -> Refusal {
        let text = match purpose {
            Purpose::Access | Purpose::Refresh => {
                "The token is not valid. Log in again (`flwr login`), or ask an administrator for a new one."
            }
            Purpose::Join => "The join token is not valid. Each works once and for a limited time: ask for a new one.",
        };
        Refusal { kind: Kind::Unauthenticated, text: text.into(), source: Some(Box::new(self)) }
    }
}

/// A secret to issue.
#[derive(Debug, Clone)]
pub struct NewSecret {
    pub hash: Hash,
    /// A label chosen by the user; may be empty.
    pub label: String,
    /// `None`: valid until it is revoked.
    pub ttl_s: Option<f64>,
}

/// Issues an access secret for the account named `account`.
pub fn issue_access(
    tx: &mut dyn Tx,
    account: &str,
    new: &NewSecret,
    by: &str,
    now: Seconds,
) -> Result<SecretId, Refusal> {
    let account = named(tx, account)?;
    if account.state() != AccountState::Active {
        return Err(Refusal::new(Kind::Precondition, format!("Account '{}' is disabled.", account.name)));
    }
    check_new(new, None)?;
    let secret = Secret::new(new.hash, Purpose::Access, &account.id, &new.label, new.ttl_s, now);
    issue(tx, &secret, by, &account.name, now)
}

/// Issues a secret that lets one node join. `issuer` is the id of an account, or [`NOBODY_ID`].
pub fn issue_join(tx: &mut dyn Tx, issuer: &str, new: &NewSecret, now: Seconds) -> Result<SecretId, Refusal> {
    check_new(new, Some(MAX_JOIN_TTL_S))?;
    let denied = || Refusal::new(Kind::Denied, "Only an active administrator may issue join tokens.");
    let name = name_of_issuer(tx, issuer)?.ok_or_else(denied)?;
    let secret = Secret::new(new.hash, Purpose::Join, issuer, &new.label, new.ttl_s, now);
    issue(tx, &secret, &name, "a new node", now)
}

/// Returns the name of the account with this id if it may issue join tokens.
fn name_of_issuer(read: &(impl Read + ?Sized), id: &str) -> Result<Option<String>, Refusal> {
    Ok(match read.account(id)? {
        Some(account) => account.may(Permission::Administer).then_some(account.name),
        None => (id == NOBODY_ID).then(|| NOBODY_NAME.to_owned()),
    })
}

fn check_new(new: &NewSecret, max_ttl_s: Option<f64>) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    if new.label.chars().count() > MAX_LABEL_CHARS {
        errors.push(format!("its label has more than {MAX_LABEL_CHARS} characters"));
    }
    match (new.ttl_s, max_ttl_s) {
        (Some(ttl_s), _) if !(ttl_s > 0.0 && ttl_s.is_finite()) => errors.push("its lifetime is not positive".into()),
        (Some(ttl_s), Some(max_s)) if ttl_s > max_s => errors.push(format!("it would last more than {max_s} s")),
        (None, Some(_)) => errors.push("it has no end".into()),
        _ => {}
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(Kind::Invalid, format!("This secret cannot be issued: {}.", errors.join("; "))))
}

fn issue(tx: &mut dyn Tx, secret: &Secret, by: &str, subject: &str, now: Seconds) -> Result<SecretId, Refusal> {
    insert(tx, secret)?;
    audit::record(tx, audit::Event::SecretIssued, by, subject, &secret.to_string(), now)?;
    Ok(secret.id())
}

/// Stores a new secret. Fails if its public id is in use.
fn insert(tx: &mut dyn Tx, secret: &Secret) -> Result<(), Refusal> {
    if tx.secret_by_id(secret.id())?.is_some() {
        return Err(Refusal::new(Kind::Transient, "secret taken, try again"));
    }
    tx.put_secret(secret)
}

/// Returns the account of the access secret behind `hash`.
pub fn authenticate(read: &(impl Read + ?Sized), hash: &Hash, now: Seconds) -> Result<Account, Refusal> {
    let reject = |why: Rejected| why.refusal(Purpose::Access);
    let secret = find_secret(read, hash, Purpose::Access)?;
    check_fresh(&secret, now).map_err(reject)?;
    owner(read, &secret)?.ok_or_else(|| reject(Rejected::Disabled))
}

/// Returns the secret behind `hash` if it has this purpose.
fn find_secret(read: &(impl Read + ?Sized), hash: &Hash, purpose: Purpose) -> Result<Secret, Refusal> {
    match read.secret(hash)? {
        Some(secret) if secret.purpose == purpose => Ok(secret),
        Some(_) => Err(Rejected::WrongPurpose.refusal(purpose)),
        None => Err(Rejected::Unknown.refusal(purpose)),
    }
}

fn check_fresh(secret: &Secret, now: Seconds) -> Result<(), Rejected> {
    match secret.state() {
        State::Revoked { .. } => Err(Rejected::Revoked),
        State::Used { .. } => Err(Rejected::Used),
        State::Fresh if secret.has_expired(now) => Err(Rejected::Expired),
        State::Fresh => Ok(()),
    }
}

/// Returns the account of the secret if it is active.
fn owner(read: &(impl Read + ?Sized), secret: &Secret) -> Result<Option<Account>, Refusal> {
    Ok(read.account(&secret.account)?.filter(|account| account.state() == AccountState::Active))
}

/// The secrets of a login as hashes.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    pub access: Hash,
    pub refresh: Hash,
}

/// Label of the secrets of a login that ends at a fixed time: a refresh does not move its end.
const ENDING_LOGIN: &str = "single sign-on";
const LOGIN: &str = "login";

/// Gives the account with this id a pair of secrets after a login. `ttl_s`: the login ends then, however often it is used.
pub fn login(
    tx: &mut dyn Tx,
    account: &str,
    pair: &Pair,
    ttl_s: Option<f64>,
    now: Seconds,
) -> Result<Account, Refusal> {
    let active = tx.account(account)?.filter(|account| account.state() == AccountState::Active);
    let account = active.ok_or_else(|| Rejected::Disabled.refusal(Purpose::Access))?;
    let refresh = insert_pair(tx, &account, pair, ttl_s.map(|ttl_s| now + ttl_s), now)?;
    audit::record(tx, audit::Event::Login, &account.name, &account.name, &refresh.to_string(), now)?;
    Ok(account)
}

fn insert_pair(
    tx: &mut dyn Tx,
    account: &Account,
    pair: &Pair,
    end: Option<Seconds>,
    now: Seconds,
) -> Result<Secret, Refusal> {
    let (label, left) = end.map_or((LOGIN, f64::INFINITY), |end| (ENDING_LOGIN, end - now));
    let secret = |hash, purpose, ttl_s| Secret::new(hash, purpose, &account.id, label, Some(left.min(ttl_s)), now);
    insert(tx, &secret(pair.access, Purpose::Access, LOGIN_ACCESS_TTL_S))?;
    let refresh = secret(pair.refresh, Purpose::Refresh, LOGIN_REFRESH_TTL_S);
    insert(tx, &refresh)?;
    Ok(refresh)
}

/// Exchanges a refresh secret for a new pair.
pub fn refresh(tx: &mut dyn Tx, hash: &Hash, pair: &Pair, now: Seconds) -> Result<Account, Refusal> {
    let reject = |why: Rejected| why.refusal(Purpose::Refresh);
    let mut secret = find_secret(tx, hash, Purpose::Refresh)?;
    let was_just_used = matches!(secret.state(), State::Used { at, .. } if now < at + REFRESH_GRACE_S);
    if !was_just_used {
        check_fresh(&secret, now).map_err(reject)?;
    }
    let account = owner(tx, &secret)?.ok_or_else(|| reject(Rejected::Disabled))?;
    if secret.apply(Event::Use { node: None }, now).is_ok() {
        tx.put_secret(&secret)?;
    }
    let end = secret.expires_at.filter(|_| secret.label == ENDING_LOGIN);
    let renewed = insert_pair(tx, &account, pair, end, now)?;
    let detail = format!("{} gives {}", secret.id(), renewed.id());
    audit::record(tx, audit::Event::SecretUsed, &account.name, &account.name, &detail, now)?;
    Ok(account)
}

/// Revokes a secret. Idempotent.
pub fn revoke(tx: &mut dyn Tx, id: SecretId, by: &str, now: Seconds) -> Result<(), Refusal> {
    let Some(mut secret) = tx.secret_by_id(id)? else {
        return Err(Refusal::new(Kind::NotFound, format!("There is no secret with ID {id}.")));
    };
    let changed = secret
        .apply(Event::Revoke, now)
        .map_err(|why| Refusal::new(Kind::Precondition, format!("Secret {id} cannot be revoked: {why}.")))?;
    if changed {
        tx.put_secret(&secret)?;
        let subject = tx.account(&secret.account)?.map_or_else(|| secret.account.clone(), |account| account.name);
        audit::record(tx, audit::Event::SecretRevoked, by, &subject, &secret.to_string(), now)?;
    }
    Ok(())
}

/// Registers the key of a node with a join token. The caller has verified that the node owns the key. Idempotent for
/// the same key and token: the first answer may have been lost.
pub fn enrol(tx: &mut dyn Tx, hash: &Hash, id: NodeId, new: &NewNode, now: Seconds) -> Result<NodeId, Refusal> {
    let reject = |why: Rejected| why.refusal(Purpose::Join);
    let mut secret = find_secret(tx, hash, Purpose::Join)?;
    let known = tx.node_by_key(&new.key)?;
    if let (State::Used { node: Some(joined), .. }, Some(known)) = (secret.state(), &known)
        && known.id == joined
        && known.state() != node::State::Unregistered
    {
        return Ok(joined);
    }
    check_fresh(&secret, now).map_err(reject)?;
    let issuer = name_of_issuer(tx, &secret.account)?.ok_or_else(|| reject(Rejected::Disabled))?;
    match known {
        Some(known) if known.state() == node::State::Unregistered => Err(Refusal::new(Kind::Precondition, KEY_IN_USE)),
        // A registered node needs no token; the token stays valid for another node.
        Some(known) => Ok(known.id),
        None => {
            control::insert_node(tx, id, (&secret.account, &issuer), new, now)?;
            secret
                .apply(Event::Use { node: Some(id) }, now)
                .map_err(|why| Refusal::new(Kind::Precondition, why.to_string()))?;
            tx.put_secret(&secret)?;
            let detail = [secret.to_string(), new.to_string()].join(" ");
            let event = audit::Event::NodeRegisteredByToken;
            audit::record(tx, event, &issuer, &audit::node(id), detail.trim_end(), now)?;
            Ok(id)
        }
    }
}
