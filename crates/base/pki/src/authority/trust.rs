//! The trust bundle of clients, with foreign authorities.

use std::collections::BTreeSet;

use super::Authority;
use crate::certificate::{Certificate, fingerprint};
use crate::{Error, UnixSeconds, date, pem};
use trellis_diagnostic::Diagnostic;

/// A bundle travels in variables of limited size, and each client verifies against all of it.
const MAX_FOREIGN: usize = 20;

impl Authority {
    /// All trusted authorities, PEM, the signing one first.
    pub fn trust_bundle(&self) -> Result<String, Error> {
        let mut text = String::new();
        for id in self.kept.rotation.trusted() {
            text.push_str(&pem::encode_certificates([self.certificate(id)?.der()]));
        }
        text.extend(self.kept.foreign.iter().map(String::as_str));
        Ok(text)
    }

    /// Foreign authorities in the bundle.
    pub fn foreign(&self) -> Result<Vec<Certificate>, Error> {
        let all = self.kept.foreign.iter().map(|text| {
            let ders = pem::certificates(text.as_bytes()).map_err(|error| error.what)?;
            Certificate::read(&ders[0])
        });
        let path = super::Kept::path(&self.dir);
        let all: Result<Vec<_>, String> = all.collect();
        all.map_err(|what| Error::Refused(vec![Diagnostic::in_file(&path, what, "restore it from a backup")]))
    }

    /// Adds the authorities in a PEM text to the bundle. `place` names its source. Returns how many are new.
    pub fn add_trust(&mut self, place: &str, text: &[u8], now: UnixSeconds) -> Result<usize, Error> {
        let _lock = self.lock_and_reread()?;
        let read = pem::certificates(text).map_err(|error| Error::refused(place, error.what, error.advice))?;
        let read: Result<Vec<Certificate>, String> = read.iter().map(Certificate::read).collect();
        let read = read.map_err(|what| Error::refused(place, what, "copy the file again"))?;
        let problems: Vec<Diagnostic> = read.iter().filter_map(|one| unfit(place, one, now)).collect();
        if !problems.is_empty() {
            return Err(Error::Refused(problems));
        }
        let mut known = self.fingerprints()?;
        let new: Vec<&Certificate> = read.iter().filter(|one| known.insert(one.fingerprint.clone())).collect();
        if self.kept.foreign.len() + new.len() > MAX_FOREIGN {
            let what = format!("the bundle would hold more than {MAX_FOREIGN} foreign authorities");
            return Err(Error::refused(place, what, "remove those that are no longer needed: --remove"));
        }
        if new.is_empty() {
            return Ok(0);
        }
        self.kept.foreign.extend(new.iter().map(|one| pem::encode_certificates([one.der()])));
        self.kept.write(&self.disk, &self.dir)?;
        Ok(new.len())
    }

    /// Removes a foreign authority from the bundle. Returns whether it was in the bundle.
    pub fn remove_trust(&mut self, wanted: &str) -> Result<bool, Error> {
        let _lock = self.lock_and_reread()?;
        let plain = |text: &str| text.replace(':', "").to_lowercase();
        for id in self.kept.rotation.trusted() {
            if plain(&self.certificate(id)?.fingerprint) == plain(wanted) {
                let what = format!("{wanted} is an authority of this directory");
                let advice = "replace it in steps: trellis pki rotate";
                return Err(Error::refused("--remove", what, advice));
            }
        }
        let foreign = self.foreign()?;
        let keep: Vec<String> = foreign
            .iter()
            .zip(&self.kept.foreign)
            .filter(|(certificate, _)| plain(&certificate.fingerprint) != plain(wanted))
            .map(|(_, text)| text.clone())
            .collect();
        if keep.len() == foreign.len() {
            return Ok(false);
        }
        self.kept.foreign = keep;
        self.kept.write(&self.disk, &self.dir)?;
        Ok(true)
    }

    fn fingerprints(&self) -> Result<BTreeSet<String>, Error> {
        let bundle = self.trust_bundle()?;
        let all = pem::certificates(bundle.as_bytes()).unwrap_or_default();
        Ok(all.iter().map(|der| fingerprint(der)).collect())
    }
}

/// Why a certificate cannot be trusted as an authority, if so.
fn unfit(place: &str, certificate: &Certificate, now: UnixSeconds) -> Option<Diagnostic> {
    let Certificate { subject, not_after, .. } = certificate;
    if !certificate.is_ca || !certificate.may_sign_certificates {
        let what = format!("{subject} is not the certificate of an authority (CA)");
        return Some(Diagnostic::error(place, what, "give the certificate of the CA that issued it"));
    }
    if certificate.left_s(now) < 0 {
        let what = format!("{subject} expired on {}", date(*not_after));
        return Some(Diagnostic::error(place, what, "ask its owner for the current one"));
    }
    None
}
