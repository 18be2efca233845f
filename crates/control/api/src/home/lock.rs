//! File locks, which the kernel releases when their holder ends. The file contains the holder's process id.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// `holder` takes a shared lock for a moment, so `take` retries.
const MAX_TRIES: u32 = 20;
const RETRY_DELAY: Duration = Duration::from_millis(25);

#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Resolves when the lock is free.
pub struct Waiting {
    ended: tokio::sync::oneshot::Receiver<io::Result<()>>,
}

impl Lock {
    /// Takes the lock, or returns the id of the process that holds it: 0 if the file does not contain it yet.
    pub fn take(path: &Path) -> io::Result<Result<Lock, u32>> {
        let mut file = open(path)?;
        for _ in 0..MAX_TRIES {
            match file.try_lock() {
                Ok(()) => {
                    file.set_len(0)?;
                    file.rewind()?;
                    write!(file, "{}", std::process::id())?;
                    return Ok(Ok(Lock { _file: file }));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(RETRY_DELAY),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(Err(pid_in(&mut file)))
    }

    /// The process that holds the lock, or `None`.
    pub fn holder(path: &Path) -> io::Result<Option<u32>> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(pid_in(&mut file))),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits on a separate thread until the lock is free. The thread may outlive the returned value.
    pub fn wait(path: &Path) -> io::Result<Waiting> {
        let file = open(path)?;
        let (sender, ended) = tokio::sync::oneshot::channel();
        let wait = move || {
            let free = file.lock_shared();
            drop(file);
            // The receiver may be dropped.
            let _ = sender.send(free);
        };
        std::thread::Builder::new().name("lock".to_owned()).stack_size(64 << 10).spawn(wait)?;
        Ok(Waiting { ended })
    }
}

impl Waiting {
    pub async fn ended(self) -> io::Result<()> {
        self.ended.await.unwrap_or_else(|_| Err(io::Error::other("the waiting thread ended early")))
    }
}

fn open(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn pid_in(file: &mut File) -> u32 {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_has_one_holder_and_its_release_is_observed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lock");
        assert_eq!(Lock::holder(&path).expect("readable"), None);
        let lock = Lock::take(&path).expect("locked").expect("the lock is free");
        assert_eq!(Lock::holder(&path).expect("readable"), Some(std::process::id()));
        assert_eq!(Lock::take(&path).expect("readable").expect_err("the lock is held"), std::process::id());
        let waiting = Lock::wait(&path).expect("a thread");
        drop(lock);
        waiting.ended().await.expect("released");
        assert_eq!(Lock::holder(&path).expect("readable"), None);
        Lock::take(&path).expect("locked").expect("the lock is free");
    }
}
