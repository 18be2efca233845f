//! Guarantees that the official programs do not give, reported before anything is created.

use trellis_flower::Isolation;
use trellis_flower::Release;
use trellis_flower::changes::{APPS_COMPARE_RELEASES, FLEET_BY_HTTP, SUPEREXEC_TLS};

use crate::federation::{Federation, Persistence, Pool, Runtime, Tls};

impl Federation {
    /// The guarantees that the chosen runtime does not give, as sentences. Empty with our own runtime.
    pub fn promises_lost(&self) -> Vec<String> {
        let Runtime::Flower(version) = self.runtime else { return Vec::new() };
        let mut lost = vec![
            "Rounds take seconds, not milliseconds: nodes and ServerApps ask for messages every few seconds."
                .to_owned(),
            "A node that is killed loses the message it works on; the run waits for it until the node counts as gone."
                .to_owned(),
            "Native training (`trellis run`) needs our SuperLink: the strategy is the ServerApp's, in Python."
                .to_owned(),
            "Nodes do not report whether they are busy, so a node may be removed in the middle of a round."
                .to_owned(),
            "While the number of shards changes, a run may select nodes of both numberings; nodes that join by themselves \
             are not listed."
                .to_owned(),
        ];
        lost.extend(self.restart_lost());
        lost.extend(self.security_lost(version));
        lost.extend(self.watching_lost());
        lost.extend(self.pools.iter().flat_map(pool_lost));
        lost
    }

    fn restart_lost(&self) -> Option<String> {
        let lost = match (&self.coordinator.persistence, self.coordinator.isolation) {
            (Persistence::Memory, _) => {
                "When the SuperLink restarts, every node ends and must be started again, and runs are lost."
            }
            (Persistence::Disk { .. }, Isolation::Subprocess) => {
                "When the SuperLink restarts, runs that are at work fail, because ServerApps end with it."
            }
            (Persistence::Disk { .. }, Isolation::Process) if self.is_coordinated_here() => {
                "When the SuperLink dies, runs that are at work fail, because its SuperExec is ended with it."
            }
            (Persistence::Disk { .. }, Isolation::Process) => return None,
        };
        Some(lost.to_owned())
    }

    /// Whether the coordinator runs on the machine of the control plane.
    fn is_coordinated_here(&self) -> bool {
        self.sites[self.coordinator.site].config.traits().on_this_machine
    }

    fn security_lost(&self, version: Release) -> Vec<String> {
        let mut lost = Vec::new();
        if self.security.tls == Tls::Auto {
            lost.push("Renewed certificates are used only after a restart of the SuperLink.".to_owned());
        }
        if self.is_coordinated_here() {
            let lost_here = "Every user of this machine can submit runs: Flower's own SuperLink has no accounts.";
            lost.push(lost_here.to_owned());
        }
        let process = self.coordinator.isolation == Isolation::Process
            || self.pools.iter().any(|pool| pool.isolation == Isolation::Process);
        if self.security.tls != Tls::Off && process && version < SUPEREXEC_TLS {
            lost.push(format!("Process isolation cannot be encrypted: the SuperExec of {version} has no TLS."));
        }
        let nodes = if version < FLEET_BY_HTTP { "below" } else { "from" };
        let (http, series) = (FLEET_BY_HTTP.series(), version.series());
        let apps = if version < APPS_COMPARE_RELEASES { "may fail" } else { "are refused" };
        lost.push(format!(
            "Only nodes of releases {nodes} {http} can connect; apps of releases other than {series} {apps}."
        ));
        lost
    }

    fn watching_lost(&self) -> Vec<String> {
        let mut lost = Vec::new();
        if self.monitoring.metrics {
            lost.push("Metrics of rounds, nodes and messages are not available (monitoring.metrics).".to_owned());
        }
        if self.monitoring.json_logs {
            lost.push("Logs are text, not JSON (monitoring.jsonLogs).".to_owned());
        }
        lost
    }
}

fn pool_lost(pool: &Pool) -> Vec<String> {
    let mut lost = Vec::new();
    if let Some(app) = &pool.client_app {
        lost.push(format!(
            "Pool {}: {app} is part of our SuperNode; the app that each run brings is used instead.",
            pool.name
        ));
    }
    if pool.gpu.as_ref().is_some_and(|gpu| gpu.memory_fraction.is_some()) {
        lost.push(format!("Pool {}: the share of GPU memory of apps is not enforced (gpu.memoryFraction).", pool.name));
    }
    lost
}
