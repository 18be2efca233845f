//! Creates desired nodes that are absent, if there is capacity for them.

use std::collections::BTreeMap;

use trellis_spec::Name;

use super::Step;
use super::coordinator::Gate;
use super::grouped::GroupedReport;
use super::view::{Node, View};
use crate::action::Verb;
use crate::observed::Presence;
use crate::report::Weight;

pub(super) fn create(view: &View<'_>, gate: &Gate) -> Step {
    let mut step = Step::default();
    let mut grouped = GroupedReport::default();
    let mut free_nodes = FreeNodes::new(view);
    for node in &view.nodes {
        match &node.presence {
            Presence::Present { .. } => {}
            Presence::Unknown { why } => grouped.add(Weight::Waits, &node.key, format!("left unchanged: {why}")),
            Presence::Absent => match may_create(view, node, gate, &mut free_nodes) {
                Ok(verb) => step.act(verb),
                Err(Some((weight, why))) => grouped.add(weight, &node.key, format!("not created: {why}")),
                Err(None) => {}
            },
        }
    }
    grouped.into_step(&mut step);
    step
}

/// `Err(None)`: the reason is reported elsewhere.
fn may_create(
    view: &View<'_>,
    node: &Node,
    gate: &Gate,
    free_nodes: &mut FreeNodes<'_>,
) -> Result<Verb, Option<(Weight, String)>> {
    if node.shard.is_none() {
        return Err(None);
    }
    if let Some((old, presence)) = view.elsewhere(&node.id) {
        let text = match presence {
            Presence::Unknown { why } => format!("it may still exist at site {}: {why}", old.site),
            _ => format!("it still exists at site {}", old.site),
        };
        return Err(Some((Weight::Waits, text)));
    }
    if let Some(why) = &node.blocker {
        return Err(Some((Weight::Stuck, why.clone())));
    }
    if let Some(why) = gate.creation_blocker() {
        return Err(Some((Weight::Waits, why.to_owned())));
    }
    let Some(desired) = &node.desired else {
        return Err(Some((Weight::Waits, "the address of the coordinator is unknown".to_owned())));
    };
    free_nodes.take(node).map_err(|why| Some((Weight::Stuck, why)))?;
    Ok(Verb::Create(desired.clone()))
}

/// How many more nodes each site can hold.
struct FreeNodes<'a> {
    /// By the limit of the document, and by the capacity of the site.
    left: BTreeMap<&'a Name, (Option<u32>, Option<u32>)>,
    view: &'a View<'a>,
}

impl<'a> FreeNodes<'a> {
    fn new(view: &'a View<'a>) -> FreeNodes<'a> {
        let left = view.federation.sites.iter().map(|site| {
            (&site.name, (view.free_nodes_by_document(&site.name), view.observed.capacity(&site.name).free_nodes))
        });
        FreeNodes { left: left.collect(), view }
    }

    fn take(&mut self, node: &Node) -> Result<(), String> {
        let site = &node.id.site;
        let Some((by_document, by_site)) = self.left.get_mut(site) else { return Ok(()) };
        // A creation whose outcome is unknown is counted already.
        let is_counted = self.view.known.contains_key(&node.id);
        if *by_document == Some(0) && !is_counted {
            let sites = &self.view.federation.sites;
            let max = sites.iter().find(|other| other.name == *site).and_then(|site| site.max_nodes);
            return Err(format!("site {site} has reached its limit of {} nodes", max.unwrap_or_default()));
        }
        if *by_site == Some(0) {
            return Err(format!("site {site} has no capacity for another node"));
        }
        if !is_counted {
            *by_document = by_document.map(|left| left - 1);
        }
        *by_site = by_site.map(|left| left - 1);
        Ok(())
    }
}
