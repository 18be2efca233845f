//! What changed between the official releases, each change said once.

use trellis_client::fleet::Transport;
use trellis_spec::FlowerVersion;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release(pub FlowerVersion);

/// Where a SuperLink serves ServerApps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apps {
    /// At an address of their own, over gRPC and without TLS.
    Apart,
    /// The same over HTTP.
    HttpApart,
    /// At the HTTP port that users have too.
    WithEverybody,
}

impl Release {
    fn since(self, minor: u16) -> bool {
        self.0.minor >= minor
    }

    pub fn apps(self) -> Apps {
        match self.0.minor {
            ..35 => Apps::Apart,
            35..37 => Apps::HttpApart,
            37.. => Apps::WithEverybody,
        }
    }

    /// How users and we call the SuperLink.
    pub fn control(self) -> Transport {
        if self.since(37) { Transport::Http } else { Transport::Grpc }
    }

    /// Nodes come to the same port as users.
    pub fn fleet_is_http(self) -> bool {
        self.since(40)
    }

    /// Bundles of apps are files beside the database, not in it.
    pub fn keeps_apps_in_files(self) -> bool {
        !self.since(29)
    }

    pub fn node_has_one_port(self) -> bool {
        self.since(35)
    }

    pub fn superexec_address_flag(self) -> &'static str {
        if self.since(36) { "--runtime-api-address" } else { "--appio-api-address" }
    }

    /// Its launcher of apps must be told which kind it launches.
    pub fn superexec_has_plugins(self) -> bool {
        !self.since(38)
    }
}
