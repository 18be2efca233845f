//! Paths of an appliance below a root, which is `/` in a virtual machine. Pure: no file is opened.

use std::path::{Path, PathBuf};

use crate::settings::{Certificates, Role};

/// User of the programs, if it exists.
pub const USER: &str = "trellis";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    root: PathBuf,
    /// Path of our program.
    pub program: PathBuf,
}

impl Place {
    pub fn new(root: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Place {
        Place { root: root.into(), program: program.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// A path in a setting, below the root.
    pub fn named(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Role of the image.
    pub fn role(&self) -> PathBuf {
        self.at("etc/trellis/role")
    }

    pub fn etc(&self) -> PathBuf {
        self.at("etc/trellis")
    }

    pub fn state(&self) -> PathBuf {
        self.at("var/lib/trellis")
    }

    /// State of the agent.
    pub fn memory(&self) -> PathBuf {
        self.at("var/lib/trellis/appliance/state.json")
    }

    /// State of a role's program. It must survive restarts.
    pub fn service(&self, role: Role) -> PathBuf {
        self.state().join(role.name())
    }

    /// Keys of the authority. Only the agent can read them.
    pub fn authority(&self) -> PathBuf {
        self.at("var/lib/trellis/authority")
    }

    /// Parent of the certificates. The SuperLink needs to traverse it.
    pub fn tls(&self) -> PathBuf {
        self.at("var/lib/trellis/tls")
    }

    /// Certificates of the SuperLink: from the local authority, or from the operator.
    pub fn served(&self, certificates: &Certificates) -> PathBuf {
        match certificates {
            Certificates::Own { .. } => self.at("var/lib/trellis/tls/own"),
            Certificates::Operator { .. } => self.at("var/lib/trellis/tls/given"),
        }
    }

    /// Trust bundle of a node.
    pub fn trust(&self) -> PathBuf {
        self.at("var/lib/trellis/trust/ca.crt")
    }

    pub fn logs(&self) -> PathBuf {
        self.at("var/log/trellis")
    }

    /// Status of the agent, for `bootstrap` and `status`.
    pub fn status(&self) -> PathBuf {
        self.at("run/trellis/status.json")
    }

    pub fn units(&self) -> PathBuf {
        self.at("etc/systemd/system")
    }

    pub fn firewall(&self) -> PathBuf {
        self.at("etc/trellis/firewall.nft")
    }

    /// Python with the packages of the framework.
    pub fn python(&self) -> PathBuf {
        self.at("opt/trellis/venv/bin/python")
    }

    /// Official programs of one release.
    pub fn flower(&self, version: &str) -> PathBuf {
        self.at("opt/trellis").join(format!("flower-{version}")).join("bin")
    }

    pub fn one_appliance(&self) -> PathBuf {
        self.at("etc/one-appliance/service.d")
    }

    pub fn passwd(&self) -> PathBuf {
        self.at("etc/passwd")
    }
}
