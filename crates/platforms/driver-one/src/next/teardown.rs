//! What goes when nothing is wanted: the service with its VMs, then what it was made of. And the coordinator's state, once
//! the coordinator was deleted.

use super::crew::end;
use super::{Ground, Next, Step};
use crate::record::Wish;
use crate::render::labels;
use crate::view::{ImageSeen, ServiceSeen, ServiceState};

pub fn all(ground: &Ground<'_>, next: &mut Next) {
    let view = ground.view;
    if !view.services.is_empty() {
        next.steps.extend(view.services.iter().filter_map(|service| end_service(ground, service)));
        return;
    }
    if !view.vms.is_empty() {
        next.steps.extend(view.vms.iter().filter_map(end));
        return;
    }
    next.steps.extend(view.service_templates.iter().map(|template| Step::DeleteServiceTemplate { id: template.id }));
    next.steps.extend(view.templates.iter().map(|template| Step::DeleteTemplate { id: template.id }));
    let uploads = view.images.iter().filter(|image| is_own(ground, image, "upload"));
    next.steps.extend(uploads.map(|image| Step::DeleteImage { image: image.id }));
    state_disk(ground, next);
}

/// The state goes with the coordinator, when its VM has gone.
pub fn state_disk(ground: &Ground<'_>, next: &mut Next) {
    let deleted = ground.records.values().find(|record| record.id.node_key().is_none() && record.wish == Wish::Gone);
    let Some(record) = deleted else { return };
    if ground.view.marked(&record.id).next().is_some()
        || record.abandoned.iter().any(|id| ground.view.vm(*id).is_some())
    {
        return;
    }
    let disks = ground.view.images.iter().filter(|image| is_own(ground, image, "state"));
    next.steps.extend(disks.map(|image| Step::DeleteImage { image: image.id }));
}

/// How a service is ended in the state that it is in.
pub fn end_service(ground: &Ground<'_>, service: &ServiceSeen) -> Option<Step> {
    let stuck = ground.memory.lasts_ms(service.id, ground.now_ms) >= ground.limits.stuck_ms;
    match service.state {
        ServiceState::Runs | ServiceState::Warns => Some(Step::DeleteService { service: service.id }),
        ServiceState::Failed | ServiceState::Stays => Some(Step::RemoveService { service: service.id }),
        // OneFlow refuses `delete` in COOLDOWN; `recover --delete` works in every state.
        ServiceState::Cooldown => Some(Step::RemoveService { service: service.id }),
        ServiceState::Turns | ServiceState::Leaves if stuck => Some(Step::RemoveService { service: service.id }),
        ServiceState::Turns | ServiceState::Leaves => None,
    }
}

fn is_own(ground: &Ground<'_>, image: &ImageSeen, purpose: &str) -> bool {
    let is = |label: &str, value: &str| image.attributes.get(label).is_some_and(|found| found == value);
    is(labels::FEDERATION, ground.federation.as_str())
        && is(labels::SITE, ground.site.as_str())
        && is(labels::PURPOSE, purpose)
}
