//! Updates of the records from an observation: VMs that were found for parts, and parts that are gone.

use std::collections::BTreeMap;

use trellis_one::keys::{TRELLIS_GENERATION, token_mark};
use trellis_plan::{Desired, Millis, ResourceId};

use crate::record::{Record, Restart, Target};
use crate::render::labels;
use crate::view::{Life, View, VmView};

pub type Document = BTreeMap<ResourceId, Desired>;

/// Records to write, and parts whose records to delete.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordChanges {
    pub changed: Vec<Record>,
    pub gone: Vec<ResourceId>,
}

impl RecordChanges {
    /// The record of a part that was found without one.
    pub fn found(&self, id: &ResourceId) -> Option<Record> {
        self.changed.iter().find(|record| record.id == *id).cloned()
    }
}

/// `heard`: the desired state of the document at this site, if known.
pub fn update_records(
    records: &BTreeMap<ResourceId, Record>,
    view: &View,
    document: Option<&Document>,
    now_ms: Millis,
) -> RecordChanges {
    let mut settled = RecordChanges::default();
    for record in records.values() {
        match record.target {
            Target::Gone if is_over(records, record, view) => settled.gone.push(record.id.clone()),
            _ => {
                let mut after = updated(record, view);
                if let Some(document) = document.and_then(|document| document.get(&record.id)) {
                    after.adopt(document);
                }
                if after != *record {
                    settled.changed.push(after);
                }
            }
        }
    }
    settled.changed.extend(found(records, view, now_ms));
    settled
}

/// Records for marked VMs without a record.
fn found(records: &BTreeMap<ResourceId, Record>, view: &View, now_ms: Millis) -> Vec<Record> {
    let mut found: BTreeMap<ResourceId, Record> = BTreeMap::new();
    for vm in view.vms.iter().filter(|vm| !vm.is_leaving()) {
        let Some(id) = vm.mark().and_then(|mark| ResourceId::try_from(mark.to_owned()).ok()) else { continue };
        if records.contains_key(&id) || found.contains_key(&id) {
            continue;
        }
        found.insert(id.clone(), Record::found(id, vm, now_ms));
    }
    found.into_values().collect()
}

fn updated(record: &Record, view: &View) -> Record {
    let mut record = record.clone();
    record.abandoned.retain(|id| view.vm(*id).is_some());
    if record.vm.is_none() {
        let own = view.marked(&record.id).find(|vm| !record.abandoned.contains(&vm.id) && !vm.is_leaving());
        record.vm = own.map(|vm| vm.id);
    }
    let runs = record.vm.and_then(|id| view.vm(id)).is_some_and(|vm| vm.life == Life::Running);
    if let (true, Some(Restart { machine, .. })) = (runs, &mut record.restart) {
        *machine = false;
    }
    let refused = record.vm.and_then(|id| view.vm(id)).and_then(VmView::rejected_token);
    let mark = |token: &str| token_mark(token, &record.id.part.name());
    if refused.is_some() && record.join_token.as_deref().map(mark) == refused {
        // A SuperLink that lost its state rejects all earlier tokens: the node needs a new one.
        record.join_token = None;
    }
    record
}

/// Whether nothing is left of the part. For the last part: nothing of the federation at this site.
fn is_over(records: &BTreeMap<ResourceId, Record>, record: &Record, view: &View) -> bool {
    let has_vm = view.marked(&record.id).next().is_some() || record.abandoned.iter().any(|id| view.vm(*id).is_some());
    let has_state = record.id.node_key().is_none() && has_image(record, view, "state");
    if has_vm || has_state || still_runs(record, view) {
        return false;
    }
    let is_last = !records.values().any(Record::is_wanted);
    !is_last || (view.is_empty() && !has_image(record, view, "upload"))
}

/// Whether the VM is reassigned, but its agent still runs this part. Until the agent switches, no other part may get
/// the shard.
fn still_runs(record: &Record, view: &View) -> bool {
    let vm = record.vm.and_then(|id| view.vm(id)).filter(|vm| vm.life == Life::Running);
    let generation = record.generation().map(|generation| generation.to_string());
    generation.is_some() && vm.and_then(|vm| vm.attribute(TRELLIS_GENERATION)) == generation.as_deref()
}

fn has_image(record: &Record, view: &View, purpose: &str) -> bool {
    view.images.iter().any(|image| {
        let is = |label: &str, value: &str| image.attributes.get(label).is_some_and(|found| found == value);
        is(labels::FEDERATION, record.id.federation.as_str())
            && is(labels::SITE, record.id.site.as_str())
            && is(labels::PURPOSE, purpose)
    })
}
