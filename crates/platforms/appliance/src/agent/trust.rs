//! Certificates of a SuperLink and the trust bundle of a node: when they are renewed, and when programs must restart for them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use trellis_clock::now_unix;

use super::Agent;
use crate::certificates::provide;
use crate::discovery::check_authority;
use crate::disk;
use crate::facts;
use crate::failure::{Code, Failure};
use crate::readiness::Observed;
use crate::settings::SuperLinkSettings;

/// Interval of the checks whether a certificate must be renewed.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Certificates {
    checked: Option<Instant>,
    /// Modification time of the authority at the last check. A rotation is followed at once.
    authority: Option<SystemTime>,
    /// Files that the running programs have not read.
    unread: BTreeSet<Unread>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unread {
    Certificate,
    Trust,
}

impl Certificates {
    /// Programs that were started now have read all files.
    pub fn restarted(&mut self) {
        self.unread.clear();
    }

    /// Whether an official program must restart: a SuperLink outside a round, or a node without a connection.
    pub fn requires_restart(&self, observed: &Observed) -> bool {
        self.unread.iter().any(|file| match file {
            Unread::Certificate => observed.busy != Some(true),
            Unread::Trust => !observed.serving,
        })
    }
}

impl Agent {
    /// Provides the SuperLink's certificates, and returns the PEM of the authorities that nodes trust.
    pub(super) fn certificates(&mut self, link: &SuperLinkSettings) -> Result<String, Failure> {
        let authority =
            std::fs::metadata(self.place.authority().join("state.json")).and_then(|file| file.modified()).ok();
        let in_force = self.current.as_ref().map(|current| &current.settings);
        let is_due = self.certificates.checked.is_none_or(|at| at.elapsed() >= CHECK_INTERVAL)
            || self.certificates.authority != authority
            || in_force != self.inputs.settings.as_ref();
        let served = self.place.served(&link.certificates);
        let trust = std::fs::read_to_string(served.join("ca.crt"));
        if let (false, Ok(trust)) = (is_due, trust) {
            return Ok(trust);
        }
        let facts = &self.inputs.facts;
        let advertised = facts::advertised(link.fleet, facts);
        let provided = provide(&link.certificates, advertised, &facts.addresses, &self.place, self.owner, now_unix())?;
        self.certificates.checked = Some(Instant::now());
        self.certificates.authority = authority;
        if provided.is_new && self.current.is_some() {
            self.certificates.unread.insert(Unread::Certificate);
        }
        Ok(provided.trust)
    }

    /// Writes the authorities that the node trusts.
    pub(super) fn write_trust(&mut self, pem: &str) -> Result<(), Failure> {
        let path = self.place.trust();
        let failed = |error: std::io::Error| Failure::new(Code::TlsSetupFailed, error.to_string());
        check_authority(pem).map_err(|why| Failure::new(Code::CaInvalid, why))?;
        disk::make_directory(path.parent().unwrap_or(&path), 0o755, None).map_err(failed)?;
        let changed = disk::write(&path, pem.as_bytes(), 0o644, None).map_err(failed)?;
        if changed && self.current.is_some() {
            self.certificates.unread.insert(Unread::Trust);
        }
        Ok(())
    }
}
