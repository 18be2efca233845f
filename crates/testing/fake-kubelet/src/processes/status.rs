//! The status of a pod that runs as processes. Pure except for the lock.

use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::sandbox::GATEWAY;

/// Shared by all tasks of a pod; every change is published.
pub(super) struct SharedReport {
    pod: Mutex<PodReport>,
    changed: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Clone)]
pub(super) struct PodReport {
    pub address: Option<Ipv4Addr>,
    pub since: String,
    pub init_containers: Vec<ContainerReport>,
    pub containers: Vec<ContainerReport>,
    /// The pod has ended.
    pub is_gone: bool,
    pub restarts: bool,
}

#[derive(Debug, Clone)]
pub(super) struct ContainerReport {
    pub name: String,
    pub image: String,
    pub state: State,
    pub before: Option<State>,
    pub restarts: i32,
    pub is_ready: bool,
    pub is_started: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Waits { reason: String, message: String },
    Runs { since: String },
    Ended { code: i32, since: String, at: String },
}

impl State {
    pub fn waits(reason: &str, message: &str) -> State {
        State::Waits { reason: reason.to_owned(), message: message.to_owned() }
    }

    fn value(&self) -> Value {
        match self {
            State::Waits { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            State::Runs { since } => json!({"running": {"startedAt": since}}),
            State::Ended { code, since, at } => {
                let reason = if *code == 0 { "Completed" } else { "Error" };
                json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": since, "finishedAt": at}})
            }
        }
    }
}

impl SharedReport {
    pub fn new(pod: PodReport, changed: impl Fn() + Send + Sync + 'static) -> SharedReport {
        SharedReport { pod: Mutex::new(pod), changed: Box::new(changed) }
    }

    pub fn change(&self, change: impl FnOnce(&mut PodReport)) {
        change(&mut self.pod.lock().unwrap_or_else(PoisonError::into_inner));
        (self.changed)();
    }

    pub fn read<T>(&self, read: impl FnOnce(&PodReport) -> T) -> T {
        read(&self.pod.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PodReport {
    pub fn status(&self) -> Value {
        let are_ready = !self.containers.is_empty() && self.containers.iter().all(|container| container.is_ready);
        let is_initialized = self.init_containers.iter().all(|container| container.is_ready);
        let condition = |kind: &str, holds: bool| json!({"type": kind, "status": if holds { "True" } else { "False" }});
        let mut status = json!({
            "phase": self.phase(),
            "hostIP": GATEWAY.to_string(),
            "hostIPs": [{"ip": GATEWAY.to_string()}],
            "startTime": self.since,
            "conditions": [
                condition("PodReadyToStartContainers", self.address.is_some()),
                condition("Initialized", is_initialized),
                condition("ContainersReady", are_ready),
                condition("Ready", are_ready),
            ],
            "containerStatuses": self.containers.iter().map(ContainerReport::value).collect::<Vec<_>>(),
        });
        if !self.init_containers.is_empty() {
            status["initContainerStatuses"] = self.init_containers.iter().map(ContainerReport::value).collect();
        }
        if let Some(address) = self.address {
            status["podIP"] = json!(address.to_string());
            status["podIPs"] = json!([{"ip": address.to_string()}]);
        }
        status
    }

    fn phase(&self) -> &'static str {
        let codes: Vec<Option<i32>> = self.containers.iter().map(ContainerReport::code).collect();
        if !self.restarts && codes.iter().all(Option::is_some) {
            return if codes.iter().all(|code| *code == Some(0)) { "Succeeded" } else { "Failed" };
        }
        let is_waiting =
            |container: &ContainerReport| matches!(container.state, State::Waits { .. }) && container.restarts == 0;
        if self.containers.iter().any(is_waiting) { "Pending" } else { "Running" }
    }
}

impl ContainerReport {
    pub fn new(name: &str, image: &str, reason: &str) -> ContainerReport {
        ContainerReport {
            name: name.to_owned(),
            image: image.to_owned(),
            state: State::waits(reason, ""),
            before: None,
            restarts: 0,
            is_ready: false,
            is_started: false,
        }
    }

    fn code(&self) -> Option<i32> {
        match self.state {
            State::Ended { code, .. } => Some(code),
            _ => None,
        }
    }

    fn value(&self) -> Value {
        json!({
            "name": self.name, "image": self.image, "imageID": self.image, "containerID": "",
            "restartCount": self.restarts, "ready": self.is_ready, "started": self.is_started,
            "state": self.state.value(), "lastState": self.before.as_ref().map_or_else(|| json!({}), State::value),
        })
    }
}

pub(super) fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(states: &[State], restarts: bool) -> &'static str {
        let containers =
            states.iter().map(|state| ContainerReport { state: state.clone(), ..ContainerReport::new("c", "i", "") });
        let containers = containers.collect();
        PodReport { address: None, since: String::new(), init_containers: vec![], containers, is_gone: false, restarts }
            .phase()
    }

    #[test]
    fn a_pod_is_what_its_containers_are() {
        let (waits, runs) = (State::waits("ContainerCreating", ""), State::Runs { since: String::new() });
        let ended = |code| State::Ended { code, since: String::new(), at: String::new() };
        assert_eq!(pod(&[waits.clone(), runs.clone()], true), "Pending");
        assert_eq!(pod(&[runs.clone(), runs.clone()], true), "Running");
        assert_eq!(pod(&[ended(1), runs.clone()], true), "Running");
        assert_eq!(pod(&[ended(0), ended(0)], false), "Succeeded");
        assert_eq!(pod(&[ended(0), ended(2)], false), "Failed");
        assert_eq!(pod(&[ended(0), runs], false), "Running");
    }
}
