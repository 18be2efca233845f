//! Deletes the objects of a federation without desired parts: the service with its VMs, then the templates and images.
//! Deletes the coordinator's state after the coordinator.

use super::placement::end;
use super::{Next, Situation, Step};
use crate::record::Target;
use crate::render::labels;
use crate::view::{ImageView, ServiceState, ServiceView};

pub fn all(situation: &Situation<'_>, next: &mut Next) {
    let view = situation.view;
    if !view.services.is_empty() {
        next.steps.extend(view.services.iter().filter_map(|service| end_service(situation, service)));
        return;
    }
    if !view.vms.is_empty() {
        next.steps.extend(view.vms.iter().filter_map(end));
        return;
    }
    next.steps.extend(view.service_templates.iter().map(|template| Step::DeleteServiceTemplate { id: template.id }));
    next.steps.extend(view.templates.iter().map(|template| Step::DeleteTemplate { id: template.id }));
    let uploads = view.images.iter().filter(|image| is_own(situation, image, "upload"));
    next.steps.extend(uploads.map(|image| Step::DeleteImage { image: image.id }));
    state_disk(situation, next);
}

/// Deletes the state disk after the coordinator's VM is gone.
pub fn state_disk(situation: &Situation<'_>, next: &mut Next) {
    let deleted =
        situation.records.values().find(|record| record.id.node_key().is_none() && record.target == Target::Gone);
    let Some(record) = deleted else { return };
    if situation.view.marked(&record.id).next().is_some()
        || record.abandoned.iter().any(|id| situation.view.vm(*id).is_some())
    {
        return;
    }
    let disks = situation.view.images.iter().filter(|image| is_own(situation, image, "state"));
    next.steps.extend(disks.map(|image| Step::DeleteImage { image: image.id }));
}

/// The step that removes a service in its current state.
pub fn end_service(situation: &Situation<'_>, service: &ServiceView) -> Option<Step> {
    let stuck = situation.history.state_age_ms(service.id, situation.now_ms) >= situation.limits.stuck_ms;
    match service.state {
        ServiceState::Running | ServiceState::Warning => Some(Step::DeleteService { service: service.id }),
        ServiceState::Failed | ServiceState::DeleteFailed => Some(Step::RemoveService { service: service.id }),
        // OneFlow refuses `delete` in COOLDOWN; `recover --delete` works in every state.
        ServiceState::Cooldown => Some(Step::RemoveService { service: service.id }),
        ServiceState::Changing | ServiceState::Deleting if stuck => Some(Step::RemoveService { service: service.id }),
        ServiceState::Changing | ServiceState::Deleting => None,
    }
}

fn is_own(situation: &Situation<'_>, image: &ImageView, purpose: &str) -> bool {
    let is = |label: &str, value: &str| image.attributes.get(label).is_some_and(|found| found == value);
    is(labels::FEDERATION, situation.federation.as_str())
        && is(labels::SITE, situation.site.as_str())
        && is(labels::PURPOSE, purpose)
}
