//! Selects the service that gets new VMs, and the request that its state allows. OneFlow scales and changes roles in
//! RUNNING only. It recovers services that failed or are in transition. In WARNING it accepts no request, even after
//! the faulty VM is gone. Then a second service provides the missing VMs; the first one keeps its healthy VMs and is
//! deleted with the last of them.

use trellis_one::flow::{RoleTemplate, ServiceTemplate};
use trellis_plan::Millis;

use super::placement::{Placement, Role};
use super::structure::block;
use super::{Next, Situation, Step};
use crate::history::Limits;
use crate::render::RoleOf;
use crate::view::{Life, ServiceState, ServiceView};

/// Maximum number of services of one federation at one site. A new service must be up before the next one is created,
/// so the driver itself stays far below this limit.
const MAX_SERVICES: usize = 8;

/// The facts about the active service that [`decide`] depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServiceFacts {
    state: ServiceState,
    state_age_ms: Millis,
    /// VMs are missing.
    needed: bool,
    /// A missing VM is not in a pool that OneFlow scales, so the cooldown should not delay it.
    urgent: bool,
    /// A VM of the service is off, failed or unknown. If it comes up again, OneFlow ends the warning.
    faulty: bool,
    /// How long the service has listed VMs that no longer exist.
    blocked_ms: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Wait,
    Request,
    Recover,
    Remove,
    /// Create a second service for the missing VMs.
    Succeed,
}

fn decide(now: &ServiceFacts, limits: &Limits) -> Decision {
    let stuck = now.state_age_ms >= limits.stuck_ms;
    let warned_ms = if now.faulty { limits.faulty_ms } else { limits.warning_ms };
    match now.state {
        ServiceState::Running if now.needed && now.blocked_ms >= limits.stuck_ms => Decision::Succeed,
        ServiceState::Running if now.needed => Decision::Request,
        ServiceState::Warning if now.needed && now.state_age_ms >= warned_ms => Decision::Succeed,
        ServiceState::Cooldown if now.urgent || stuck => Decision::Recover,
        ServiceState::Changing if stuck => Decision::Recover,
        ServiceState::Failed => Decision::Recover,
        ServiceState::DeleteFailed => Decision::Remove,
        ServiceState::Deleting if stuck => Decision::Remove,
        ServiceState::Running
        | ServiceState::Warning
        | ServiceState::Cooldown
        | ServiceState::Changing
        | ServiceState::Deleting => Decision::Wait,
    }
}

pub fn reconcile(
    situation: &Situation<'_>,
    placement: &Placement<'_>,
    template: u32,
    plan: &ServiceTemplate,
    next: &mut Next,
) {
    let Some(active) = situation.view.active() else {
        return next.steps.push(Step::Instantiate { template, plan: plan.clone() });
    };
    let others = || situation.view.services.iter().filter(|other| other.id != active.id);
    for other in others().filter(|other| !is_used(placement, other)) {
        next.steps.extend(super::teardown::end_service(situation, other));
    }
    // VMs that another service is about to create are not counted yet.
    if others().any(|other| situation.is_busy(other)) {
        return;
    }
    match decide(&facts(situation, placement, active), situation.limits) {
        Decision::Wait => {}
        Decision::Request => next.steps.extend(request(placement, active, plan)),
        Decision::Recover => recover(situation, active, next),
        Decision::Remove => next.steps.push(Step::RemoveService { service: active.id }),
        Decision::Succeed if situation.view.services.len() < MAX_SERVICES => {
            let plan = ServiceTemplate { roles: missing_roles(placement, plan), ..plan.clone() };
            next.steps.push(Step::Instantiate { template, plan });
        }
        Decision::Succeed => {
            let (id, state_name, count) = (active.id, &active.state_name, situation.view.services.len());
            block(
                next,
                format!(
                    "service {id} is {state_name} and accepts no requests, and there are {count} services of this federation \
                     already: repair a VM of each role, or delete unused services (`oneflow list`)"
                ),
            );
        }
    }
}

fn facts(situation: &Situation<'_>, placement: &Placement<'_>, service: &ServiceView) -> ServiceFacts {
    let lacks = |(_, role): &(&RoleOf, &Role<'_>)| role.missing() > 0;
    let is_rigid = |of: &RoleOf| !matches!(of, RoleOf::Pool(pool) if situation.elastic.contains_key(pool));
    let mut vms = service.roles.iter().flat_map(|role| &role.vms).filter_map(|id| situation.view.vm(*id));
    ServiceFacts {
        state: service.state,
        state_age_ms: situation.history.state_age_ms(service.id, situation.now_ms),
        needed: placement.roles.iter().any(|role| lacks(&role)),
        urgent: placement.roles.iter().any(|role| lacks(&role) && is_rigid(role.0)),
        faulty: vms.any(|vm| matches!(vm.life, Life::Off | Life::Failed | Life::Unknown)),
        blocked_ms: situation.history.blocked_ms(service.id, situation.now_ms),
    }
}

fn is_used(placement: &Placement<'_>, service: &ServiceView) -> bool {
    service.roles.iter().flat_map(|role| &role.vms).any(|vm| placement.keeps(*vm))
}

fn recover(situation: &Situation<'_>, service: &ServiceView, next: &mut Next) {
    if situation.history.may_recover(situation.recovery, situation.now_ms) {
        next.steps.push(Step::RecoverService { service: service.id });
    } else if situation.history.is_exhausted(situation.recovery) {
        let error = service.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
        let (id, state_name) = (service.id, &service.state_name);
        next.exhausted = Some(format!("service {id} is {state_name}{error}, and recovery failed"));
    }
}

/// Adds a missing role, or scales a role that lacks VMs. One request at a time: OneFlow accepts no second one
/// meanwhile.
fn request(placement: &Placement<'_>, service: &ServiceView, plan: &ServiceTemplate) -> Option<Step> {
    placement.roles.values().filter(|role| role.missing() > 0).find_map(|role| {
        let planned = plan.roles.iter().find(|planned| planned.name == role.name)?;
        let Some(seen) = service.role(&role.name) else {
            let mut role = missing_role(role, planned);
            role.parents.retain(|parent| service.role(parent).is_some());
            return Some(Step::AddRole { service: service.id, role });
        };
        // VMs in creation, and ended VMs that OneFlow has not noticed yet, must settle first.
        let counted = u32::try_from(seen.vms.len()).unwrap_or(u32::MAX);
        let settled = counted == seen.cardinality && seen.vms.iter().all(|id| placement.keeps(*id));
        let cardinality = (counted + role.missing()).min(planned.max_vms.unwrap_or(u32::MAX));
        let request = Step::Scale { service: service.id, role: role.name.clone(), cardinality };
        (settled && cardinality > counted).then_some(request)
    })
}

/// The roles for a second service, with only the missing VMs.
fn missing_roles(placement: &Placement<'_>, plan: &ServiceTemplate) -> Vec<RoleTemplate> {
    let roles = plan.roles.iter().map(|planned| {
        let role = placement.roles.values().find(|role| role.name == planned.name);
        role.map_or_else(|| planned.clone(), |role| missing_role(role, planned))
    });
    roles.collect()
}

/// The role with the missing VMs as cardinality, clamped to the limits of the role.
fn missing_role(role: &Role<'_>, planned: &RoleTemplate) -> RoleTemplate {
    let (min, max) = (planned.min_vms.unwrap_or(0), planned.max_vms.unwrap_or(u32::MAX));
    RoleTemplate { cardinality: role.missing().clamp(min, max), ..planned.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::service_state;

    const LIMITS: Limits = Limits { stuck_ms: 1000, warning_ms: 10, faulty_ms: 100, ..Limits::DEFAULT };

    /// By state number. Columns: at once without and with missing VMs, then the same after `stuck_ms`.
    const TABLE: [(u32, &str, [Decision; 4]); 16] = {
        use Decision::{Recover as R, Remove as X, Request as O, Succeed as S, Wait as W};
        [
            (0, "PENDING", [W, W, R, R]),
            (1, "DEPLOYING", [W, W, R, R]),
            (2, "RUNNING", [W, O, W, O]),
            (3, "UNDEPLOYING", [W, W, X, X]),
            (4, "WARNING", [W, W, W, S]),
            (5, "DONE", [W, W, X, X]),
            (6, "FAILED_UNDEPLOYING", [X, X, X, X]),
            (7, "FAILED_DEPLOYING", [R, R, R, R]),
            (8, "SCALING", [W, W, R, R]),
            (9, "FAILED_SCALING", [R, R, R, R]),
            (10, "COOLDOWN", [W, R, R, R]),
            (11, "DEPLOYING_NETS", [W, W, R, R]),
            (12, "UNDEPLOYING_NETS", [W, W, X, X]),
            (13, "FAILED_DEPLOYING_NETS", [R, R, R, R]),
            (14, "FAILED_UNDEPLOYING_NETS", [X, X, X, X]),
            (15, "HOLD", [W, W, R, R]),
        ]
    };

    fn at(state: u32, needed: bool, state_age_ms: Millis) -> ServiceFacts {
        let state = service_state(state);
        ServiceFacts { state, state_age_ms, needed, urgent: needed, faulty: false, blocked_ms: 0 }
    }

    #[test]
    fn each_state_has_what_oneflow_takes_in_it() {
        for (state, state_name, expected) in TABLE {
            let cases = [(false, 0), (true, 0), (false, LIMITS.stuck_ms), (true, LIMITS.stuck_ms)];
            let decided = cases.map(|(needed, state_age_ms)| decide(&at(state, needed, state_age_ms), &LIMITS));
            assert_eq!(decided, expected, "{state_name}");
        }
    }

    #[test]
    fn a_warning_is_waited_out_longer_while_a_faulty_vm_may_come_back() {
        for (faulty, state_age_ms, expected) in [
            (false, LIMITS.warning_ms - 1, Decision::Wait),
            (false, LIMITS.warning_ms, Decision::Succeed),
            (true, LIMITS.warning_ms, Decision::Wait),
            (true, LIMITS.faulty_ms, Decision::Succeed),
        ] {
            let now = ServiceFacts { faulty, ..at(4, true, state_age_ms) };
            assert_eq!(decide(&now, &LIMITS), expected, "{now:?}");
        }
    }

    #[test]
    fn a_service_that_does_not_notice_ended_vms_is_not_waited_for_without_end() {
        let now = ServiceFacts { blocked_ms: LIMITS.stuck_ms, ..at(2, true, 0) };
        assert_eq!(decide(&now, &LIMITS), Decision::Succeed);
        assert_eq!(decide(&ServiceFacts { needed: false, ..now }, &LIMITS), Decision::Wait);
    }

    #[test]
    fn a_cooldown_is_cut_short_for_what_it_is_not_meant_for() {
        let now = ServiceFacts { urgent: false, ..at(10, true, 0) };
        assert_eq!(decide(&now, &LIMITS), Decision::Wait, "a pool that OneFlow scales waits for the cooldown");
        assert_eq!(decide(&ServiceFacts { urgent: true, ..now }, &LIMITS), Decision::Recover);
    }
}
