//! Computes the status of a pod that is not run. Pure: no client, no clock.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use crate::rules::Behaviour;

/// The status, and the delay until it may change.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    pub status: Value,
    pub again: Option<Duration>,
}

/// A status that depends on the time only through `now` (in the format of Kubernetes).
pub(crate) fn say(pod: &Pod, behaviour: &Behaviour, seen_for: Duration, address: &str, now: &str) -> Said {
    let again = match behaviour {
        Behaviour::ReadyAfter(delay) => delay.checked_sub(seen_for).filter(|left| !left.is_zero()),
        _ => None,
    };
    let (phase, is_ready, state) = match behaviour {
        Behaviour::Ready => ("Running", true, json!({"running": {"startedAt": now}})),
        Behaviour::ReadyAfter(_) => ("Running", again.is_none(), json!({"running": {"startedAt": now}})),
        Behaviour::NeverReady => ("Running", false, json!({"running": {"startedAt": now}})),
        Behaviour::Waits(reason) => {
            ("Pending", false, json!({"waiting": {"reason": reason, "message": "as the test wants it"}}))
        }
        Behaviour::Ends { exit_code } => ended(*exit_code, now),
    };
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let is_started = phase == "Running";
    let of_container = |container: &Container| {
        let image = container.image.clone().unwrap_or_default();
        json!({
            "name": container.name, "image": image, "imageID": image, "containerID": "", "restartCount": 0,
            "ready": is_ready, "started": is_started, "state": state,
        })
    };
    let condition = |kind: &str, holds: bool| json!({"type": kind, "status": if holds { "True" } else { "False" }});
    let status = json!({
        "phase": phase,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "startTime": now,
        "conditions": [
            condition("PodReadyToStartContainers", true),
            condition("Initialized", true),
            condition("ContainersReady", is_ready),
            condition("Ready", is_ready),
        ],
        "containerStatuses": containers.iter().map(of_container).collect::<Vec<_>>(),
    });
    Said { status, again }
}

fn ended(exit_code: i32, now: &str) -> (&'static str, bool, Value) {
    let (phase, reason) = if exit_code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    let terminated = json!({"exitCode": exit_code, "reason": reason, "startedAt": now, "finishedAt": now});
    (phase, false, json!({"terminated": terminated}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(behaviour: &Behaviour, seen_for_s: u64) -> (String, bool, Option<Duration>) {
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "one", "image": "x"}]}});
        let pod = serde_json::from_value(pod).expect("a pod");
        let said = say(&pod, behaviour, Duration::from_secs(seen_for_s), "10.0.0.1", "then");
        let ready = said.status["containerStatuses"][0]["ready"] == json!(true);
        assert_eq!(said.status["conditions"][3]["status"] == json!("True"), ready);
        (said.status["phase"].as_str().expect("text").to_owned(), ready, said.again)
    }

    #[test]
    fn pods_are_what_the_rule_says() {
        let running = "Running".to_owned();
        let later = Behaviour::ReadyAfter(Duration::from_secs(5));
        assert_eq!(said(&Behaviour::Ready, 0), (running.clone(), true, None));
        assert_eq!(said(&Behaviour::NeverReady, 1000), (running.clone(), false, None));
        assert_eq!(said(&later, 3), (running.clone(), false, Some(Duration::from_secs(2))));
        assert_eq!(said(&later, 5), (running, true, None));
        assert_eq!(said(&Behaviour::Waits("ImagePullBackOff".to_owned()), 0), ("Pending".to_owned(), false, None));
        assert_eq!(said(&Behaviour::Ends { exit_code: 0 }, 0), ("Succeeded".to_owned(), false, None));
        assert_eq!(said(&Behaviour::Ends { exit_code: 3 }, 0), ("Failed".to_owned(), false, None));
    }
}
