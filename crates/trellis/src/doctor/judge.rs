//! From what was seen to what it means: one check for each thing. Pure.

mod flower;
mod machine;
mod service;
#[cfg(test)]
mod tests;

use super::check::Check;
use super::facts::Facts;

/// In the order in which people look: this program, the machine, Python, what runs.
pub fn judge(facts: &Facts) -> Vec<Check> {
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
fn listed(things: &[String], most: usize) -> String {
    let shown = things.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match things.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
