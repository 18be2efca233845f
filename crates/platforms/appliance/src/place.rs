//! Where everything of an appliance is, below a root that is `/` in a virtual machine. Pure: nothing is opened here.

use std::path::{Path, PathBuf};

use crate::settings::{Certificates, Role};

/// Who the programs run as, where there is such a user.
pub const USER: &str = "trellis";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    root: PathBuf,
    /// Our own program.
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

    /// A path of a setting: below the root as well, whatever it says.
    pub fn named(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The role that the image was made for.
    pub fn role(&self) -> PathBuf {
        self.at("etc/trellis/role")
    }

    pub fn etc(&self) -> PathBuf {
        self.at("etc/trellis")
    }

    pub fn state(&self) -> PathBuf {
        self.at("var/lib/trellis")
    }

    /// Of the agent alone.
    pub fn memory(&self) -> PathBuf {
        self.at("var/lib/trellis/appliance/state.json")
    }

    /// Of the program of a role: what must survive restarts.
    pub fn service(&self, role: Role) -> PathBuf {
        self.state().join(role.name())
    }

    /// Keys of the authority: no program but the agent reads them.
    pub fn authority(&self) -> PathBuf {
        self.at("var/lib/trellis/authority")
    }

    /// Certificates that are served: the SuperLink passes through it to its own.
    pub fn tls(&self) -> PathBuf {
        self.at("var/lib/trellis/tls")
    }

    /// What the SuperLink serves with: of our own authority, or the operator's.
    pub fn served(&self, certificates: &Certificates) -> PathBuf {
        match certificates {
            Certificates::Own { .. } => self.at("var/lib/trellis/tls/own"),
            Certificates::Operator { .. } => self.at("var/lib/trellis/tls/given"),
        }
    }

    /// Whom a node trusts.
    pub fn trust(&self) -> PathBuf {
        self.at("var/lib/trellis/trust/ca.crt")
    }

    pub fn logs(&self) -> PathBuf {
        self.at("var/log/trellis")
    }

    /// What the agent says of itself, for `bootstrap` and `status`.
    pub fn status(&self) -> PathBuf {
        self.at("run/trellis/status.json")
    }

    pub fn units(&self) -> PathBuf {
        self.at("etc/systemd/system")
    }

    pub fn firewall(&self) -> PathBuf {
        self.at("etc/trellis/firewall.nft")
    }

    /// With the packages of the framework.
    pub fn python(&self) -> PathBuf {
        self.at("opt/trellis/venv/bin/python")
    }

    /// The official programs of one release.
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
