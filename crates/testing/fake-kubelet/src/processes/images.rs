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
    /// What is in it beside the system: where, and which file or directory of this machine that is. Read-only.
    #[serde(default)]
    pub content: BTreeMap<PathBuf, PathBuf>,
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
