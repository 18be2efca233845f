//! Files of the driver: `<directory>/<federation>/` is shared by the drivers of all sites of the federation; `<site>/` below
//! it belongs to one driver.

use std::path::{Path, PathBuf};

use trellis_plan::ResourceId;
use trellis_spec::Name;

const TRUST: &str = "trust.pem";
const ADMIN_TOKEN: &str = "admin.token";

pub fn trust(directory: &Path, federation: &Name) -> PathBuf {
    directory.join(federation.as_str()).join(TRUST)
}

pub fn admin_token(directory: &Path, federation: &Name) -> PathBuf {
    directory.join(federation.as_str()).join(ADMIN_TOKEN)
}

#[derive(Debug, Clone)]
pub struct Home {
    federation: PathBuf,
    site: PathBuf,
}

impl Home {
    pub fn new(directory: &Path, federation: &Name, site: &Name) -> Home {
        let federation = directory.join(federation.as_str());
        // In a directory of its own, so that no site name collides with a file.
        let site = federation.join("sites").join(site.as_str());
        Home { federation, site }
    }

    /// Addresses and authorities of the coordinator: written by the driver of its site, read by the others.
    pub fn coordinator(&self) -> PathBuf {
        self.federation.join("coordinator.json")
    }

    /// The same authorities as a file for users.
    pub fn trust(&self) -> PathBuf {
        self.federation.join(TRUST)
    }

    pub fn admin_token(&self) -> PathBuf {
        self.federation.join(ADMIN_TOKEN)
    }

    /// Private keys of the tunnels of all sites. Each side needs the public keys of the others.
    pub fn tunnel_key(&self, site: &Name) -> PathBuf {
        self.federation.join("tunnels").join(format!("{site}.key"))
    }

    pub fn tunnels(&self) -> PathBuf {
        self.federation.join("tunnels")
    }

    pub fn site(&self) -> &Path {
        &self.site
    }

    pub fn lock(&self) -> PathBuf {
        self.site.join("lock")
    }

    pub fn orders(&self) -> PathBuf {
        self.site.join("orders.json")
    }

    pub fn records(&self) -> PathBuf {
        self.site.join("parts")
    }

    pub fn record(&self, id: &ResourceId) -> PathBuf {
        // A pool may be named `coordinator`; its nodes have a number.
        self.records().join(format!("{}.json", id.part.name()))
    }
}
