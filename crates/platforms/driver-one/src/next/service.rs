//! Selects the service that gets new VMs, and the request that its state allows. OneFlow scales and changes roles in
//! RUNNING only. It recovers services that failed or are in transition. In WARNING it accepts no request, even after
//! the faulty VM is gone. Then a second service provides the missing VMs; the first one keeps its healthy VMs and is
//! deleted with the last of them.

use trellis_one::flow::{RoleTemplate, ServiceTemplate};
use trellis_plan::Millis;

use super::crew::{Crew, Role};
use super::structure::trouble;
use super::{Ground, Next, Step};
use crate::memory::Limits;
use crate::render::RoleOf;
use crate::view::{Life, ServiceSeen, ServiceState};

/// Maximum number of services of one federation at one site. A new service must be up before the next one is created,
/// so the driver itself stays far below this limit.
const MAX_SERVICES: usize = 8;

/// The facts about the active service that [`decide`] depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Situation {
    state: ServiceState,
    lasts_ms: Millis,
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
    Order,
    Recover,
    Remove,
    /// Create a second service for the missing VMs.
    Succeed,
}

fn decide(now: &Situation, limits: &Limits) -> Decision {
    let stuck = now.lasts_ms >= limits.stuck_ms;
    let warned_ms = if now.faulty { limits.faulty_ms } else { limits.warning_ms };
    match now.state {
        ServiceState::Runs if now.needed && now.blocked_ms >= limits.stuck_ms => Decision::Succeed,
        ServiceState::Runs if now.needed => Decision::Order,
        ServiceState::Warns if now.needed && now.lasts_ms >= warned_ms => Decision::Succeed,
        ServiceState::Cooldown if now.urgent || stuck => Decision::Recover,
        ServiceState::Turns if stuck => Decision::Recover,
        ServiceState::Failed => Decision::Recover,
        ServiceState::Stays => Decision::Remove,
        ServiceState::Leaves if stuck => Decision::Remove,
        ServiceState::Runs
        | ServiceState::Warns
        | ServiceState::Cooldown
        | ServiceState::Turns
        | ServiceState::Leaves => Decision::Wait,
    }
}

pub fn keep(ground: &Ground<'_>, crew: &Crew<'_>, template: u32, plan: &ServiceTemplate, next: &mut Next) {
    let Some(active) = ground.view.active() else {
        return next.steps.push(Step::Instantiate { template, plan: plan.clone() });
    };
    let others = || ground.view.services.iter().filter(|other| other.id != active.id);
    for other in others().filter(|other| !is_used(crew, other)) {
        next.steps.extend(super::teardown::end_service(ground, other));
    }
    // VMs that another service is about to create are not counted yet.
    if others().any(|other| ground.is_busy(other)) {
        return;
    }
    match decide(&situation(ground, crew, active), ground.limits) {
        Decision::Wait => {}
        Decision::Order => next.steps.extend(order(crew, active, plan)),
        Decision::Recover => recover(ground, active, next),
        Decision::Remove => next.steps.push(Step::RemoveService { service: active.id }),
        Decision::Succeed if ground.view.services.len() < MAX_SERVICES => {
            let plan = ServiceTemplate { roles: missing_roles(crew, plan), ..plan.clone() };
            next.steps.push(Step::Instantiate { template, plan });
        }
        Decision::Succeed => {
            let (id, word, count) = (active.id, &active.word, ground.view.services.len());
            trouble(
                next,
                format!(
                    "service {id} is {word} and takes no orders, and there are {count} services of this federation \
                     already: bring a VM of each role up, or delete services that are not needed (`oneflow list`)"
                ),
            );
        }
    }
}

fn situation(ground: &Ground<'_>, crew: &Crew<'_>, service: &ServiceSeen) -> Situation {
    let lacks = |(_, role): &(&RoleOf, &Role<'_>)| role.missing() > 0;
    let is_rigid = |of: &RoleOf| !matches!(of, RoleOf::Pool(pool) if ground.elastic.contains_key(pool));
    let mut vms = service.roles.iter().flat_map(|role| &role.vms).filter_map(|id| ground.view.vm(*id));
    Situation {
        state: service.state,
        lasts_ms: ground.memory.lasts_ms(service.id, ground.now_ms),
        needed: crew.roles.iter().any(|role| lacks(&role)),
        urgent: crew.roles.iter().any(|role| lacks(&role) && is_rigid(role.0)),
        faulty: vms.any(|vm| matches!(vm.life, Life::Off | Life::Failed | Life::Unknown)),
        blocked_ms: ground.memory.blocked_ms(service.id, ground.now_ms),
    }
}

fn is_used(crew: &Crew<'_>, service: &ServiceSeen) -> bool {
    service.roles.iter().flat_map(|role| &role.vms).any(|vm| crew.lives(*vm))
}

fn recover(ground: &Ground<'_>, service: &ServiceSeen, next: &mut Next) {
    if ground.memory.may_recover(ground.limits, ground.now_ms) {
        next.steps.push(Step::RecoverService { service: service.id });
    } else if ground.memory.gave_up(ground.limits) {
        let error = service.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
        let (id, word) = (service.id, &service.word);
        next.gave_up = Some(format!("service {id} is {word}{error}, and telling it to go on did not help"));
    }
}

/// Adds a missing role, or scales a role that lacks VMs. One request at a time: OneFlow accepts no second one
/// meanwhile.
fn order(crew: &Crew<'_>, service: &ServiceSeen, plan: &ServiceTemplate) -> Option<Step> {
    crew.roles.values().filter(|role| role.missing() > 0).find_map(|role| {
        let planned = plan.roles.iter().find(|planned| planned.name == role.name)?;
        let Some(seen) = service.role(&role.name) else {
            let mut role = missing_role(role, planned);
            role.parents.retain(|parent| service.role(parent).is_some());
            return Some(Step::AddRole { service: service.id, role });
        };
        // VMs in creation, and ended VMs that OneFlow has not noticed yet, must settle first.
        let counted = u32::try_from(seen.vms.len()).unwrap_or(u32::MAX);
        let settled = counted == seen.cardinality && seen.vms.iter().all(|id| crew.lives(*id));
        let cardinality = (counted + role.missing()).min(planned.max_vms.unwrap_or(u32::MAX));
        let order = Step::Scale { service: service.id, role: role.name.clone(), cardinality };
        (settled && cardinality > counted).then_some(order)
    })
}

/// The roles for a second service, with only the missing VMs.
fn missing_roles(crew: &Crew<'_>, plan: &ServiceTemplate) -> Vec<RoleTemplate> {
    let roles = plan.roles.iter().map(|planned| {
        let role = crew.roles.values().find(|role| role.name == planned.name);
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
        use Decision::{Order as O, Recover as R, Remove as X, Succeed as S, Wait as W};
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

    fn at(state: u32, needed: bool, lasts_ms: Millis) -> Situation {
        let state = service_state(state);
        Situation { state, lasts_ms, needed, urgent: needed, faulty: false, blocked_ms: 0 }
    }

    #[test]
    fn each_state_has_what_oneflow_takes_in_it() {
        for (state, word, expected) in TABLE {
            let cases = [(false, 0), (true, 0), (false, LIMITS.stuck_ms), (true, LIMITS.stuck_ms)];
            let decided = cases.map(|(needed, lasts_ms)| decide(&at(state, needed, lasts_ms), &LIMITS));
            assert_eq!(decided, expected, "{word}");
        }
    }

    #[test]
    fn a_warning_is_waited_out_longer_while_a_faulty_vm_may_come_back() {
        for (faulty, lasts_ms, expected) in [
            (false, LIMITS.warning_ms - 1, Decision::Wait),
            (false, LIMITS.warning_ms, Decision::Succeed),
            (true, LIMITS.warning_ms, Decision::Wait),
            (true, LIMITS.faulty_ms, Decision::Succeed),
        ] {
            let now = Situation { faulty, ..at(4, true, lasts_ms) };
            assert_eq!(decide(&now, &LIMITS), expected, "{now:?}");
        }
    }

    #[test]
    fn a_service_that_does_not_notice_ended_vms_is_not_waited_for_without_end() {
        let now = Situation { blocked_ms: LIMITS.stuck_ms, ..at(2, true, 0) };
        assert_eq!(decide(&now, &LIMITS), Decision::Succeed);
        assert_eq!(decide(&Situation { needed: false, ..now }, &LIMITS), Decision::Wait);
    }

    #[test]
    fn a_cooldown_is_cut_short_for_what_it_is_not_meant_for() {
        let now = Situation { urgent: false, ..at(10, true, 0) };
        assert_eq!(decide(&now, &LIMITS), Decision::Wait, "a pool of OneFlow's own rules rests");
        assert_eq!(decide(&Situation { urgent: true, ..now }, &LIMITS), Decision::Recover);
    }
}
