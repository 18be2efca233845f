//! The authority of a federation: a directory with its keys, and the operations of `trellis pki` on it.
//!
//! ```text
//! DIR/state.json        the signing authority, the trusted ones, foreign ones. Defines the state of the directory
//! DIR/cas/ID/           ca.crt and ca.key of an authority; a directory appears atomically and never changes
//! DIR/leaves/ID.json    the last leaf issued to a directory
//! DIR/lock              held during changes
//! ```
//! Every change ends with the atomic replacement of `state.json`. The next step of a rotation removes what a crash left
//! beside it. All operations are idempotent.

mod issue;
mod kept;
mod survey;
#[cfg(test)]
mod tests;
mod trust;

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::issue::{Issued, LEAF_VALIDITY, Order};
use self::kept::LeafRecord;
pub(crate) use self::kept::{FORMAT, Kept};
pub use self::survey::{Leaf, Role, Survey, Trusted};
use crate::certificate::{Certificate, KeyId};
use crate::disk::{Content, Disk, PRIVATE_DIR, PRIVATE_FILE, PUBLIC_FILE, entries};
use crate::issuance;
use crate::rotation::{self, Event, State};
use crate::span::Span;
use crate::{Error, UnixSeconds, date, pem};
use trellis_diagnostic::Diagnostic;

pub const CA_VALIDITY: Span = Span::years(10);
const MIN_CA_VALIDITY: Span = Span::days(1);
const MAX_CA_VALIDITY: Span = Span::years(50);
const MAX_NAME_CHARS: usize = 40;
const CAS: &str = "cas";
const LOCK: &str = "lock";
const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
/// Others hold the lock for milliseconds.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(50);
const LOCK_ATTEMPTS: u32 = 100;

/// The steps of a rotation, as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Begin,
    Switch,
    SwitchBack,
    Finish,
    Cancel,
}

pub struct Authority {
    dir: PathBuf,
    disk: Disk,
    kept: Kept,
}

/// Held while the directory is changed; the system releases it when the process ends.
struct Lock {
    _file: File,
}

/// Problems with the arguments of a new authority.
pub fn problems(name: &str, validity: Span) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || " -_.".contains(letter);
    if name.trim().is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(allowed) {
        let what = format!("{name:?} cannot be the name of an authority");
        let advice = format!("use up to {MAX_NAME_CHARS} letters, digits, spaces, hyphens, underscores and dots");
        problems.push(Diagnostic::error("--name", what, advice));
    }
    if validity < MIN_CA_VALIDITY || validity > MAX_CA_VALIDITY {
        let what = format!("an authority cannot be valid for {validity}");
        problems.push(Diagnostic::error("--validity", what, format!("use {MIN_CA_VALIDITY} to {MAX_CA_VALIDITY}")));
    }
    problems
}

impl Authority {
    /// Creates an authority in an empty or new directory.
    pub fn init(dir: &Path, name: &str, validity: Span, now: UnixSeconds) -> Result<Authority, Error> {
        Authority::init_on(Disk::default(), dir, name, validity, now)
    }

    fn init_on(disk: Disk, dir: &Path, name: &str, validity: Span, now: UnixSeconds) -> Result<Authority, Error> {
        let mut problems = problems(name, validity);
        problems.extend(occupied(dir)?);
        if !problems.is_empty() {
            return Err(Error::Refused(problems));
        }
        disk.make_dir(dir, PRIVATE_DIR)?;
        disk.set_mode(dir, PRIVATE_DIR)?;
        let _lock = lock(dir)?;
        // Another process may have created one before the lock was taken.
        if let Some(problem) = occupied(dir)? {
            return Err(Error::Refused(vec![problem]));
        }
        sweep(&disk, dir, &[])?;
        let signing = make_ca(&disk, dir, name, validity, now)?;
        let rotation = State::Steady { signing };
        let kept = Kept { format: FORMAT, name: name.to_owned(), validity, rotation, foreign: Vec::new() };
        kept.write(&disk, dir)?;
        Ok(Authority { dir: dir.to_owned(), disk, kept })
    }

    pub fn open(dir: &Path) -> Result<Authority, Error> {
        Authority::open_on(Disk::default(), dir)
    }

    fn open_on(disk: Disk, dir: &Path) -> Result<Authority, Error> {
        Ok(Authority { dir: dir.to_owned(), kept: Kept::read(dir)?, disk })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn rotation(&self) -> &State {
        &self.kept.rotation
    }

    /// Makes one step of a rotation; returns whether anything changed. `force` removes an authority from the trust although
    /// leaves of it are still valid.
    pub fn rotate(&mut self, step: Step, force: bool, now: UnixSeconds) -> Result<bool, Error> {
        let _lock = self.lock_and_reread()?;
        let before = self.kept.rotation.clone();
        sweep(&self.disk, &self.dir, &before.trusted())?;
        let event = match (step, &before) {
            (Step::Begin, State::Steady { .. }) => {
                let Kept { name, validity, .. } = &self.kept;
                Event::Begin { next: make_ca(&self.disk, &self.dir, name, *validity, now)? }
            }
            (Step::Begin, state) => Event::Begin { next: state.signing().clone() },
            (Step::Switch, _) => Event::Switch,
            (Step::SwitchBack, _) => Event::SwitchBack,
            (Step::Finish, _) => Event::Finish,
            (Step::Cancel, _) => Event::Cancel,
        };
        let after = rotation::next(&before, &event).map_err(|illegal| self.refuse_step(&illegal))?;
        if after == before {
            return Ok(false);
        }
        if !force {
            self.refuse_orphans(&before, &after, now)?;
        }
        self.kept.rotation = after;
        self.kept.write(&self.disk, &self.dir)?;
        sweep(&self.disk, &self.dir, &self.kept.rotation.trusted())?;
        Ok(true)
    }

    fn refuse_step(&self, illegal: &rotation::Illegal) -> Error {
        let next = self.kept.rotation.next_step();
        let advice = format!("the next step is {}, which {}", next.flag, next.does);
        Error::refused(self.dir.display().to_string(), illegal.to_string(), advice)
    }

    /// Refuses a step after which clients would no longer trust a leaf that may be in use.
    fn refuse_orphans(&self, before: &State, after: &State, now: UnixSeconds) -> Result<(), Error> {
        let kept = after.trusted();
        let mut problems = Vec::new();
        for dropped in before.trusted().into_iter().filter(|id| !kept.contains(id)) {
            let subject = self.certificate(dropped)?.subject;
            for LeafRecord { out, leaf } in LeafRecord::read_all(&self.dir)? {
                if leaf.issuer == subject && leaf.left_s(now) > 0 {
                    let what = format!("the leaf issued to it by {subject} is valid until {}", date(leaf.not_after));
                    let advice = "issue it again: trellis pki issue --renew; if it is no longer used, give --force";
                    problems.push(Diagnostic::in_file(&out, what, advice));
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::Refused(problems)) }
    }

    /// The certificate of one of our authorities.
    fn certificate(&self, id: &KeyId) -> Result<Certificate, Error> {
        let path = ca_dir(&self.dir, id).join(CA_CERTIFICATE);
        let damaged = |what: String| Error::Refused(vec![Diagnostic::in_file(&path, what, "restore it from a backup")]);
        let (text, _) = crate::disk::read_small(&path).map_err(Error::disk("read", &path))?;
        let all = pem::certificates(&text).map_err(|error| damaged(error.what))?;
        let certificate = Certificate::read(&all[0]).map_err(damaged)?;
        if certificate.key_id() != *id {
            return Err(damaged("it is not the certificate of this authority".to_owned()));
        }
        Ok(certificate)
    }

    /// Takes the lock, and reads the current state.
    fn lock_and_reread(&mut self) -> Result<Lock, Error> {
        let lock = lock(&self.dir)?;
        self.kept = Kept::read(&self.dir)?;
        Ok(lock)
    }
}

fn ca_dir(dir: &Path, id: &KeyId) -> PathBuf {
    dir.join(CAS).join(id.as_str())
}

/// Creates an unused authority.
fn make_ca(disk: &Disk, dir: &Path, name: &str, validity: Span, now: UnixSeconds) -> Result<KeyId, Error> {
    let (certificate, key_pem) = issuance::new_authority(name, validity, now)?;
    let id = certificate.key_id();
    let text = pem::encode_certificates([certificate.der()]);
    disk.make_dir(&dir.join(CAS), PRIVATE_DIR)?;
    let files = [
        Content { name: CA_CERTIFICATE, bytes: text.as_bytes(), mode: PUBLIC_FILE },
        Content { name: CA_KEY, bytes: key_pem.as_bytes(), mode: PRIVATE_FILE },
    ];
    disk.place_dir(&ca_dir(dir, &id), PRIVATE_DIR, &files)?;
    Ok(id)
}

/// Removes files that no state names: incomplete ones, and authorities that were cancelled or never used.
fn sweep(disk: &Disk, dir: &Path, used: &[&KeyId]) -> Result<(), Error> {
    disk.sweep(dir)?;
    disk.sweep(&dir.join(CAS))?;
    for entry in orphans(dir, used)? {
        // The key first: half a removal must not leave it.
        disk.remove_file(&entry.join(CA_KEY))?;
        disk.remove_dir(&entry)?;
    }
    Ok(())
}

/// Directories of authorities that no state names.
fn orphans(dir: &Path, used: &[&KeyId]) -> Result<Vec<PathBuf>, Error> {
    let orphan = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        KeyId::is_one(&name) && !used.iter().any(|id| id.as_str() == name)
    };
    Ok(entries(&dir.join(CAS))?.into_iter().filter(orphan).collect())
}

/// Why no authority can be created in `dir`, or `None`.
fn occupied(dir: &Path) -> Result<Option<Diagnostic>, Error> {
    if dir.exists() && !dir.is_dir() {
        return Ok(Some(Diagnostic::in_file(dir, "it is no directory", "give another one")));
    }
    if Kept::path(dir).exists() {
        let what = "an authority exists already, and is never overwritten";
        let advice = "see trellis pki show, replace it with trellis pki rotate, or give another directory";
        return Ok(Some(Diagnostic::in_file(dir, what, advice)));
    }
    // An interrupted init leaves these.
    let ours = |name: &str| name == CAS || name == LOCK || name.starts_with(".new-");
    let foreign =
        entries(dir)?.into_iter().find(|path| !path.file_name().is_some_and(|name| ours(&name.to_string_lossy())));
    Ok(foreign.map(|path| {
        let what = format!("the directory is not empty: it has {}", path.display());
        Diagnostic::in_file(dir, what, "give an empty or a new directory: the key must not be beside other files")
    }))
}

fn lock(dir: &Path) -> Result<Lock, Error> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(PRIVATE_FILE).open(&path);
    let file = file.map_err(Error::disk("open", &path))?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_DELAY),
            Err(TryLockError::Error(error)) => return Err(Error::disk("lock", &path)(error)),
        }
    }
    let busy = std::io::Error::other("another trellis pki has been at work here for seconds");
    Err(Error::disk("lock", &path)(busy))
}
