//! Progress of a StatefulSet or a DaemonSet, from its status. Pure.

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The controller has observed the newest generation.
    is_observed: bool,
    pub desired: i64,
    pub pods: i64,
    /// Pods of the newest revision.
    updated: i64,
    pub ready: i64,
}

impl Progress {
    pub fn of(workload: &Value) -> Progress {
        let (meta, status) = (&workload["metadata"], &workload["status"]);
        let number = |value: &Value| value.as_i64().unwrap_or_default();
        let is_observed = number(&status["observedGeneration"]) >= number(&meta["generation"]);
        if workload["kind"] == "DaemonSet" || status["desiredNumberScheduled"].is_i64() {
            return Progress {
                is_observed,
                desired: number(&status["desiredNumberScheduled"]),
                pods: number(&status["currentNumberScheduled"]),
                updated: number(&status["updatedNumberScheduled"]),
                ready: number(&status["numberReady"]),
            };
        }
        let pods = number(&status["replicas"]);
        let is_one_revision =
            status["updateRevision"].is_string() && status["updateRevision"] == status["currentRevision"];
        let updated = number(&status["updatedReplicas"]);
        Progress {
            is_observed,
            desired: workload["spec"]["replicas"].as_i64().unwrap_or(1),
            pods,
            updated: if is_one_revision { updated.max(pods) } else { updated },
            ready: number(&status["readyReplicas"]),
        }
    }

    /// Whether all pods have the newest revision.
    pub fn is_updated(&self) -> bool {
        self.is_observed && self.updated >= self.desired
    }

    /// Whether all pods have the newest revision and are ready.
    pub fn is_rolled_out(&self) -> bool {
        self.is_updated() && self.ready >= self.desired
    }
}
