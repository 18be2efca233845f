//! Where everything is in the home of the control plane. Nothing is opened here.
//!
//! Names of federations, sites and parts never begin with a dot: what lies beside them does.

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
    /// `root` is absolute, and without links: processes of this home are known by it.
    pub fn new(root: PathBuf) -> Home {
        Home { root }
    }

    /// What processes of this home carry in their mark.
    pub fn hash(&self) -> String {
        format!("{:016x}", fnv1a(self.root.as_os_str().as_encoded_bytes()))
    }

    pub fn federations(&self) -> PathBuf {
        self.root.join("federations")
    }

    /// Held by the driver at work.
    pub fn lock(&self) -> PathBuf {
        self.federations().join(".lock")
    }

    pub fn federation(&self, federation: &Name) -> PathBuf {
        self.federations().join(federation.as_str())
    }

    /// Which orders were carried out for parts that are gone, and the latest fence.
    pub fn orders(&self, federation: &Name) -> PathBuf {
        self.federation(federation).join(".orders.json")
    }

    /// What a SuperLink serves with: certificate, key, authority.
    pub fn tls(&self, federation: &Name) -> PathBuf {
        self.federation(federation).join(".tls")
    }

    /// The authority's own key, apart from everything that SuperLinks and apps are told of.
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

    /// Where the state of a part really is.
    pub fn state(&self, id: &ResourceId) -> PathBuf {
        self.part(id).join("state")
    }

    /// The parts that a directory may hold, by their names.
    pub fn id_of(record: &Path) -> Option<ResourceId> {
        let mut names = record.parent()?.iter().rev().map(|name| name.to_str());
        let (part, site, federation) = (names.next()??, names.next()??, names.next()??);
        let part = if part == "coordinator" { part.to_owned() } else { format!("node/{part}") };
        ResourceId::try_from(format!("{federation}/{site}/{part}")).ok()
    }

    /// Every place where a record is, or may be.
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
