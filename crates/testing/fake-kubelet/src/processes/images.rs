//! Images for tests: programs of this machine, and their users.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// Tried in this order.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Images {
    pub images: Vec<Image>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// The name in pods; a trailing `*` matches anything.
    pub name: String,
    pub entrypoint: Vec<String>,
    /// Further content of the image: its path, and the file or directory of this machine. Read-only.
    #[serde(default)]
    pub content: BTreeMap<PathBuf, PathBuf>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub user: u32,
    /// The image names its user instead of a number, so that Kubernetes cannot see that it is not root.
    #[serde(default)]
    pub user_is_a_name: bool,
    /// Created for the user; the working directory.
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
