//! Images for tests: which programs of this machine an image holds, and as whom they run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// In the order in which they are tried.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Images {
    pub images: Vec<Image>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// As pods name it; a `*` at the end stands for anything.
    pub name: String,
    pub entrypoint: Vec<String>,
    /// Directories (or files) of this machine that are in it, at the same place, read-only.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub user: u32,
    /// The image names its user instead of giving a number, so nobody can see that it is not root.
    #[serde(default)]
    pub user_is_a_name: bool,
    /// Made for the user, who starts there.
    #[serde(default = "root")]
    pub directory: PathBuf,
}

fn root() -> PathBuf {
    PathBuf::from("/")
}

impl Images {
    pub fn find(&self, name: &str) -> Option<&Image> {
        self.images.iter().find(|image| match image.name.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => image.name == name,
        })
    }
}
