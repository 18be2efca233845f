//! State numbers of OneFlow with their names.

use crate::state::numbered;

numbered! {
    ServiceState {
        0 Pending "PENDING",
        1 Deploying "DEPLOYING",
        2 Running "RUNNING",
        3 Undeploying "UNDEPLOYING",
        4 Warning "WARNING",
        5 Done "DONE",
        6 FailedUndeploying "FAILED_UNDEPLOYING",
        7 FailedDeploying "FAILED_DEPLOYING",
        8 Scaling "SCALING",
        9 FailedScaling "FAILED_SCALING",
        10 Cooldown "COOLDOWN",
        11 DeployingNets "DEPLOYING_NETS",
        12 UndeployingNets "UNDEPLOYING_NETS",
        13 FailedDeployingNets "FAILED_DEPLOYING_NETS",
        14 FailedUndeployingNets "FAILED_UNDEPLOYING_NETS",
        15 Hold "HOLD",
    }
}

impl ServiceState {
    pub fn is_failure(self) -> bool {
        self.name().is_some_and(|name| name.starts_with("FAILED_"))
    }

    /// OneFlow scales only in this state.
    pub fn can_scale(self) -> bool {
        self == ServiceState::Running
    }

    /// Whether a plain delete is possible; otherwise only a recover with delete works.
    pub fn can_undeploy(self) -> bool {
        matches!(self, ServiceState::Running | ServiceState::Warning | ServiceState::Undeploying | ServiceState::Hold)
    }

    /// Being deleted, or deleted.
    pub fn is_leaving(self) -> bool {
        matches!(
            self,
            ServiceState::Undeploying
                | ServiceState::UndeployingNets
                | ServiceState::FailedUndeploying
                | ServiceState::FailedUndeployingNets
                | ServiceState::Done
        )
    }
}

numbered! {
    /// Same as those of services, except for HOLD.
    RoleState {
        0 Pending "PENDING",
        1 Deploying "DEPLOYING",
        2 Running "RUNNING",
        3 Undeploying "UNDEPLOYING",
        4 Warning "WARNING",
        5 Done "DONE",
        6 FailedUndeploying "FAILED_UNDEPLOYING",
        7 FailedDeploying "FAILED_DEPLOYING",
        8 Scaling "SCALING",
        9 FailedScaling "FAILED_SCALING",
        10 Cooldown "COOLDOWN",
        11 Hold "HOLD",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_and_roles_differ_in_hold() {
        assert_eq!((ServiceState::Hold.number(), RoleState::Hold.number()), (15, 11));
        assert_eq!(ServiceState::from_number(11), ServiceState::DeployingNets);
        assert_eq!(ServiceState::from_number(16).to_string(), "state 16");
        let failures: Vec<u32> = ServiceState::ALL.iter().filter(|s| s.is_failure()).map(|s| s.number()).collect();
        assert_eq!(failures, [6, 7, 9, 13, 14]);
    }
}
