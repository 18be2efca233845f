//! Judges facts: one check per topic. Pure.

mod flower;
mod machine;
mod service;
#[cfg(test)]
mod tests;

use crate::check::Check;
use crate::facts::Facts;

/// All checks: the program, the machine, Python, running services.
pub fn checks(facts: &Facts) -> Vec<Check> {
    vec![
        machine::program(&facts.program),
        machine::home(&facts.home),
        machine::clock(&facts.clock),
        machine::open_files(facts.open_files),
        machine::memory(facts.memory),
        machine::cgroup(&facts.cgroup),
        machine::sandbox(&facts.sandbox),
        machine::gpu(&facts.gpu),
        machine::engines(&facts.engines),
        flower::python(facts.flwr.as_ref()),
        flower::connections(&facts.connections),
        service::server(&facts.server, &facts.program.version),
        service::ports(&facts.ports, &facts.server),
        service::certificates(&facts.certificates, facts.clock.now_s),
    ]
}

/// `one, two and 3 more`.
fn listed(items: &[String], max: usize) -> String {
    let shown = items.iter().take(max).cloned().collect::<Vec<_>>().join(", ");
    match items.len().saturating_sub(max) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
