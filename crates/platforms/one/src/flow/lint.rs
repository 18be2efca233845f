//! Validation of service descriptions. OneFlow accepts most of these errors silently; then the service never becomes ready,
//! or its VMs are misconfigured.

use std::collections::{BTreeMap, BTreeSet};

use super::description::{Adjustment, FlowVersion, RoleKind, RoleTemplate, ServiceTemplate, When};
use super::{cron, expression, input};
use crate::template::Value;

/// OneFlow truncates names of VMs at this length, so the names that they contain must be shorter together.
pub const MAX_NAMES_CHARS: usize = 128;
/// `_123456_(service_12345678)`
const VM_NAME_EXTRA_CHARS: usize = 26;

/// All problems, with their positions.
pub fn lint(service: &ServiceTemplate) -> Vec<String> {
    let mut problems = Vec::new();
    check_service_name(service, &mut problems);
    if service.roles.is_empty() {
        problems.push("the service has no roles".to_owned());
    }
    check_inputs("the service", &service.user_inputs, &mut problems);
    for (name, network) in &service.networks {
        check_network(name, network, &mut problems);
    }
    let mut seen = BTreeSet::new();
    for role in &service.roles {
        if !seen.insert(&role.name) {
            problems.push(format!("two roles have the name {}", role.name));
        }
        problems.extend(lint_role(role));
        check_names_together(service, role, &mut problems);
        check_levels(service, role, &mut problems);
    }
    check_parents(&service.roles, &mut problems);
    problems
}

/// Features that the version of OneFlow does not support.
pub fn lint_version(service: &ServiceTemplate, version: FlowVersion) -> Vec<String> {
    let routers = service.roles.iter().filter(|role| role.kind == RoleKind::VirtualRouter);
    match version {
        FlowVersion::V7 => Vec::new(),
        FlowVersion::V6 => {
            routers.map(|role| format!("role {}: OneFlow 6 has no roles of virtual routers", role.name)).collect()
        }
    }
}

/// Problems within one role.
pub fn lint_role(role: &RoleTemplate) -> Vec<String> {
    let mut found = Vec::new();
    if role.name.is_empty() || !role.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        found.push("its name may have letters, digits and _ only".to_owned());
    }
    if role.template_id < 0 {
        found.push(format!("{} is not the id of a VM template", role.template_id));
    }
    found.extend(role.template_contents.problems());
    if role.template_contents.0.iter().any(|(key, _)| key == "SCHED_ACTION") {
        found.push("its template has scheduled actions (SCHED_ACTION), which OneFlow does not support".to_owned());
    }
    check_inputs("it", &role.user_inputs, &mut found);
    check_sizes(role, &mut found);
    check_policies(role, &mut found);
    if role.kind == RoleKind::VirtualRouter {
        check_router(role, &mut found);
    }
    found.into_iter().map(|what| format!("role {:?}: {what}", role.name)).collect()
}

fn check_service_name(service: &ServiceTemplate, problems: &mut Vec<String>) {
    let name = &service.name;
    if name.trim().is_empty() {
        problems.push("the service has no name".to_owned());
    }
    if name.chars().any(char::is_control) {
        problems.push("the name of the service has control characters".to_owned());
    }
    if name.chars().count() >= MAX_NAMES_CHARS {
        problems.push(format!("the name of the service has {MAX_NAMES_CHARS} characters or more"));
    }
}

fn check_names_together(service: &ServiceTemplate, role: &RoleTemplate, problems: &mut Vec<String>) {
    let count = |text: &str| text.chars().count();
    if let Some(template) = &role.template_name
        && count(&service.name) + count(template) >= MAX_NAMES_CHARS
    {
        problems.push(format!(
            "role {:?}: the names of the service and of the VM template {template:?} have {MAX_NAMES_CHARS} characters \
             or more together, and would be truncated",
            role.name
        ));
    }
    if count(&role.name) + VM_NAME_EXTRA_CHARS >= MAX_NAMES_CHARS {
        problems.push(format!("role {:?}: its name is too long for the names of its VMs", role.name));
    }
}

fn check_inputs(whose: &str, inputs: &BTreeMap<String, String>, problems: &mut Vec<String>) {
    for (key, text) in inputs {
        let whats = input::problems(text);
        problems.extend(whats.into_iter().map(|what| format!("the input {key} of {whose}: {what}")));
        if !is_key(key) {
            problems.push(format!("the input {key:?} of {whose} is not the name of an attribute"));
        }
    }
}

fn is_key(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn check_network(name: &str, text: &str, problems: &mut Vec<String>) {
    let fields: Vec<&str> = text.split('|').collect();
    let choice = fields.last().and_then(|last| last.split_once(':'));
    let chosen =
        matches!(choice, Some(("id" | "template_id" | "reserve_from", id)) if id.trim().parse::<u32>().is_ok());
    if fields.len() != 5 || !["M", "O"].contains(&fields[0]) || fields[1] != "network" || !chosen {
        problems.push(format!(
            "the network {name}: {text:?} is not M|network|description||id:N (or template_id:N, reserve_from:N)"
        ));
    }
}

/// A repeated key: which value counts depends on the version.
fn check_levels(service: &ServiceTemplate, role: &RoleTemplate, problems: &mut Vec<String>) {
    for key in role.user_inputs.keys() {
        if service.user_inputs.contains_key(key) {
            problems.push(format!("role {:?}: the input {key} is defined in the service and in the role", role.name));
        }
    }
    let said = |key: &str| {
        role.template_contents.0.iter().any(|(name, value)| match value {
            Value::Text(_) => name == key,
            // Inputs also become part of the context, where references to them are valid.
            Value::Vector(pairs) => {
                name == "CONTEXT" && pairs.iter().any(|(inner, text)| inner == key && *text != format!("${key}"))
            }
        })
    };
    for key in service.user_inputs.keys().chain(role.user_inputs.keys()) {
        if said(key) {
            problems.push(format!("role {:?}: {key} is an input, and its template has another value", role.name));
        }
    }
}

fn check_sizes(role: &RoleTemplate, found: &mut Vec<String>) {
    let size = role.cardinality;
    if let Some(min) = role.min_vms
        && size < min
    {
        found.push(format!("its cardinality {size} is less than min_vms {min}"));
    }
    if let Some(max) = role.max_vms
        && size > max
    {
        found.push(format!("its cardinality {size} is more than max_vms {max}"));
    }
    if let (Some(min), Some(max)) = (role.min_vms, role.max_vms)
        && min > max
    {
        found.push(format!("min_vms {min} is more than max_vms {max}"));
    }
    let has_policies = !role.elasticity_policies.is_empty() || !role.scheduled_policies.is_empty();
    if has_policies && (role.min_vms.is_none() || role.max_vms.is_none()) {
        found.push("its policies need both min_vms and max_vms".to_owned());
    }
}

fn check_policies(role: &RoleTemplate, found: &mut Vec<String>) {
    for (number, policy) in role.elasticity_policies.iter().enumerate() {
        let place = format!("elasticity policy {}", number + 1);
        check_adjustment(&place, policy.adjustment, found);
        match expression::parse(&policy.expression) {
            Err(why) => found.push(format!("{place}: {:?} cannot be read {why}", policy.expression)),
            Ok(read) => found.extend(read.surprises().into_iter().map(|what| format!("{place}: {what}"))),
        }
    }
    for (number, policy) in role.scheduled_policies.iter().enumerate() {
        let place = format!("scheduled policy {}", number + 1);
        check_adjustment(&place, policy.adjustment, found);
        if let When::Recurring(text) = &policy.when {
            found.extend(cron::problems(text).into_iter().map(|what| format!("{place}: {what}")));
        }
    }
}

fn check_adjustment(place: &str, adjustment: Adjustment, found: &mut Vec<String>) {
    match adjustment {
        Adjustment::Change(0) | Adjustment::Percentage { percent: 0, .. } => {
            found.push(format!("{place}: it changes nothing"));
        }
        Adjustment::Percentage { min_step: Some(0), .. } => {
            found.push(format!("{place}: the minimum step is 1"));
        }
        Adjustment::Change(_) | Adjustment::Cardinality(_) | Adjustment::Percentage { .. } => {}
    }
}

fn check_router(role: &RoleTemplate, found: &mut Vec<String>) {
    let floating = |pairs: &[(String, String)]| pairs.iter().any(|(key, _)| key.starts_with("FLOATING"));
    if role.cardinality > 1 && !role.template_contents.vectors("NIC").any(floating) {
        found.push("more than one virtual router needs an interface with a floating address (FLOATING_IP)".to_owned());
    }
    let elastic = role.min_vms.is_some() || role.max_vms.is_some() || role.cooldown_s.is_some();
    if elastic || !role.elasticity_policies.is_empty() || !role.scheduled_policies.is_empty() {
        found.push("virtual routers cannot be scaled".to_owned());
    }
}

fn check_parents(roles: &[RoleTemplate], problems: &mut Vec<String>) {
    let names: BTreeSet<&str> = roles.iter().map(|role| role.name.as_str()).collect();
    for role in roles {
        let unknown = role.parents.iter().filter(|parent| !names.contains(parent.as_str()));
        problems.extend(unknown.map(|parent| format!("role {:?}: its parent {parent:?} does not exist", role.name)));
    }
    // Removes roles whose parents are removed, like OneFlow deploys them. The remaining ones form cycles.
    let mut waiting: Vec<&RoleTemplate> = roles.iter().collect();
    loop {
        let left: BTreeSet<&str> = waiting.iter().map(|role| role.name.as_str()).collect();
        let before = waiting.len();
        waiting.retain(|role| role.parents.iter().any(|parent| left.contains(parent.as_str())));
        if waiting.len() == before {
            break;
        }
    }
    if !waiting.is_empty() {
        let names: Vec<&str> = waiting.iter().map(|role| role.name.as_str()).collect();
        problems.push(format!("the parents of these roles form a cycle: {}", names.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::super::description::{ElasticityPolicy, ScheduledPolicy};
    use super::*;
    use crate::Template;

    fn role(name: &str, parents: &[&str]) -> RoleTemplate {
        RoleTemplate {
            name: name.into(),
            cardinality: 1,
            parents: parents.iter().map(|parent| (*parent).to_owned()).collect(),
            ..RoleTemplate::default()
        }
    }

    fn service(roles: Vec<RoleTemplate>) -> ServiceTemplate {
        ServiceTemplate { name: "f-s".into(), roles, ..ServiceTemplate::default() }
    }

    fn of_role(change: impl FnOnce(&mut RoleTemplate)) -> Vec<String> {
        let mut changed = role("a", &[]);
        change(&mut changed);
        lint(&service(vec![changed]))
    }

    #[test]
    fn a_service_as_we_make_them_is_well() {
        let mut nodes = role("supernode", &["superlink"]);
        (nodes.cardinality, nodes.min_vms, nodes.max_vms) = (0, Some(0), Some(100));
        nodes.elasticity_policies.push(ElasticityPolicy {
            adjustment: Adjustment::Change(1),
            expression: "FL_CLIENT_STATUS > 1".into(),
            period_number: Some(2),
            period_s: Some(60),
            cooldown_s: None,
        });
        let good = service(vec![role("superlink", &[]), nodes, role("gateway", &["superlink"])]);
        assert_eq!(lint(&good), Vec::<String>::new());
    }

    #[test]
    fn parents_exist_and_do_not_wait_for_their_children() {
        let roles = vec![role("a", &["b"]), role("b", &["c"]), role("c", &["a"]), role("d", &["x"]), role("e", &["a"])];
        assert_eq!(
            lint(&service(roles)),
            ["role \"d\": its parent \"x\" does not exist", "the parents of these roles form a cycle: a, b, c, e",]
        );
        assert_eq!(lint(&service(vec![role("a", &["a"])])), ["the parents of these roles form a cycle: a"]);
    }

    #[test]
    fn names() {
        let mut bad = service(vec![role("a-b", &[]), role("ok", &[]), role("ok", &[])]);
        bad.name = "n".repeat(100);
        bad.roles[1].template_name = Some("t".repeat(28));
        assert_eq!(
            lint(&bad),
            [
                "role \"a-b\": its name may have letters, digits and _ only",
                "role \"ok\": the names of the service and of the VM template \"tttttttttttttttttttttttttttt\" have 128 \
             characters or more together, and would be truncated",
                "two roles have the name ok",
            ]
        );
        bad.name = String::new();
        bad.roles = vec![];
        assert_eq!(lint(&bad), ["the service has no name", "the service has no roles"]);
        assert_eq!(lint(&service(vec![role(&"r".repeat(102), &[])])).len(), 1);
    }

    #[test]
    fn sizes_and_policies() {
        let sizes = of_role(|role| (role.cardinality, role.min_vms, role.max_vms) = (5, Some(6), Some(4)));
        assert_eq!(
            sizes,
            [
                "role \"a\": its cardinality 5 is less than min_vms 6",
                "role \"a\": its cardinality 5 is more than max_vms 4",
                "role \"a\": min_vms 6 is more than max_vms 4",
            ]
        );
        let policies = of_role(|role| {
            let adjustment = Adjustment::Percentage { percent: 10, min_step: Some(0) };
            let expression = "CPU >".into();
            role.elasticity_policies = vec![ElasticityPolicy {
                adjustment,
                expression,
                period_number: None,
                period_s: None,
                cooldown_s: None,
            }];
            let when = When::Recurring("60 * * * *".into());
            role.scheduled_policies = vec![ScheduledPolicy { adjustment: Adjustment::Change(0), when }];
        });
        assert_eq!(
            policies,
            [
                "role \"a\": its policies need both min_vms and max_vms",
                "role \"a\": elasticity policy 1: the minimum step is 1",
                "role \"a\": elasticity policy 1: \"CPU >\" cannot be read at character 6: a number or a name should be here, \
             not \"the end\"",
                "role \"a\": scheduled policy 1: it changes nothing",
                "role \"a\": scheduled policy 1: \"60\" is not a valid minute: the range is 0 to 59",
            ]
        );
    }

    #[test]
    fn templates_inputs_and_networks() {
        let contents = Template::new()
            .with("SCHED_ACTION", [("ACTION", "terminate")])
            .with("KEY", "x")
            .with("CONTEXT", [("OTHER", "y"), ("FINE", "$FINE")]);
        let mut bad = service(vec![RoleTemplate { template_contents: contents, ..role("a", &[]) }]);
        let inputs = [("KEY", "M|text|k"), ("OTHER", "M|date|o"), ("FINE", "O|text|f|| ")];
        bad.user_inputs = inputs.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        bad.roles[0].user_inputs = [("FINE".to_owned(), "M|text|f".to_owned())].into();
        bad.networks = [("Public".to_owned(), "M|network|p||".to_owned())].into();
        assert_eq!(
            lint(&bad),
            [
                "the input OTHER of the service: the type \"date\" is none of text, text64, password, number, number-float, \
             range, range-float, list, list-multiple, boolean",
                "the network Public: \"M|network|p||\" is not M|network|description||id:N (or template_id:N, reserve_from:N)",
                "role \"a\": its template has scheduled actions (SCHED_ACTION), which OneFlow does not support",
                "role \"a\": the input FINE is defined in the service and in the role",
                "role \"a\": KEY is an input, and its template has another value",
                "role \"a\": OTHER is an input, and its template has another value",
            ]
        );
    }

    #[test]
    fn virtual_routers() {
        let router = |cardinality, contents| {
            let kind = RoleKind::VirtualRouter;
            service(vec![RoleTemplate { kind, cardinality, template_contents: contents, ..role("r", &[]) }])
        };
        let floating = Template::new().with("NIC", [("NETWORK_ID", "0"), ("FLOATING_IP", "YES")]);
        assert_eq!(lint(&router(2, floating)), Vec::<String>::new());
        assert_eq!(lint(&router(2, Template::new())).len(), 1);
        assert_eq!(lint(&router(1, Template::new())), Vec::<String>::new());
        let mut scaled = router(1, Template::new());
        scaled.roles[0].max_vms = Some(2);
        assert_eq!(lint(&scaled), ["role \"r\": virtual routers cannot be scaled"]);
        assert_eq!(lint_version(&scaled, FlowVersion::V6).len(), 1);
        assert_eq!(lint_version(&scaled, FlowVersion::V7), Vec::<String>::new());
    }
}
