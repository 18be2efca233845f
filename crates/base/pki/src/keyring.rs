//! An authority as names and bytes, for stores other than the directory of [`crate::authority`], such as a Secret of Kubernetes.
//! A store that writes all entries atomically needs no lock.
//!
//! ```text
//! state.json   the signing authority and the trusted ones, as in the directory
//! ID.crt       certificate of an authority
//! ID.key       its key
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::authority::{FORMAT, Kept, Step};
use crate::certificate::{Certificate, KeyId};
use crate::check::Files;
use crate::delivery::Delivery;
use crate::issuance::{self, Wish};
use crate::rotation::{self, Event, State};
use crate::span::Span;
use crate::{Error, UnixSeconds, pem};

pub const STATE: &str = "state.json";
const RESTORE: &str = "restore it from a backup; without one, delete it, and a new authority is created";

/// Never shown: it holds keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Keyring {
    kept: Kept,
    members: BTreeMap<KeyId, Member>,
}

#[derive(Clone, PartialEq, Eq)]
struct Member {
    certificate: Certificate,
    key_pem: String,
}

impl Keyring {
    pub fn new(name: &str, validity: Span, now: UnixSeconds) -> Result<Keyring, Error> {
        let problems = crate::authority::problems(name, validity);
        if !problems.is_empty() {
            return Err(Error::Refused(problems));
        }
        let (certificate, key_pem) = issuance::new_authority(name, validity, now)?;
        let signing = certificate.key_id();
        let rotation = State::Steady { signing: signing.clone() };
        let kept = Kept { format: FORMAT, name: name.to_owned(), validity, rotation, foreign: Vec::new() };
        Ok(Keyring { kept, members: BTreeMap::from([(signing, Member { certificate, key_pem })]) })
    }

    /// `place` names the source in problems.
    pub fn read(place: &str, entries: &BTreeMap<String, Vec<u8>>) -> Result<Keyring, Error> {
        let entry = |name: &str| {
            let missing = || Error::refused(place, format!("{name} is missing"), RESTORE);
            entries.get(name).ok_or_else(missing)
        };
        let kept = Kept::parse(place, entry(STATE)?)?;
        let mut members = BTreeMap::new();
        for id in kept.rotation.trusted() {
            let damaged = |name: &str, what: &str| Error::refused(place, format!("{name} is damaged: {what}"), RESTORE);
            let (crt, key) = (format!("{id}.crt"), format!("{id}.key"));
            let ders = pem::certificates(entry(&crt)?).map_err(|error| damaged(&crt, &error.what))?;
            let certificate = Certificate::read(&ders[0]).map_err(|what| damaged(&crt, &what))?;
            let private = pem::private_key(entry(&key)?).map_err(|error| damaged(&key, &error.what))?;
            if certificate.key_id() != *id {
                return Err(damaged(&crt, "it is not the certificate of this authority"));
            }
            if crate::check::public_key(&private).as_deref() != Some(certificate.public_key()) {
                return Err(damaged(&key, "it is not the key of this authority"));
            }
            let key_pem = String::from_utf8_lossy(entry(&key)?).into_owned();
            members.insert(id.clone(), Member { certificate, key_pem });
        }
        Ok(Keyring { kept, members })
    }

    pub fn entries(&self) -> BTreeMap<String, Vec<u8>> {
        let mut all = BTreeMap::from([(STATE.to_owned(), self.kept.text())]);
        for (id, member) in &self.members {
            let certificate = pem::encode_certificates([member.certificate.der()]);
            all.insert(format!("{id}.crt"), certificate.into_bytes());
            all.insert(format!("{id}.key"), member.key_pem.clone().into_bytes());
        }
        all
    }

    pub fn rotation(&self) -> &State {
        &self.kept.rotation
    }

    /// The signing authority.
    pub fn signing(&self) -> &Certificate {
        &self.member(self.kept.rotation.signing()).certificate
    }

    /// The newest authority: clients that trust it need no update until the next rotation begins.
    pub fn newest(&self) -> &KeyId {
        match &self.kept.rotation {
            State::Steady { signing } | State::Switched { signing, .. } => signing,
            State::Announced { next, .. } => next,
        }
    }

    /// All trusted authorities, PEM, the signing one first.
    pub fn trust_bundle(&self) -> String {
        let trusted = self.kept.rotation.trusted();
        trusted.into_iter().map(|id| pem::encode_certificates([self.member(id).certificate.der()])).collect()
    }

    /// Makes one step of a rotation; returns whether anything changed. Callers must know that the step is safe.
    pub fn rotate(&mut self, step: Step, now: UnixSeconds) -> Result<bool, Error> {
        let before = self.kept.rotation.clone();
        let event = match (step, &before) {
            (Step::Begin, State::Steady { .. }) => {
                let (certificate, key_pem) = issuance::new_authority(&self.kept.name, self.kept.validity, now)?;
                let next = certificate.key_id();
                self.members.insert(next.clone(), Member { certificate, key_pem });
                Event::Begin { next }
            }
            (Step::Begin, state) => Event::Begin { next: state.signing().clone() },
            (Step::Switch, _) => Event::Switch,
            (Step::SwitchBack, _) => Event::SwitchBack,
            (Step::Finish, _) => Event::Finish,
            (Step::Cancel, _) => Event::Cancel,
        };
        let after = rotation::next(&before, &event).map_err(|illegal| {
            let advice = format!("the next step is {}", before.next_step().flag);
            Error::refused(&self.kept.name, illegal.to_string(), advice)
        })?;
        let trusted: Vec<KeyId> = after.trusted().into_iter().cloned().collect();
        self.members.retain(|id, _| trusted.contains(id));
        self.kept.rotation = after;
        Ok(self.kept.rotation != before)
    }

    /// A new leaf with its bundle.
    pub fn issue(&self, wish: Wish<'_>, now: UnixSeconds) -> Result<Delivery, Error> {
        let signer = self.member(self.kept.rotation.signing());
        let key = pem::private_key(signer.key_pem.as_bytes())
            .map_err(|error| Error::refused(&self.kept.name, error.what, RESTORE))?;
        let file = |name: &str| PathBuf::from(name);
        let places = Files { certificate: file("tls.crt"), key: file("tls.key"), ca: file("ca.crt") };
        issuance::new_leaf(&signer.certificate, key, wish, self.trust_bundle(), places, now)
    }

    fn member(&self, id: &KeyId) -> &Member {
        self.members.get(id).expect("read and rotate ensure that trusted authorities are members")
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("rotation", &self.kept.rotation).finish_non_exhaustive()
    }
}
