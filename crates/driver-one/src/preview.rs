//! What would be sent for wishes, as people read it: names where numbers are not known yet, and no secrets.

use std::collections::BTreeMap;

use trellis_one::flow::{FlowVersion, ServiceTemplate};
use trellis_plan::{Desired, Rendering, Spec};
use trellis_spec::{Name, OneSite, Persistence};

use crate::render::service::{self, Crewed};
use crate::render::template::{Material, Place, Thing, image_of, vm_template};
use crate::render::{GATEWAY, RoleOf, SUPERLINK, SUPERNODE, context, state_disk_name};
use crate::secrets::{OwnCertificate, Secrets, TunnelKeys};

const HIDDEN: &str = "(hidden)";

/// VM templates of all roles, and the service template as OpenNebula 7 takes it.
pub fn preview(one: &OneSite, federation: &Name, site: &Name, wanted: &[Desired]) -> Vec<Rendering> {
    let (templates, service) = rendered(one, federation, site, wanted);
    let mut renderings = templates;
    if !renderings.is_empty() {
        let text = serde_json::to_string_pretty(&service.render(FlowVersion::V7));
        let text = text.expect("a JSON value always has a text");
        renderings.push(Rendering { title: format!("service template {}", service.name), text });
    }
    renderings
}

pub fn rendered(
    one: &OneSite,
    federation: &Name,
    site: &Name,
    wanted: &[Desired],
) -> (Vec<Rendering>, ServiceTemplate) {
    let mut groups: BTreeMap<RoleOf, Vec<&Desired>> = BTreeMap::new();
    for desired in wanted {
        groups.entry(RoleOf::of(desired.id.node_key())).or_default().push(desired);
    }
    if wanted.iter().any(|desired| context::tunnel(&desired.spec).is_some()) {
        groups.insert(RoleOf::Gateway, Vec::new());
    }
    let secrets = hidden();
    let superlink = groups.contains_key(&RoleOf::SuperLink);
    let pools = groups.keys().filter(|of| matches!(of, RoleOf::Pool(_))).count();
    let (mut templates, mut roles) = (Vec::new(), Vec::new());
    for (of, parts) in &groups {
        let name = match of {
            RoleOf::SuperLink => SUPERLINK.to_owned(),
            RoleOf::Gateway => GATEWAY.to_owned(),
            RoleOf::Pool(_) if pools == 1 => SUPERNODE.to_owned(),
            RoleOf::Pool(pool) => RoleOf::long_name(pool),
        };
        let spec = parts.first().map(|desired| &desired.spec);
        let material = Material {
            image: Thing::Name(image_of(one, spec)),
            network: Thing::Name(one.network.clone()),
            state_disk: keeps(spec).then(|| Thing::Name(state_disk_name(federation, site))),
        };
        let values = context::context(of, spec, &secrets);
        let template = vm_template(Place { federation, site }, of, &name, spec, &material, values);
        templates.push(Rendering { title: format!("VM template of role {name}"), text: template.to_text() });
        let rules = match spec {
            Some(Spec::Node(spec)) => spec.rules.as_ref(),
            _ => None,
        };
        let count = u32::try_from(parts.len().max(1)).unwrap_or(u32::MAX);
        let crewed = Crewed { of, name: &name, template: 0, count, rules };
        roles.push(service::role(federation, site, &crewed, superlink));
    }
    (templates, service::service(federation, site, roles))
}

fn keeps(spec: Option<&Spec>) -> bool {
    matches!(spec, Some(Spec::Coordinator(spec)) if matches!(spec.persistence, Persistence::Disk { .. }))
}

fn hidden() -> Secrets {
    let text = || HIDDEN.to_owned();
    Secrets {
        admin_token: text(),
        tunnel: Some(TunnelKeys { private: text(), public: BTreeMap::new() }),
        certificate: Some(OwnCertificate { trust: text(), certificate: text(), key: text() }),
    }
}
