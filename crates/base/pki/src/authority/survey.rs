//! The data of `trellis pki show`: authorities, leaves, and recommended actions. Changes nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::kept::LeafRecord;
use super::{Authority, CA_KEY, ca_dir, orphans};
use crate::certificate::Certificate;
use crate::check::issued_by;
use crate::renewal::is_old;
use crate::rotation::State;
use crate::span::roughly;
use crate::{Error, UnixSeconds, date};
use trellis_diagnostic::Diagnostic;

/// An authority should be rotated when less than this fraction of its lifetime is left: nodes need time to follow.
const LAST_PART: i64 = 10;
const GROUP_AND_OTHERS: u32 = 0o077;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Signs the leaves.
    Signing,
    /// Will sign them after the next step.
    Next,
    /// Signed them before.
    Old,
    /// Signs elsewhere; clients trust it all the same.
    Foreign,
}

/// An authority in the trust bundle.
#[derive(Debug)]
pub struct Trusted {
    pub role: Role,
    pub certificate: Certificate,
}

/// The last leaf issued to a directory.
#[derive(Debug)]
pub struct Leaf {
    pub out: PathBuf,
    pub certificate: Certificate,
}

#[derive(Debug)]
pub struct Survey {
    pub name: String,
    pub rotation: State,
    pub trusted: Vec<Trusted>,
    pub leaves: Vec<Leaf>,
    pub warnings: Vec<Diagnostic>,
}

impl Authority {
    pub fn survey(&self, now: UnixSeconds) -> Result<Survey, Error> {
        let rotation = self.kept.rotation.clone();
        let mut trusted = Vec::new();
        for id in rotation.trusted() {
            let role = match &rotation {
                _ if id == rotation.signing() => Role::Signing,
                State::Announced { .. } => Role::Next,
                State::Steady { .. } | State::Switched { .. } => Role::Old,
            };
            trusted.push(Trusted { role, certificate: self.certificate(id)? });
        }
        trusted.extend(self.foreign()?.into_iter().map(|certificate| Trusted { role: Role::Foreign, certificate }));
        let records = LeafRecord::read_all(&self.dir)?;
        let leaves: Vec<Leaf> =
            records.into_iter().map(|LeafRecord { out, leaf }| Leaf { out, certificate: leaf }).collect();

        let mut warnings = self.loose_modes()?;
        warnings.extend(trusted.iter().filter_map(|one| ending(&self.dir, one, now)));
        let authorities: Vec<Certificate> = trusted.iter().map(|one| one.certificate.clone()).collect();
        warnings.extend(leaves.iter().filter_map(|leaf| trouble(leaf, &authorities, now)));
        for path in orphans(&self.dir, &rotation.trusted())? {
            let what = "it belongs to no state of the rotation: a step was interrupted";
            warnings.push(warning(&path, what.to_owned(), "repeat the step, which removes it"));
        }
        Ok(Survey { name: self.kept.name.clone(), rotation, trusted, leaves, warnings })
    }

    fn loose_modes(&self) -> Result<Vec<Diagnostic>, Error> {
        let mut paths = vec![(self.dir.clone(), "700")];
        paths.extend(self.rotation().trusted().iter().map(|id| (ca_dir(&self.dir, id).join(CA_KEY), "600")));
        let mut found = Vec::new();
        for (path, mode) in paths {
            let metadata = path.metadata().map_err(Error::disk("look at", &path))?;
            let present = metadata.permissions().mode() & 0o7777;
            if present & GROUP_AND_OTHERS != 0 {
                let what = format!("users other than its owner have permissions (mode {present:04o})");
                found.push(warning(&path, what, &format!("chmod {mode} {}", path.display())));
            }
        }
        Ok(found)
    }
}

fn ending(dir: &Path, trusted: &Trusted, now: UnixSeconds) -> Option<Diagnostic> {
    let Certificate { subject, not_after, .. } = &trusted.certificate;
    let left = trusted.certificate.left_s(now);
    if left >= trusted.certificate.lifetime_s() / LAST_PART {
        return None;
    }
    let what = match left {
        ..0 => format!("{subject} expired on {}", date(*not_after)),
        left => format!("{subject} expires in {}, on {}", roughly(left), date(*not_after)),
    };
    let advice = match trusted.role {
        Role::Signing | Role::Next => "rotate: trellis pki rotate --begin",
        Role::Old => "finish the rotation: trellis pki rotate --finish",
        Role::Foreign => "add the new certificate of its owner, remove this one: trellis pki trust --add, --remove",
    };
    Some(warning(dir, what, advice))
}

fn trouble(leaf: &Leaf, authorities: &[Certificate], now: UnixSeconds) -> Option<Diagnostic> {
    let certificate = &leaf.certificate;
    let renew = "trellis pki issue --renew, from a timer or with --watch";
    if certificate.left_s(now) < 0 {
        return Some(warning(&leaf.out, format!("its leaf expired on {}", date(certificate.not_after)), renew));
    }
    if issued_by(certificate, authorities).is_none() {
        return Some(warning(&leaf.out, "its leaf is of a CA that is no longer trusted".to_owned(), renew));
    }
    let left = roughly(certificate.left_s(now));
    is_old(certificate, now).then(|| warning(&leaf.out, format!("its leaf is due for renewal, {left} are left"), renew))
}

fn warning(path: &Path, what: String, advice: &str) -> Diagnostic {
    Diagnostic::warning(path.display().to_string(), what, advice)
}
