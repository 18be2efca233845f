//! Preview of the requests for a desired state: names instead of unknown ids, without secrets.

use std::collections::BTreeMap;

use trellis_one::flow::{FlowVersion, ServiceTemplate};
use trellis_plan::{Desired, Rendering, Spec};
use trellis_spec::{Name, OneSite, Persistence};

use crate::render::service::{self, RoleSpec};
use crate::render::template::{Material, Place, Thing, image_of, vm_template};
use crate::render::{GATEWAY, RoleOf, SUPERLINK, SUPERNODE, context, state_disk_name};
use crate::secrets::{OwnCertificate, Secrets, TunnelKeys};

const HIDDEN: &str = "(hidden)";

/// VM templates of all roles, and the service template in the format of OpenNebula 7.
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
        let role_spec = RoleSpec { of, name: &name, template: 0, count, rules };
        roles.push(service::role(federation, site, &role_spec, superlink));
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

#[cfg(test)]
mod tests {
    use trellis_one::flow::lint;

    use super::*;
    use crate::testing;

    fn check_golden(file: &str, text: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("the directory is made");
            std::fs::write(&path, text).expect("the golden is written");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, golden, "{} differs; UPDATE_GOLDENS=1 updates it", path.display());
    }

    fn wanted() -> Vec<Desired> {
        let parts = ["f/lab/coordinator", "f/lab/node/cpu-0", "f/lab/node/cpu-1", "f/lab/node/gpu-0"];
        parts.iter().map(|part| testing::desired(part)).collect()
    }

    #[test]
    fn templates_are_what_they_were() {
        let (federation, site) = (testing::name("f"), testing::name("lab"));
        let (templates, service) = rendered(&testing::site(), &federation, &site, &wanted());
        assert_eq!(lint(&service), Vec::<String>::new());
        let mut text = String::new();
        for Rendering { title, text: body } in &templates {
            text.push_str(&format!("# {title}\n{body}\n\n"));
        }
        check_golden("vm-templates.txt", &text);
        for (version, file) in [(FlowVersion::V7, "service-7.json"), (FlowVersion::V6, "service-6.json")] {
            let text = serde_json::to_string_pretty(&service.render(version)).expect("JSON");
            check_golden(file, &format!("{text}\n"));
        }
    }

    #[test]
    fn previews_contain_no_secrets_and_may_be_empty() {
        let (federation, site) = (testing::name("f"), testing::name("lab"));
        assert_eq!(preview(&testing::site(), &federation, &site, &[]), Vec::new());
        let shown = preview(&testing::site(), &federation, &site, &wanted());
        assert!(shown.iter().any(|rendering| rendering.text.contains("FL_ADMIN_TOKEN")));
        for rendering in shown {
            for line in rendering.text.lines().filter(|line| line.contains("FL_ADMIN_TOKEN")) {
                assert!(line.contains(HIDDEN), "{line}");
            }
        }
    }
}
