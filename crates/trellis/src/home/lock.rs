//! Locks that end with their holder, however that ends: the system sees to it. Who holds one is written into its file.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Who only looks holds a lock for a moment; who wants it does not mind for so long.
const TRIES: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(25);

#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// A holder's end, awaited.
pub struct Waiting {
    ended: tokio::sync::oneshot::Receiver<io::Result<()>>,
}

impl Lock {
    /// Takes the lock, or tells the process that holds it (0: it has not said who it is).
    pub fn take(path: &Path) -> io::Result<Result<Lock, u32>> {
        let mut file = open(path)?;
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => {
                    file.set_len(0)?;
                    file.rewind()?;
                    write!(file, "{}", std::process::id())?;
                    return Ok(Ok(Lock { _file: file }));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(TRY_AGAIN),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(Err(pid_in(&mut file)))
    }

    /// The process that holds the lock; `None`: nobody does.
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

    /// Waits, on a thread of its own, until nobody holds the lock. The thread ends with the process.
    pub fn wait(path: &Path) -> io::Result<Waiting> {
        let file = open(path)?;
        let (tell, ended) = tokio::sync::oneshot::channel();
        let look = move || {
            let free = file.lock_shared();
            drop(file);
            // Nobody listens any more: it is no longer of interest.
            let _ = tell.send(free);
        };
        std::thread::Builder::new().name("lock".to_owned()).stack_size(64 << 10).spawn(look)?;
        Ok(Waiting { ended })
    }
}

impl Waiting {
    pub async fn ended(self) -> io::Result<()> {
        self.ended.await.unwrap_or_else(|_| Err(io::Error::other("the thread that waited is gone")))
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
    async fn a_lock_has_one_holder_and_its_end_is_seen() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lock");
        assert_eq!(Lock::holder(&path).expect("looked"), None);
        let lock = Lock::take(&path).expect("locked").expect("nobody has it");
        assert_eq!(Lock::holder(&path).expect("looked"), Some(std::process::id()));
        assert_eq!(Lock::take(&path).expect("looked").expect_err("it is held"), std::process::id());
        let waiting = Lock::wait(&path).expect("a thread");
        drop(lock);
        waiting.ended().await.expect("seen");
        assert_eq!(Lock::holder(&path).expect("looked"), None);
        Lock::take(&path).expect("locked").expect("nobody has it");
    }
}
