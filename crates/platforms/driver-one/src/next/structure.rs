//! Images, templates, and the service with its roles, which VMs require.

use trellis_one::Template;
use trellis_one::flow::{RoleTemplate, ServiceTemplate};
use trellis_plan::{PoolRules, Spec};
use trellis_spec::Persistence;

use super::placement::{Placement, Role};
use super::{Next, Situation, Step};
use crate::render::service::{self, RoleSpec};
use crate::render::template::{self, Material, Place, Thing, image_of, is_file, vm_template};
use crate::render::{RoleOf, context, labels, state_disk_name, upload_name};
use crate::view::{ImageState, ImageView, named, unknown};

pub fn build(situation: &Situation<'_>, placement: &Placement<'_>, next: &mut Next) {
    let Some(plan) = templates(situation, placement, next) else { return };
    let Some(template) = service_template(situation, &plan, next) else { return };
    super::service::reconcile(situation, placement, template, &plan, next);
}

/// Ids of the VM templates of all roles. `None` if some are missing.
fn templates(situation: &Situation<'_>, placement: &Placement<'_>, next: &mut Next) -> Option<ServiceTemplate> {
    // OneFlow would wait forever for a parent role that is not in the same template.
    let has_superlink = placement.roles.contains_key(&RoleOf::SuperLink);
    let mut roles: Option<Vec<RoleTemplate>> = Some(Vec::new());
    for (of, role) in &placement.roles {
        let id = template(situation, of, role, next);
        let plan = id.map(|id| {
            let template = i32::try_from(id).unwrap_or(i32::MAX);
            let role_spec = RoleSpec { of, name: &role.name, template, count: role.count, rules: rules(situation, of) };
            service::role(situation.federation, situation.site, &role_spec, has_superlink)
        });
        roles = roles.zip(plan).map(|(mut roles, plan)| {
            roles.push(plan);
            roles
        });
    }
    Some(service::service(situation.federation, situation.site, roles?))
}

fn rules<'a>(situation: &Situation<'a>, of: &RoleOf) -> Option<&'a PoolRules> {
    match of {
        RoleOf::Pool(pool) => situation.elastic.get(pool),
        RoleOf::SuperLink | RoleOf::Gateway => None,
    }
}

/// Id of a role's VM template, if it is up to date.
fn template(situation: &Situation<'_>, of: &RoleOf, role: &Role<'_>, next: &mut Next) -> Option<u32> {
    let image = image(situation, &image_of(situation.one, role.spec), next);
    let network = network(situation, next);
    let state_disk = state_disk(situation, role.spec, next);
    let material = Material {
        image: Thing::Number(image?),
        network: Thing::Number(network?),
        state_disk: state_disk?.map(Thing::Number),
    };
    let place = Place { federation: situation.federation, site: situation.site };
    let values = context::context(of, role.spec, situation.secrets);
    let wanted = vm_template(place, of, &role.name, role.spec, &material, values);
    match situation.view.template(&role.name) {
        None => next.steps.push(Step::CreateTemplate { template: wanted }),
        Some(seen) if seen.attributes.get(labels::DIGEST).map(String::as_str) == wanted.text(labels::DIGEST) => {
            return Some(seen.id);
        }
        Some(seen) => next.steps.push(Step::UpdateTemplate { id: seen.id, template: wanted }),
    }
    None
}

/// `None` if it is missing or not ready.
fn image(situation: &Situation<'_>, wanted: &str, next: &mut Next) -> Option<u32> {
    let file = is_file(wanted);
    let name = if file { upload_name(situation.federation, situation.site, wanted) } else { wanted.to_owned() };
    let number = wanted.parse::<u32>().ok();
    let found = situation.view.images.iter().find(|image| image.name == name || Some(image.id) == number);
    match found {
        Some(image) => usable(image, next),
        None if file => {
            let place = Place { federation: situation.federation, site: situation.site };
            make_image(situation, template::upload(place, wanted), next);
            None
        }
        None => {
            block(next, format!("there is no image {wanted} that this user may use: upload it, or configure another"));
            None
        }
    }
}

fn make_image(situation: &Situation<'_>, template: Template, next: &mut Next) {
    let datastore = match &situation.one.datastore {
        None => None,
        Some(wanted) => match named(&situation.view.datastores, wanted) {
            Some(id) => Some(id),
            None => return block(next, unknown("datastore", wanted, &situation.view.datastores)),
        },
    };
    let step = Step::CreateImage { template, datastore };
    if !next.steps.contains(&step) {
        next.steps.push(step);
    }
}

fn usable(image: &ImageView, next: &mut Next) -> Option<u32> {
    match image.state {
        ImageState::Usable => Some(image.id),
        ImageState::Waiting => None,
        ImageState::Failed => {
            let error = image.attributes.get("ERROR").map(|error| format!(": {error}")).unwrap_or_default();
            let (id, name) = (image.id, &image.name);
            let text = format!("image {id} ({name}) is not usable{error}: delete it, or enable it");
            block(next, text);
            None
        }
    }
}

fn network(situation: &Situation<'_>, next: &mut Next) -> Option<u32> {
    let found = named(&situation.view.networks, &situation.one.network);
    if found.is_none() {
        block(next, unknown("network", &situation.one.network, &situation.view.networks));
    }
    found
}

/// `None` if the disk is required and not ready; `Some(None)` if none is required.
fn state_disk(situation: &Situation<'_>, spec: Option<&Spec>, next: &mut Next) -> Option<Option<u32>> {
    let Some(Spec::Coordinator(spec)) = spec else { return Some(None) };
    let Persistence::Disk { size_bytes, .. } = &spec.persistence else { return Some(None) };
    let name = state_disk_name(situation.federation, situation.site);
    match situation.view.images.iter().find(|image| image.name == name) {
        Some(image) => usable(image, next).map(Some),
        None => {
            let place = Place { federation: situation.federation, site: situation.site };
            make_image(situation, template::state_disk(place, *size_bytes), next);
            None
        }
    }
}

/// Id of the service template, if it is up to date.
fn service_template(situation: &Situation<'_>, plan: &ServiceTemplate, next: &mut Next) -> Option<u32> {
    let mut seen = situation.view.service_templates.iter();
    let first = seen.next();
    next.steps.extend(seen.map(|other| Step::DeleteServiceTemplate { id: other.id }));
    match first {
        None => next.steps.push(Step::CreateServiceTemplate { plan: plan.clone() }),
        Some(seen) if seen.description == plan.description => return Some(seen.id),
        Some(seen) => next.steps.push(Step::UpdateServiceTemplate { id: seen.id, plan: plan.clone() }),
    }
    None
}

pub fn block(next: &mut Next, text: String) {
    if !next.blockers.contains(&text) {
        next.blockers.push(text);
    }
}
