//! The OneFlow service of a federation at a site: a role for the coordinator, for each pool, and for the gateway. Independent
//! of OneFlow's versions.

use std::collections::BTreeMap;

use trellis_digest::fnv1a;
use trellis_one::Template;
use trellis_one::flow::{
    Adjustment, Deployment, ElasticityPolicy, RoleKind, RoleTemplate, ScheduledPolicy, ServiceTemplate, ShutdownAction,
    When,
};
use trellis_plan::PoolRules;
use trellis_spec::{Change, Name, SiteRule};

use super::{RoleOf, SUPERLINK, service_name, template_name};

/// Minimum cooldown: a service accepts the next request at once.
const COOLDOWN_S: u32 = 0;

/// Template and size of a role.
pub struct RoleSpec<'a> {
    pub of: &'a RoleOf,
    pub name: &'a str,
    pub template: i32,
    pub count: u32,
    /// Scaling rules for OneFlow; `None` if the driver sets the size.
    pub rules: Option<&'a PoolRules>,
}

/// One role. Nodes depend on a coordinator in the same service. OneFlow never scales the coordinator.
pub fn role(federation: &Name, site: &Name, role: &RoleSpec<'_>, superlink: bool) -> RoleTemplate {
    let parents = match role.of {
        RoleOf::Pool(_) if superlink => vec![SUPERLINK.to_owned()],
        _ => Vec::new(),
    };
    let rules = role.rules.filter(|_| matches!(role.of, RoleOf::Pool(_)));
    RoleTemplate {
        name: role.name.to_owned(),
        kind: RoleKind::Vm,
        cardinality: rules.map_or(role.count, |rules| role.count.clamp(rules.min, rules.max)),
        template_id: role.template,
        template_name: Some(template_name(federation, site, role.name)),
        template_contents: Template::new(),
        user_inputs: BTreeMap::new(),
        parents,
        shutdown_action: None,
        min_vms: rules.map(|rules| rules.min),
        max_vms: rules.map(|rules| rules.max),
        cooldown_s: Some(rules.map_or(COOLDOWN_S, |rules| rules.cooldown_s)),
        elasticity_policies: rules.map(elasticity).unwrap_or_default(),
        scheduled_policies: rules.map(schedules).unwrap_or_default(),
    }
}

fn elasticity(rules: &PoolRules) -> Vec<ElasticityPolicy> {
    let policy = |rule: &SiteRule| match rule {
        SiteRule::Schedule { .. } => None,
        SiteRule::Metric(rule) => Some(ElasticityPolicy {
            adjustment: match rule.change {
                Change::By(count) => Adjustment::Change(count),
                Change::To(count) => Adjustment::Cardinality(count),
                Change::Percent(percent) => Adjustment::Percentage { percent, min_step: Some(1) },
            },
            expression: rule.when.to_string(),
            period_number: Some(rule.periods),
            period_s: Some(rule.period_s),
            cooldown_s: Some(rule.cooldown_s.unwrap_or(rules.cooldown_s)),
        }),
    };
    rules.rules.iter().filter_map(policy).collect()
}

fn schedules(rules: &PoolRules) -> Vec<ScheduledPolicy> {
    let policy = |rule: &SiteRule| match rule {
        SiteRule::Metric(_) => None,
        SiteRule::Schedule { at, count } => {
            let (adjustment, when) = (Adjustment::Cardinality(*count), When::Recurring(at.to_string()));
            Some(ScheduledPolicy { adjustment, when })
        }
    };
    rules.rules.iter().filter_map(policy).collect()
}

/// The service template. Its description ends in a digest of the roles, without their cardinalities, which reveals changes.
///
/// OneFlow does not wait for READY, because a node that never becomes ready would block all other requests. The planner
/// orders the starts.
pub fn service(federation: &Name, site: &Name, roles: Vec<RoleTemplate>) -> ServiceTemplate {
    let age: Vec<RoleTemplate> = roles.iter().map(|role| RoleTemplate { cardinality: 0, ..role.clone() }).collect();
    let digest = fnv1a(format!("{age:?}").as_bytes());
    ServiceTemplate {
        name: service_name(federation, site),
        description: format!("Federation {federation} at site {site} [{digest:016x}]"),
        deployment: Deployment::Straight,
        shutdown_action: Some(ShutdownAction::Terminate),
        ready_status_gate: false,
        automatic_deletion: false,
        user_inputs: BTreeMap::new(),
        networks: BTreeMap::new(),
        roles,
    }
}
