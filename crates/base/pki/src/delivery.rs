//! The directory of a SuperLink's certificate: `server.pem`, `server.key` and `ca.crt`, always of one issue.
//!
//! The three are links into `.current`, which is a link to an immutable directory. A new issue is a new directory and one
//! rename, so a crash cannot combine a certificate with the key of another issue. A reader that races with the rename finds
//! that the files do not match or have changed, and retries. The key of the authority is never written here.

use std::fs;
use std::path::{Path, PathBuf};

use trellis_digest::{hex, sha256};

use crate::certificate::Certificate;
use crate::disk::{Content, Disk, PRIVATE_DIR, PRIVATE_FILE, PUBLIC_DIR, PUBLIC_FILE, entries, read_small};
use crate::{Error, pem};

pub const CERTIFICATE: &str = "server.pem";
pub const KEY: &str = "server.key";
pub const TRUST: &str = "ca.crt";
const NAMES: [&str; 3] = [CERTIFICATE, KEY, TRUST];
const CURRENT: &str = ".current";
const ISSUE: &str = ".issue-";

/// The files that a SuperLink serves with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The leaf and intermediate certificates, PEM.
    pub chain: String,
    pub key: String,
    /// The trust bundle, PEM.
    pub trust: String,
}

/// The content of a directory before an issue.
pub enum Present {
    Nothing,
    /// Complete, from an earlier issue.
    Whole {
        delivery: Delivery,
        leaf: Box<Certificate>,
    },
    /// From an earlier issue, but no longer usable.
    Damaged(String),
    /// Files of others, which are never overwritten.
    Foreign(PathBuf),
}

/// Reads the delivery in `out`.
pub fn present(out: &Path) -> Present {
    for name in NAMES {
        let path = out.join(name);
        match path.symlink_metadata() {
            Ok(_) if fs::read_link(&path).is_ok_and(|target| target == target_of(name)) => {}
            Ok(_) => return Present::Foreign(path),
            Err(_) => {}
        }
    }
    if out.join(CURRENT).symlink_metadata().is_err() {
        return Present::Nothing;
    }
    match read(out) {
        Ok((delivery, leaf)) => Present::Whole { delivery, leaf: Box::new(leaf) },
        Err(why) => Present::Damaged(why),
    }
}

fn target_of(name: &str) -> PathBuf {
    Path::new(CURRENT).join(name)
}

fn read(out: &Path) -> Result<(Delivery, Certificate), String> {
    let text = |name: &str| {
        let path = out.join(target_of(name));
        let (bytes, _) = read_small(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        String::from_utf8(bytes).map_err(|_| format!("{} is no text", path.display()))
    };
    let delivery = Delivery { chain: text(CERTIFICATE)?, key: text(KEY)?, trust: text(TRUST)? };
    let chain =
        pem::certificates(delivery.chain.as_bytes()).map_err(|error| format!("{CERTIFICATE}: {}", error.what))?;
    let leaf = Certificate::read(&chain[0])?;
    let key = pem::private_key(delivery.key.as_bytes()).map_err(|error| format!("{KEY}: {}", error.what))?;
    if crate::check::public_key(&key).as_deref() != Some(leaf.public_key()) {
        return Err(format!("{KEY} does not belong to {CERTIFICATE}"));
    }
    Ok((delivery, leaf))
}

/// Replaces the previous delivery.
pub fn deliver(disk: &Disk, out: &Path, delivery: &Delivery) -> Result<(), Error> {
    disk.make_dir(out, PRIVATE_DIR)?;
    let whole = format!("{}{}{}", delivery.chain, delivery.key, delivery.trust);
    let issue = format!("{ISSUE}{}", hex(&sha256(whole.as_bytes())[..8]));
    let files = [
        Content { name: CERTIFICATE, bytes: delivery.chain.as_bytes(), mode: PUBLIC_FILE },
        Content { name: KEY, bytes: delivery.key.as_bytes(), mode: PRIVATE_FILE },
        Content { name: TRUST, bytes: delivery.trust.as_bytes(), mode: PUBLIC_FILE },
    ];
    disk.place_dir(&out.join(&issue), PUBLIC_DIR, &files)?;
    disk.point_link(&out.join(CURRENT), &issue)?;
    complete(disk, out)
}

/// Completes a delivery that a crash may have interrupted: writes the three links, removes older issues.
pub fn complete(disk: &Disk, out: &Path) -> Result<(), Error> {
    for name in NAMES {
        disk.point_link(&out.join(name), &target_of(name).to_string_lossy())?;
    }
    disk.sweep(out)?;
    let link = out.join(CURRENT);
    let current = out.join(fs::read_link(&link).map_err(Error::disk("read link", &link))?);
    for entry in entries(out)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(ISSUE) && entry != current {
            disk.remove_dir(&entry)?;
        }
    }
    Ok(())
}
