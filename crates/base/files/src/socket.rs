//! Paths of Unix sockets. The system limits the path in a socket address to 107 bytes, but a file may lie deeper. A socket is
//! therefore addressed through an open descriptor of its directory, and the length of the directory's path does not matter.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

/// A short path that names a socket for as long as this lives. Only this process can use it.
pub struct SocketPath {
    path: PathBuf,
    _directory: OwnedFd,
}

impl SocketPath {
    /// Fails if the directory of the socket does not exist. The socket itself need not exist.
    pub fn of(socket: &Path) -> io::Result<SocketPath> {
        let name = socket.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = socket.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(SocketPath { path, _directory: directory })
    }

    /// Valid only while `self` is not dropped. Pass it by reference: `connect(address.get())`.
    pub fn get(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_may_lie_at_a_path_of_any_length() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("d".repeat(200)).join("e".repeat(200));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("node.sock");
        assert!(UnixListener::bind(&socket).is_err(), "the system refuses its path");
        let address = SocketPath::of(&socket).unwrap();
        let listener = UnixListener::bind(address.get()).unwrap();
        UnixStream::connect(address.get()).unwrap().write_all(b"heard").unwrap();
        let mut heard = String::new();
        listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "heard");
        assert!(socket.exists());
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let missing = SocketPath::of(&home.path().join("missing/node.sock"));
        assert_eq!(missing.err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
    }
}
