//! Images, templates and the service with its roles: what must be there before there can be VMs.

use trellis_one::Template;
use trellis_one::flow::{RoleTemplate, ServiceTemplate};
use trellis_plan::{PoolRules, Spec};
use trellis_spec::Persistence;

use super::crew::{Crew, Role};
use super::{Ground, Next, Step};
use crate::render::service::{self, Crewed};
use crate::render::template::{self, Material, Place, Thing, image_of, is_file, vm_template};
use crate::render::{RoleOf, context, labels, state_disk_name, upload_name};
use crate::view::{ImageSeen, ImageState, named, unknown};

pub fn build(ground: &Ground<'_>, crew: &Crew<'_>, next: &mut Next) {
    let Some(plan) = templates(ground, crew, next) else { return };
    let Some(template) = service_template(ground, &plan, next) else { return };
    super::service::keep(ground, crew, template, &plan, next);
}

/// VM templates of all roles, as they should be. `None`: some are not there yet.
fn templates(ground: &Ground<'_>, crew: &Crew<'_>, next: &mut Next) -> Option<ServiceTemplate> {
    // OneFlow would wait forever for a parent role that is not in the same template.
    let has_superlink = crew.roles.contains_key(&RoleOf::SuperLink);
    let mut roles: Option<Vec<RoleTemplate>> = Some(Vec::new());
    for (of, role) in &crew.roles {
        let id = template(ground, of, role, next);
        let plan = id.map(|id| {
            let template = i32::try_from(id).unwrap_or(i32::MAX);
            let crewed = Crewed { of, name: &role.name, template, count: role.count, rules: rules(ground, of) };
            service::role(ground.federation, ground.site, &crewed, has_superlink)
        });
        roles = roles.zip(plan).map(|(mut roles, plan)| {
            roles.push(plan);
            roles
        });
    }
    Some(service::service(ground.federation, ground.site, roles?))
}

fn rules<'a>(ground: &Ground<'a>, of: &RoleOf) -> Option<&'a PoolRules> {
    match of {
        RoleOf::Pool(pool) => ground.elastic.get(pool),
        RoleOf::SuperLink | RoleOf::Gateway => None,
    }
}

/// The number of a role's VM template, if it is as it should be.
fn template(ground: &Ground<'_>, of: &RoleOf, role: &Role<'_>, next: &mut Next) -> Option<u32> {
    let image = image(ground, &image_of(ground.one, role.spec), next);
    let network = network(ground, next);
    let state_disk = state_disk(ground, role.spec, next);
    let material = Material {
        image: Thing::Number(image?),
        network: Thing::Number(network?),
        state_disk: state_disk?.map(Thing::Number),
    };
    let place = Place { federation: ground.federation, site: ground.site };
    let values = context::context(of, role.spec, ground.secrets);
    let wanted = vm_template(place, of, &role.name, role.spec, &material, values);
    match ground.view.template(&role.name) {
        None => next.steps.push(Step::MakeTemplate { template: wanted }),
        Some(seen) if seen.attributes.get(labels::DIGEST).map(String::as_str) == wanted.text(labels::DIGEST) => {
            return Some(seen.id);
        }
        Some(seen) => next.steps.push(Step::UpdateTemplate { id: seen.id, template: wanted }),
    }
    None
}

/// `None`: it is not there, or not ready.
fn image(ground: &Ground<'_>, wanted: &str, next: &mut Next) -> Option<u32> {
    let file = is_file(wanted);
    let name = if file { upload_name(ground.federation, ground.site, wanted) } else { wanted.to_owned() };
    let number = wanted.parse::<u32>().ok();
    let found = ground.view.images.iter().find(|image| image.name == name || Some(image.id) == number);
    match found {
        Some(image) => usable(image, next),
        None if file => {
            let place = Place { federation: ground.federation, site: ground.site };
            make_image(ground, template::upload(place, wanted), next);
            None
        }
        None => {
            trouble(next, format!("there is no image {wanted} that this user may use: upload it, or name another"));
            None
        }
    }
}

fn make_image(ground: &Ground<'_>, template: Template, next: &mut Next) {
    let datastore = match &ground.one.datastore {
        None => None,
        Some(wanted) => match named(&ground.view.datastores, wanted) {
            Some(id) => Some(id),
            None => return trouble(next, unknown("datastore", wanted, &ground.view.datastores)),
        },
    };
    let step = Step::MakeImage { template, datastore };
    if !next.steps.contains(&step) {
        next.steps.push(step);
    }
}

fn usable(image: &ImageSeen, next: &mut Next) -> Option<u32> {
    match image.state {
        ImageState::Usable => Some(image.id),
        ImageState::Waits => None,
        ImageState::Failed => {
            let error = image.attributes.get("ERROR").map(|error| format!(": {error}")).unwrap_or_default();
            let (id, name) = (image.id, &image.name);
            let text = format!("image {id} ({name}) cannot be used{error}: delete it, or make it usable");
            trouble(next, text);
            None
        }
    }
}

fn network(ground: &Ground<'_>, next: &mut Next) -> Option<u32> {
    let found = named(&ground.view.networks, &ground.one.network);
    if found.is_none() {
        trouble(next, unknown("network", &ground.one.network, &ground.view.networks));
    }
    found
}

/// `None`: it is wanted and not ready. `Some(None)`: none is wanted.
fn state_disk(ground: &Ground<'_>, spec: Option<&Spec>, next: &mut Next) -> Option<Option<u32>> {
    let Some(Spec::Coordinator(spec)) = spec else { return Some(None) };
    let Persistence::Disk { size_bytes, .. } = &spec.persistence else { return Some(None) };
    let name = state_disk_name(ground.federation, ground.site);
    match ground.view.images.iter().find(|image| image.name == name) {
        Some(image) => usable(image, next).map(Some),
        None => {
            let place = Place { federation: ground.federation, site: ground.site };
            make_image(ground, template::state_disk(place, *size_bytes), next);
            None
        }
    }
}

/// The number of the service template, if it is as it should be.
fn service_template(ground: &Ground<'_>, plan: &ServiceTemplate, next: &mut Next) -> Option<u32> {
    let mut seen = ground.view.service_templates.iter();
    let first = seen.next();
    next.steps.extend(seen.map(|other| Step::DeleteServiceTemplate { id: other.id }));
    match first {
        None => next.steps.push(Step::MakeServiceTemplate { plan: plan.clone() }),
        Some(seen) if seen.description == plan.description => return Some(seen.id),
        Some(seen) => next.steps.push(Step::UpdateServiceTemplate { id: seen.id, plan: plan.clone() }),
    }
    None
}

pub fn trouble(next: &mut Next, text: String) {
    if !next.troubles.contains(&text) {
        next.troubles.push(text);
    }
}
