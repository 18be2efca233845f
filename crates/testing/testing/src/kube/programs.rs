//! Finds the programs of a control plane: `$KUBEBUILDER_ASSETS`, or the cache of `tests/provision_kube.py`.

use std::env;
use std::path::{Path, PathBuf};

use super::Parts;

const CACHED: &str = "kube-1.35";

pub(super) struct Programs(PathBuf);

impl Programs {
    /// Fails with the missing programs and the searched directory.
    pub fn find(parts: Parts) -> Result<Programs, String> {
        let programs = Programs(directory());
        let mut wanted = vec![programs.etcd(), programs.api_server(), programs.kubectl()];
        if parts >= Parts::WithControllers {
            wanted.push(programs.controllers());
        }
        if parts >= Parts::WithScheduler {
            wanted.push(programs.scheduler());
        }
        let missing: Vec<_> = wanted.iter().filter(|path| !path.is_file()).map(|path| name(path)).collect();
        if missing.is_empty() {
            return Ok(programs);
        }
        Err(format!("{} not in {}", missing.join(", "), programs.0.display()))
    }

    pub fn etcd(&self) -> PathBuf {
        self.0.join("etcd")
    }

    pub fn api_server(&self) -> PathBuf {
        self.0.join("kube-apiserver")
    }

    pub fn controllers(&self) -> PathBuf {
        self.0.join("kube-controller-manager")
    }

    pub fn scheduler(&self) -> PathBuf {
        self.0.join("kube-scheduler")
    }

    pub fn kubectl(&self) -> PathBuf {
        self.0.join("kubectl")
    }
}

fn directory() -> PathBuf {
    if let Some(given) = env::var_os("KUBEBUILDER_ASSETS") {
        return given.into();
    }
    let cache = env::var_os("TRELLIS_TEST_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache/trellis-test")));
    cache.unwrap_or_default().join(CACHED)
}

pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
