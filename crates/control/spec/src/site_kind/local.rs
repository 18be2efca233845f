//! Sites on the machine of the control plane.

use serde::{Deserialize, Serialize};

use super::{SiteFields, SiteTraits};
use crate::federation::Containers;
use crate::kind::{Choice, choice, choice_name};
use crate::object::Object;
use crate::yaml::Map;

const CONTAINERS: [Choice<Containers>; 3] =
    [("none", Containers::No), ("podman", Containers::Podman), ("docker", Containers::Docker)];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalSite {
    pub containers: Containers,
}

impl SiteFields for LocalSite {
    const NAME: &'static str = "local";
    const STORED: &'static str = "Local";
    const HELP: &'static str = "This machine. The default driver.";

    fn read(object: &mut Object<'_>) -> Option<LocalSite> {
        let help = "Runs the programs as processes (none), or in containers.";
        Some(LocalSite { containers: object.or("containers", choice(&CONTAINERS), "none", help) })
    }

    fn write(&self) -> Map {
        Map::new().put("containers", choice_name(&CONTAINERS, &self.containers))
    }

    fn traits(&self) -> SiteTraits {
        SiteTraits { on_this_machine: true, containers: Some(self.containers), ..SiteTraits::default() }
    }
}
