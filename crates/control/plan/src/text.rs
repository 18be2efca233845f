//! A plan as text, as `trellis plan` prints it.

use std::fmt;

use crate::action::Verb;
use crate::planner::Planned;
use crate::resource::Spec;
use crate::status::{Condition, Status};

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "actions")?;
        if self.actions.is_empty() {
            writeln!(f, "  none")?;
        }
        for action in &self.actions {
            writeln!(f, "  {}{}", action.verb, detail(&action.verb))?;
        }
        if !self.report.is_empty() {
            writeln!(f, "report")?;
        }
        for why in &self.report {
            writeln!(f, "  {}: {}: {}", why.weight.word(), why.about, why.text)?;
        }
        writeln!(f, "status")?;
        write_status(f, &self.status)
    }
}

fn detail(verb: &Verb) -> String {
    match verb {
        Verb::Create(desired) | Verb::Replace(desired) => match &desired.spec {
            Spec::Coordinator(_) => String::new(),
            Spec::Node(node) => format!(", shard {} of {}", node.shard, node.shards),
        },
        Verb::Restart { .. } | Verb::Drain { .. } | Verb::Delete { .. } => String::new(),
    }
}

fn write_status(f: &mut fmt::Formatter<'_>, status: &Status) -> fmt::Result {
    if status.gone {
        return writeln!(f, "  gone");
    }
    for (name, condition) in
        [("ready", &status.ready), ("reconciling", &status.reconciling), ("stalled", &status.stalled)]
    {
        write_condition(f, name, condition)?;
    }
    let coordinator = &status.coordinator;
    if !coordinator.phase.is_empty() {
        let is_there = !matches!(&*coordinator.phase, "absent" | "unknown");
        let old = if is_there && !coordinator.updated && !status.pools.is_empty() { ", not up to date" } else { "" };
        writeln!(f, "  coordinator at {}: {}{old}", coordinator.site, coordinator.phase)?;
    }
    for pool in &status.pools {
        let (name, site) = (&pool.name, &pool.site);
        let (wanted, present, ready, updated) = (pool.wanted, pool.present, pool.ready, pool.updated);
        writeln!(
            f,
            "  pool {name} at {site}: {wanted} desired, {present} present, {ready} ready, {updated} up to date"
        )?;
    }
    for site in status.sites.iter().filter(|site| !site.reachable) {
        writeln!(f, "  site {}: {}", site.name, site.why.as_deref().unwrap_or("unreachable"))?;
    }
    Ok(())
}

fn write_condition(f: &mut fmt::Formatter<'_>, name: &str, condition: &Condition) -> fmt::Result {
    let met = if condition.met { "yes" } else { "no" };
    writeln!(f, "  {name}: {met}, {}", condition.message)
}
