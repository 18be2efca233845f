//! Nodes that are wanted and certainly not there: made, where there is room for them.

use std::collections::BTreeMap;

use trellis_spec::Name;

use super::Step;
use super::coordinator::Gate;
use super::crowd::Crowd;
use super::view::{Node, View};
use crate::action::Verb;
use crate::observed::Sighting;
use crate::report::Weight;

pub(super) fn make(view: &View<'_>, gate: &Gate) -> Step {
    let mut step = Step::default();
    let mut crowd = Crowd::default();
    let mut rooms = Rooms::new(view);
    for node in &view.nodes {
        match &node.sighting {
            Sighting::Present { .. } => {}
            Sighting::Unknown { why } => crowd.tell(Weight::Waits, &node.key, format!("left alone: {why}")),
            Sighting::Absent => match may_make(view, node, gate, &mut rooms) {
                Ok(verb) => step.ask(verb),
                Err(Some((weight, why))) => crowd.tell(weight, &node.key, format!("not made: {why}")),
                Err(None) => {}
            },
        }
    }
    crowd.into_step(&mut step);
    step
}

/// `Err(None)`: the reason was told already.
fn may_make(
    view: &View<'_>,
    node: &Node,
    gate: &Gate,
    rooms: &mut Rooms<'_>,
) -> Result<Verb, Option<(Weight, String)>> {
    if node.shard.is_none() {
        return Err(None);
    }
    if let Some((old, sighting)) = view.elsewhere(&node.id) {
        let text = match sighting {
            Sighting::Unknown { why } => format!("it may still be at site {}: {why}", old.site),
            _ => format!("it is still at site {}", old.site),
        };
        return Err(Some((Weight::Waits, text)));
    }
    if let Some(why) = &node.hindrance {
        return Err(Some((Weight::Stuck, why.clone())));
    }
    if let Some(why) = gate.against_repairs() {
        return Err(Some((Weight::Waits, why.to_owned())));
    }
    let Some(desired) = &node.desired else {
        return Err(Some((Weight::Waits, "the coordinator has not said where it is reached".to_owned())));
    };
    rooms.enter(node).map_err(|why| Some((Weight::Stuck, why)))?;
    Ok(Verb::Create(desired.clone()))
}

/// How many nodes each site may still take.
struct Rooms<'a> {
    /// By the document, and by what the site says.
    left: BTreeMap<&'a Name, (Option<u32>, Option<u32>)>,
    view: &'a View<'a>,
}

impl<'a> Rooms<'a> {
    fn new(view: &'a View<'a>) -> Rooms<'a> {
        let left = view
            .federation
            .sites
            .iter()
            .map(|site| (&site.name, (view.room_by_document(&site.name), view.observed.offer(&site.name).room)));
        Rooms { left: left.collect(), view }
    }

    fn enter(&mut self, node: &Node) -> Result<(), String> {
        let site = &node.id.site;
        let Some((by_document, by_site)) = self.left.get_mut(site) else { return Ok(()) };
        // What was asked for without an answer has its place already.
        let has_place = self.view.known.contains_key(&node.id);
        if *by_document == Some(0) && !has_place {
            let sites = &self.view.federation.sites;
            let most = sites.iter().find(|other| other.name == *site).and_then(|site| site.max_nodes);
            return Err(format!("site {site} may hold {} nodes, and does", most.unwrap_or_default()));
        }
        if *by_site == Some(0) {
            return Err(format!("site {site} has no room for another node"));
        }
        if !has_place {
            *by_document = by_document.map(|left| left - 1);
        }
        *by_site = by_site.map(|left| left - 1);
        Ok(())
    }
}
