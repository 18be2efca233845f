//! Object files: what instructions and replies consist of, one file each, named by content. Who still needs which object is
//! not known here.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use trellis_core::id::ObjectId;
use trellis_wire::object::object_id;

/// A directory of objects. All calls may wait for the disk.
#[derive(Debug, Clone)]
pub struct Objects {
    directory: Arc<Path>,
}

impl Objects {
    /// Opens, or makes, the directory. What a crash left half-written there goes.
    pub fn open(directory: &Path) -> io::Result<Objects> {
        fs::create_dir_all(directory)?;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if id_of(&path).is_none() {
                fs::remove_file(path)?;
            }
        }
        Ok(Objects { directory: directory.into() })
    }

    fn path(&self, id: ObjectId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    pub fn has(&self, id: ObjectId) -> bool {
        self.path(id).exists()
    }

    /// 0 if it is not here.
    pub fn len_bytes(&self, id: ObjectId) -> u64 {
        fs::metadata(self.path(id)).map_or(0, |metadata| metadata.len())
    }

    /// The bytes of an object; `None` if it is not here, or damaged: then it goes, to be fetched or made again.
    pub fn read(&self, id: ObjectId) -> io::Result<Option<Bytes>> {
        let bytes = match fs::read(self.path(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => Bytes::from(other?),
        };
        if object_id(&bytes) == id {
            return Ok(Some(bytes));
        }
        self.remove(id)?;
        Ok(None)
    }

    /// Keeps an object whose name is known to be right. It is not forced to the disk: `read` finds out what a loss of power
    /// took.
    pub fn put(&self, id: ObjectId, bytes: &[u8]) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(bytes)?;
        file.persist(self.path(id)).map_err(|error| error.error)?;
        Ok(())
    }

    pub fn remove(&self, id: ObjectId) -> io::Result<()> {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Bytes that all of them take.
    pub fn used_bytes(&self) -> io::Result<u64> {
        let mut used = 0;
        for entry in fs::read_dir(&self.directory)? {
            match entry?.metadata() {
                Ok(metadata) => used += metadata.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // Just now gone.
                Err(error) => return Err(error),
            }
        }
        Ok(used)
    }

    /// Everything that is here.
    pub fn all(&self) -> io::Result<Vec<ObjectId>> {
        let paths = fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.path()));
        paths.filter_map(|path| path.map(|path| id_of(&path)).transpose()).collect()
    }
}

fn id_of(path: &Path) -> Option<ObjectId> {
    path.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_come_back_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::open(directory.path()).unwrap();
        let (bytes, other) = (b"ArrayChunk  2\0ab", b"ArrayChunk  2\0cd");
        let (id, damaged) = (object_id(bytes), object_id(other));
        objects.put(id, bytes).unwrap();
        objects.put(damaged, b"ArrayChunk  2\0c").unwrap();
        assert_eq!(objects.read(id).unwrap().unwrap(), &bytes[..]);
        assert_eq!(objects.read(damaged).unwrap(), None);
        assert!(!objects.has(damaged));
        assert_eq!(objects.all().unwrap(), [id]);
        objects.remove(id).unwrap();
        objects.remove(id).unwrap();
        assert_eq!(objects.read(id).unwrap(), None);
    }

    #[test]
    fn what_a_crash_left_half_written_goes() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".tmpXYZ"), "half").unwrap();
        assert!(Objects::open(directory.path()).unwrap().all().unwrap().is_empty());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
