//! The OneFlow service of a federation at a site: one role for the coordinator, one for each pool, one for the gateway. How
//! each version of OneFlow wants it written is not known here.

use trellis_spec::Name;

use super::{RoleOf, SUPERLINK, digest, service_name};

/// A service takes the next order as soon as it has carried out one.
const COOLDOWN_S: u32 = 0;

#[derive(Debug, Clone, PartialEq)]
pub struct ServicePlan {
    pub name: String,
    pub description: String,
    pub roles: Vec<RolePlan>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RolePlan {
    pub name: String,
    pub template: u32,
    pub cardinality: u32,
    pub parents: Vec<String>,
    pub cooldown_s: u32,
    /// `None`: the driver alone decides how many there are.
    pub elastic: Option<Elastic>,
}

/// How OneFlow itself decides how many VMs a role has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Elastic {
    pub min: u32,
    pub max: u32,
    pub cooldown_s: u32,
    pub metrics: Vec<MetricPolicy>,
    pub schedules: Vec<SchedulePolicy>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MetricPolicy {
    pub adjustment: Adjustment,
    pub expression: String,
    pub period_s: u32,
    pub periods: u32,
    pub cooldown_s: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SchedulePolicy {
    pub count: u32,
    /// Five fields of cron.
    pub recurrence: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adjustment {
    By(i32),
    To(u32),
    Percent(i32),
}

/// One role, with the VM template that its VMs are made of.
pub fn role(of: &RoleOf, name: &str, template: u32, count: u32, superlink: bool, elastic: Option<Elastic>) -> RolePlan {
    let parents = match of {
        RoleOf::Pool(_) if superlink => vec![SUPERLINK.to_owned()],
        _ => Vec::new(),
    };
    let elastic = elastic.filter(|_| matches!(of, RoleOf::Pool(_)));
    let cardinality = elastic.as_ref().map_or(count, |elastic| count.clamp(elastic.min, elastic.max));
    let cooldown_s = elastic.as_ref().map_or(COOLDOWN_S, |elastic| elastic.cooldown_s);
    RolePlan { name: name.to_owned(), template, cardinality, parents, cooldown_s, elastic }
}

/// The service template. Its description ends in a hash of the roles, by which a change is noticed; how many VMs they have
/// is not among it.
pub fn service(federation: &Name, site: &Name, roles: Vec<RolePlan>) -> ServicePlan {
    let lasting: Vec<RolePlan> = roles.iter().map(|role| RolePlan { cardinality: 0, ..role.clone() }).collect();
    let digest = digest(format!("{lasting:?}").as_bytes());
    ServicePlan {
        name: service_name(federation, site),
        description: format!("Federation {federation} at site {site} [{digest:016x}]"),
        roles,
    }
}
