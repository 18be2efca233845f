//! Object files: the objects of instructions and replies, one file each, named by content hash. The store knows which objects
//! are still needed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::OnceCell;
use trellis_core::id::ObjectId;
use trellis_wire::object::object_id;

/// The total size of `PulledObjects`; above it, they are dropped.
const MAX_PULLED_BYTES: usize = 64 << 20;
/// Larger objects are files even for temporary nodes: models may exceed the memory.
const MAX_MEMORY_OBJECT_BYTES: usize = 64 << 10;

/// A cache of objects that temporary nodes of one process pulled. All receive the same model per round, so one of them pulls it.
#[derive(Debug, Clone, Default)]
pub struct PulledObjects(Arc<Mutex<Pulled>>);

#[derive(Debug, Default)]
struct Pulled {
    objects: BTreeMap<ObjectId, Arc<OnceCell<Bytes>>>,
    bytes: usize,
}

impl PulledObjects {
    /// The object; `pull` is called unless another node has pulled it or is pulling it.
    pub async fn get<E, F: Future<Output = Result<Bytes, E>>>(
        &self,
        id: ObjectId,
        pull: impl FnOnce() -> F,
    ) -> Result<Bytes, E> {
        let cell = {
            let mut pulled = self.pulled();
            if pulled.bytes > MAX_PULLED_BYTES {
                *pulled = Pulled::default();
            }
            Arc::clone(pulled.objects.entry(id).or_default())
        };
        let pulling = async || {
            let bytes = pull().await?;
            self.pulled().bytes += bytes.len();
            Ok(bytes)
        };
        cell.get_or_try_init(pulling).await.cloned()
    }

    fn pulled(&self) -> MutexGuard<'_, Pulled> {
        self.0.lock().expect("no holder panics")
    }
}

/// A directory of objects. All calls may block on the disk.
#[derive(Debug, Clone)]
pub struct Objects {
    directory: Arc<Path>,
    /// Small objects of a temporary node.
    memory: Option<Arc<Mutex<BTreeMap<ObjectId, Bytes>>>>,
}

impl Objects {
    /// Opens or creates the directory, and removes incomplete files of a crash.
    pub fn open(directory: &Path) -> io::Result<Objects> {
        fs::create_dir_all(directory)?;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if id_of(&path).is_none() {
                fs::remove_file(path)?;
            }
        }
        Ok(Objects { directory: directory.into(), memory: None })
    }

    /// Objects that end with the process.
    pub fn temporary(directory: &Path) -> io::Result<Objects> {
        Ok(Objects { memory: Some(Arc::default()), ..Objects::open(directory)? })
    }

    fn memory(&self) -> Option<MutexGuard<'_, BTreeMap<ObjectId, Bytes>>> {
        self.memory.as_ref().map(|memory| memory.lock().expect("no holder panics"))
    }

    fn in_memory(&self, id: ObjectId) -> Option<Bytes> {
        self.memory()?.get(&id).cloned()
    }

    fn path(&self, id: ObjectId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    pub fn has(&self, id: ObjectId) -> bool {
        self.in_memory(id).is_some() || self.path(id).exists()
    }

    /// 0 if the object is missing.
    pub fn len_bytes(&self, id: ObjectId) -> u64 {
        match self.in_memory(id) {
            Some(bytes) => bytes.len() as u64,
            None => fs::metadata(self.path(id)).map_or(0, |metadata| metadata.len()),
        }
    }

    /// The bytes of an object. `None`: it is missing, or damaged and removed, to be fetched or created again.
    pub fn read(&self, id: ObjectId) -> io::Result<Option<Bytes>> {
        if let Some(bytes) = self.in_memory(id) {
            return Ok(Some(bytes));
        }
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

    /// Stores an object with a verified id. It is not fsynced: `read` detects damage by a power failure.
    pub fn put(&self, id: ObjectId, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() <= MAX_MEMORY_OBJECT_BYTES
            && let Some(mut memory) = self.memory()
        {
            memory.insert(id, Bytes::copy_from_slice(bytes));
            return Ok(());
        }
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(bytes)?;
        file.persist(self.path(id)).map_err(|error| error.error)?;
        Ok(())
    }

    pub fn remove(&self, id: ObjectId) -> io::Result<()> {
        if self.memory().is_some_and(|mut memory| memory.remove(&id).is_some()) {
            return Ok(());
        }
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The total size of all objects.
    pub fn used_bytes(&self) -> io::Result<u64> {
        let mut used = self.memory().map_or(0, |memory| memory.values().map(|bytes| bytes.len() as u64).sum());
        for entry in fs::read_dir(&self.directory)? {
            match entry?.metadata() {
                Ok(metadata) => used += metadata.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // Removed concurrently.
                Err(error) => return Err(error),
            }
        }
        Ok(used)
    }

    /// The ids of all objects.
    pub fn all(&self) -> io::Result<Vec<ObjectId>> {
        let paths = fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.path()));
        let memory: Vec<ObjectId> = self.memory().map(|memory| memory.keys().copied().collect()).unwrap_or_default();
        let files = paths.filter_map(|path| path.map(|path| id_of(&path)).transpose());
        memory.into_iter().map(Ok).chain(files).collect()
    }
}

fn id_of(path: &Path) -> Option<ObjectId> {
    path.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_completely_or_not_at_all() {
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

    #[tokio::test]
    async fn an_object_is_pulled_once_for_all_nodes_unless_the_pull_fails() {
        let (pulled, id) = (PulledObjects::default(), object_id(b"x"));
        let failed: Result<Bytes, &str> = pulled.get(id, async || Err("not yet")).await;
        assert_eq!(failed, Err("not yet"));
        let first = async || {
            tokio::task::yield_now().await;
            Ok::<_, &str>(Bytes::from_static(b"x"))
        };
        let (one, other) = tokio::join!(pulled.get(id, first), pulled.get(id, async || Err("pulled twice")));
        assert_eq!((one, other), (Ok(Bytes::from_static(b"x")), Ok(Bytes::from_static(b"x"))));
        pulled.pulled().bytes = MAX_PULLED_BYTES + 1;
        assert_eq!(pulled.get(id, async || Err("dropped")).await, Err("dropped"));
    }

    #[test]
    fn a_temporary_node_writes_large_objects_only() {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::temporary(directory.path()).unwrap();
        let files = || std::fs::read_dir(directory.path()).unwrap().count();
        let (small, large) = (vec![1; MAX_MEMORY_OBJECT_BYTES], vec![2; MAX_MEMORY_OBJECT_BYTES + 1]);
        for (bytes, expected_files) in [(&small, 0), (&large, 1)] {
            let id = object_id(bytes);
            objects.put(id, bytes).unwrap();
            assert_eq!((files(), objects.has(id), objects.len_bytes(id)), (expected_files, true, bytes.len() as u64));
            assert_eq!(objects.read(id).unwrap().unwrap(), bytes);
        }
        assert_eq!(objects.used_bytes().unwrap(), (small.len() + large.len()) as u64);
        for id in objects.all().unwrap() {
            objects.remove(id).unwrap();
        }
        assert_eq!((files(), objects.all().unwrap().len()), (0, 0));
    }

    #[test]
    fn incomplete_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".tmpXYZ"), "half").unwrap();
        assert!(Objects::open(directory.path()).unwrap().all().unwrap().is_empty());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
