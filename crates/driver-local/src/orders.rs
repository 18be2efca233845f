//! Who may still give orders: the latest fence of a federation, and the last orders for parts that are gone.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use trellis_plan::{Order, ResourceId};

use crate::disk;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    pub fence: u64,
    /// Of this fence: earlier ones are refused whatever they are about.
    pub gone: BTreeMap<ResourceId, Order>,
}

impl Orders {
    pub fn read(path: &Path) -> io::Result<Orders> {
        match disk::read(path)? {
            None => Ok(Orders::default()),
            Some(text) => serde_json::from_slice(&text).map_err(|error| {
                let text = format!("{} cannot be understood: {error}", path.display());
                io::Error::new(io::ErrorKind::InvalidData, text)
            }),
        }
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).expect("orders have only text keys, so they always have a JSON form");
        disk::replace(path, &text)
    }

    /// Another controller owns the federation from now on.
    pub fn advance(&mut self, fence: u64) -> bool {
        let later = fence > self.fence;
        if later {
            *self = Orders { fence, gone: BTreeMap::new() };
        }
        later
    }
}
