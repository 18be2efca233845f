//! Whom a genuine ID token names, and the role of that identity.

use serde_json::{Map, Value};
use trellis_api::Role;

use crate::id_token::Rejected;

/// The claim whose truth the provider states in another one.
const EMAIL: &str = "email";
const MAX_NAME_CHARS: usize = 64;
const MAX_SUBJECT_BYTES: usize = 255;

/// The claims of a verified token.
#[derive(Debug, Clone)]
pub struct Claims(pub(crate) Map<String, Value>);

/// How claims become an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub name_claim: String,
    pub groups_claim: String,
    /// Groups and their roles. The highest role counts.
    pub roles: Vec<(String, Role)>,
    /// Follows names without an `@`, so that no identity has the name of a local account.
    pub domain: String,
}

/// A user of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Unique and constant at the provider.
    pub subject: String,
    /// In lower case, with an `@`.
    pub name: String,
    pub role: Role,
}

impl Claims {
    fn text(&self, claim: &str) -> Option<&str> {
        self.0.get(claim)?.as_str()
    }

    fn subject(&self) -> &str {
        self.text("sub").unwrap_or_default()
    }
}

impl Rules {
    pub fn identity(&self, claims: &Claims) -> Result<Identity, Rejected> {
        let subject = claims.subject();
        if subject.is_empty() || subject.len() > MAX_SUBJECT_BYTES {
            return Err(Rejected::Malformed);
        }
        let name = self.name(claims)?;
        let groups = match claims.0.get(&self.groups_claim) {
            Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(group)) => vec![group.as_str()],
            _ => Vec::new(),
        };
        let granted = self.roles.iter().filter(|(group, _)| groups.contains(&group.as_str()));
        let role = granted.map(|(_, role)| *role).max().ok_or(Rejected::NoGroup)?;
        Ok(Identity { subject: subject.to_owned(), name, role })
    }

    /// For the audit log: also of a user who is not admitted.
    pub fn called<'a>(&self, claims: &'a Claims) -> &'a str {
        claims.text(&self.name_claim).unwrap_or(claims.subject())
    }

    /// A name that accounts of SuperLinks can have, too.
    fn name(&self, claims: &Claims) -> Result<String, Rejected> {
        let unusable = || Rejected::NoName(self.name_claim.clone());
        let given = claims.text(&self.name_claim).ok_or_else(unusable)?.to_lowercase();
        // Providers that verify nothing do not send the claim.
        if self.name_claim == EMAIL && claims.0.get("email_verified").is_some_and(|verified| *verified != true) {
            return Err(Rejected::Unverified);
        }
        let name = if given.contains('@') { given } else { format!("{given}@{}", self.domain) };
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.@".contains(c);
        let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        let usable = begins_well && name.chars().count() <= MAX_NAME_CHARS && name.chars().all(allowed);
        usable.then_some(name).ok_or_else(unusable)
    }
}
