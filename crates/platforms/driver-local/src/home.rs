//! Paths in the home of the control plane. Opens no files.
//!
//! Names of federations, sites and parts never begin with a dot; other files in their directories do.

use std::path::{Path, PathBuf};

use trellis_digest::fnv1a;
use trellis_plan::{Part, ResourceId};
use trellis_spec::Name;

const RECORD: &str = "record.json";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// `root` is absolute and without symbolic links, since processes of this home are identified by it.
    pub fn new(root: PathBuf) -> Home {
        Home { root }
    }

    /// Identifies this home in the marks of its processes.
    pub fn hash(&self) -> String {
        format!("{:016x}", fnv1a(self.root.as_os_str().as_encoded_bytes()))
    }

    pub fn federations(&self) -> PathBuf {
        self.root.join("federations")
    }

    /// Locked by the open driver.
    pub fn lock(&self) -> PathBuf {
        self.federations().join(".lock")
    }

    pub fn federation(&self, federation: &Name) -> PathBuf {
        self.federations().join(federation.as_str())
    }

    /// The last orders for removed parts, and the latest fence.
    pub fn orders(&self, federation: &Name) -> PathBuf {
        self.federation(federation).join(".orders.json")
    }

    /// Certificate, key and authority of a SuperLink.
    pub fn tls(&self, federation: &Name) -> PathBuf {
        self.federation(federation).join(".tls")
    }

    /// The authority's own key, outside the directories that SuperLinks and apps can read.
    pub fn authority(&self, federation: &Name) -> PathBuf {
        self.root.join("authorities").join(federation.as_str())
    }

    pub fn models(&self, federation: &Name) -> PathBuf {
        self.root.join("models").join(federation.as_str())
    }

    pub fn shared(&self) -> PathBuf {
        self.root.join("shared")
    }

    pub fn part(&self, id: &ResourceId) -> PathBuf {
        self.federation(&id.federation).join(id.site.as_str()).join(id.part.name())
    }

    pub fn record(&self, id: &ResourceId) -> PathBuf {
        self.part(id).join(RECORD)
    }

    pub fn log(&self, id: &ResourceId) -> PathBuf {
        self.part(id).join("part.log")
    }

    pub fn node_key(&self, id: &ResourceId) -> PathBuf {
        self.part(id).join("node.key")
    }

    /// State of a part that survives restarts.
    pub fn state(&self, id: &ResourceId) -> PathBuf {
        self.part(id).join("state")
    }

    /// The part of a record, by the names of its directories.
    pub fn id_of(record: &Path) -> Option<ResourceId> {
        let mut names = record.parent()?.iter().rev().map(|name| name.to_str());
        let (part, site, federation) = (names.next()??, names.next()??, names.next()??);
        let part = if part == "coordinator" { part.to_owned() } else { format!("node/{part}") };
        ResourceId::try_from(format!("{federation}/{site}/{part}")).ok()
    }

    /// Paths of all records. Some may not exist.
    pub fn records(&self) -> std::io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for federation in directories(&self.federations())? {
            for site in directories(&federation)? {
                found.extend(directories(&site)?.into_iter().map(|part| part.join(RECORD)));
            }
        }
        Ok(found)
    }
}

/// Federations in a home, each with the state directory of its SuperLink.
pub fn superlinks(home: &Path) -> Vec<(String, PathBuf)> {
    let home = Home::new(home.to_owned());
    let ids = home.records().unwrap_or_default().into_iter().filter_map(|record| Home::id_of(&record));
    let superlinks = ids.filter(|id| id.part == Part::Coordinator);
    superlinks.map(|id| (id.federation.to_string(), home.state(&id))).collect()
}

fn directories(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let is_ours = !entry.file_name().as_encoded_bytes().starts_with(b".");
        if is_ours && entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_whose_it_is_by_its_place() {
        let home = Home::new("/home/ada/trellis".into());
        for text in ["fed/lab/coordinator", "fed/lab/node/a-1-0"] {
            let id = ResourceId::try_from(text.to_owned()).expect("an id");
            assert_eq!(Home::id_of(&home.record(&id)), Some(id));
        }
        assert_eq!(Home::id_of(Path::new("/federations/fed/lab/Other/record.json")), None);
    }
}
