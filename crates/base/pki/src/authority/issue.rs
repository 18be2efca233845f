//! Issues a leaf to the directory of a SuperLink, unless none is due.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::kept::LeafRecord;
use super::{Authority, CA_KEY, ca_dir};
use crate::certificate::Certificate;
use crate::check::Files;
use crate::delivery::{self, Delivery, Present};
use crate::disk::read_small;
use crate::endpoint::Endpoint;
use crate::issuance::{self, CLOCK_SKEW, Wish};
use crate::mint::MAX_COMMON_NAME_CHARS;
use crate::renewal::{Reason, due};
use crate::span::{Span, roughly};
use crate::{Error, UnixSeconds, date, pem};
use trellis_diagnostic::Diagnostic;

pub const LEAF_VALIDITY: Span = Span::days(30);
const MIN_LEAF_VALIDITY: Span = Span::hours(1);
/// The maximum lifetime that browsers and mobile systems accept.
const MAX_LEAF_VALIDITY: Span = Span::days(397);
/// An authority stops signing this long before its end.
const LAST_HOUR: Span = Span::hours(1);

/// A requested leaf.
#[derive(Debug, Clone)]
pub struct Order {
    /// All that clients use, the local ones included.
    pub endpoints: Vec<Endpoint>,
    pub out: PathBuf,
    pub validity: Span,
    pub name: Option<String>,
    /// Issue only if the present leaf is missing, damaged, old, or differs from the order.
    pub only_if_due: bool,
}

/// The present content of the directory.
#[derive(Debug)]
pub struct Issued {
    pub leaf: Certificate,
    pub files: Files,
    /// Why a new leaf was issued; `None` if the present one is good.
    pub reason: Option<Reason>,
    /// The leaf is unchanged, the trust bundle is new.
    pub trust_renewed: bool,
    pub warnings: Vec<Diagnostic>,
}

impl Authority {
    /// Problems with the directory of an order and with the signing authority.
    pub fn problems_with_destination(&self, order: &Order, now: UnixSeconds) -> Result<Vec<Diagnostic>, Error> {
        let mut problems = Vec::from_iter(self.too_near(&order.out));
        if let Present::Foreign(path) = delivery::present(&order.out) {
            let what = "trellis pki did not write this file, and never overwrites such files";
            problems.push(Diagnostic::in_file(&path, what, "move it away, or give another directory"));
        }
        let signing = self.certificate(self.rotation().signing())?;
        if signing.left_s(now) < LAST_HOUR.seconds() {
            let what = format!("the CA {} ends on {}", signing.subject, date(signing.not_after));
            problems.push(Diagnostic::in_file(&self.dir, what, "rotate it: trellis pki rotate --begin"));
        }
        Ok(problems)
    }

    pub fn issue(&mut self, order: &Order, now: UnixSeconds) -> Result<Issued, Error> {
        let order = &Order { out: absolute(&order.out), ..order.clone() };
        let _lock = self.lock_and_reread()?;
        let mut problems = order.problems();
        problems.extend(self.problems_with_destination(order, now)?);
        if !problems.is_empty() {
            return Err(Error::Refused(problems));
        }
        let signing = self.certificate(self.rotation().signing())?;
        let trust = self.trust_bundle()?;
        let (reason, kept) = match delivery::present(&order.out) {
            Present::Nothing => (Some(Reason::First), None),
            Present::Damaged(why) => (Some(Reason::Damaged(why)), None),
            Present::Foreign(_) => (Some(Reason::First), None), // Refused above.
            Present::Whole { .. } if !order.only_if_due => (Some(Reason::Asked), None),
            Present::Whole { delivery, leaf } => (due(&leaf, &order.endpoints, &signing, now), Some(delivery)),
        };
        let delivery = match (&reason, kept) {
            (None, Some(delivery)) => Delivery { trust, ..delivery },
            _ => self.new_leaf(order, &signing, trust, now)?,
        };
        let trust_renewed = self.deliver(order, &delivery, reason.is_some())?;
        let leaf = read_leaf(&delivery)?;
        LeafRecord { out: order.out.clone(), leaf: leaf.clone() }.write(&self.disk, &self.dir)?;
        let warnings = self.issue_warnings(order, &leaf, &signing)?;
        Ok(Issued { leaf, files: files_in(&order.out), reason, trust_renewed, warnings })
    }

    /// Writes the trust bundle if it differs, and returns whether that was the only change.
    fn deliver(&self, order: &Order, delivery: &Delivery, new_leaf: bool) -> Result<bool, Error> {
        let same =
            matches!(delivery::present(&order.out), Present::Whole { delivery: present, .. } if present == *delivery);
        if same {
            delivery::complete(&self.disk, &order.out)?;
        } else {
            delivery::deliver(&self.disk, &order.out, delivery)?;
        }
        Ok(!same && !new_leaf)
    }

    fn new_leaf(
        &self,
        order: &Order,
        signing: &Certificate,
        trust: String,
        now: UnixSeconds,
    ) -> Result<Delivery, Error> {
        let path = ca_dir(&self.dir, self.rotation().signing()).join(CA_KEY);
        let (text, _) = read_small(&path).map_err(Error::disk("read", &path))?;
        let key = pem::private_key(&text).map_err(|error| {
            Error::Refused(vec![Diagnostic::in_file(&path, error.what, "restore it from a backup")])
        })?;
        let wish = Wish { endpoints: &order.endpoints, name: order.name.as_deref(), validity: order.validity };
        issuance::new_leaf(signing, key, wish, trust, files_in(&order.out), now)
    }

    /// The key of the authority and the directory of a SuperLink must not contain each other.
    fn too_near(&self, out: &Path) -> Option<Diagnostic> {
        let (dir, out) = (real(&self.dir), real(out));
        if !out.starts_with(&dir) && !dir.starts_with(&out) {
            return None;
        }
        let what = format!("{} and the authority in {} must not contain each other", out.display(), dir.display());
        Some(Diagnostic::error(
            "--out",
            what,
            "give a separate directory: its readers must not read the authority's key",
        ))
    }

    fn issue_warnings(
        &self,
        order: &Order,
        leaf: &Certificate,
        signing: &Certificate,
    ) -> Result<Vec<Diagnostic>, Error> {
        let mut warnings = Vec::new();
        let wished = order.validity.seconds() + CLOCK_SKEW.seconds();
        if leaf.not_after == signing.not_after && leaf.lifetime_s() < wished {
            let what = format!("the leaf is valid for {} only: its CA ends then", roughly(leaf.lifetime_s()));
            warnings.push(Diagnostic::warning(
                self.dir.display().to_string(),
                what,
                "rotate the CA: trellis pki rotate",
            ));
        }
        let owner = |path: &Path| path.metadata().map(|metadata| metadata.uid()).map_err(Error::disk("look at", path));
        if owner(&self.dir)? == owner(&order.out)? {
            let what =
                "it belongs to the user that owns the CA: a SuperLink of that user, and its apps, can read the CA key";
            let advice =
                "on a shared or production machine, let root keep the CA and give this directory to another user";
            warnings.push(Diagnostic::warning(order.out.display().to_string(), what, advice));
        }
        Ok(warnings)
    }
}

impl Order {
    /// Problems with the order itself.
    pub fn problems(&self) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        if self.endpoints.is_empty() {
            let advice = "give each host or address that clients use, e.g. --endpoint link.example.org";
            problems.push(Diagnostic::error("--endpoint", "there is no endpoint", advice));
        }
        for endpoint in self.endpoints.iter().filter(|endpoint| endpoint.is_wildcard()) {
            let what = format!("{endpoint} is an address to listen on; clients cannot connect to it");
            problems.push(Diagnostic::error("--endpoint", what, "give the hosts and addresses that clients use"));
        }
        if self.validity < MIN_LEAF_VALIDITY || self.validity > MAX_LEAF_VALIDITY {
            let what = format!("a leaf cannot be valid for {}", self.validity);
            problems.push(Diagnostic::error(
                "--validity",
                what,
                format!("use {MIN_LEAF_VALIDITY} to {MAX_LEAF_VALIDITY}"),
            ));
        }
        let printable = |name: &str| !name.trim().is_empty() && !name.chars().any(char::is_control);
        if let Some(name) = &self.name
            && (!printable(name) || name.len() > MAX_COMMON_NAME_CHARS)
        {
            let what = format!("{name:?} cannot be the name of a leaf");
            problems.push(Diagnostic::error("--name", what, format!("use 1 to {MAX_COMMON_NAME_CHARS} letters")));
        }
        problems
    }
}

fn files_in(out: &Path) -> Files {
    Files { certificate: out.join(delivery::CERTIFICATE), key: out.join(delivery::KEY), ca: out.join(delivery::TRUST) }
}

fn read_leaf(delivery: &Delivery) -> Result<Certificate, Error> {
    let unreadable = |_| Error::Mint(rcgen::Error::CouldNotParseCertificate);
    let all = pem::certificates(delivery.chain.as_bytes()).map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
    Certificate::read(&all[0]).map_err(unreadable)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The path without links and dots. It need not exist completely.
fn real(path: &Path) -> PathBuf {
    let mut real = PathBuf::new();
    for part in absolute(path).components() {
        match part {
            Component::ParentDir => drop(real.pop()),
            part => real.push(part),
        }
        real = real.canonicalize().unwrap_or(real);
    }
    real
}
