//! Finds out why pods do not start, from their status and the events of their controllers, and which pods block a
//! rolling update.
//!
//! Pure: observations and the time are arguments.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::object::Object;
use crate::progress::Progress;

/// Pods are often unschedulable for a moment, while a volume is provisioned or a machine joins.
const UNSCHEDULABLE_GRACE: SignedDuration = SignedDuration::from_secs(10);
/// Controllers retry a refused pod at least every 16 minutes, with an event each time.
const MAX_EVENT_AGE: SignedDuration = SignedDuration::from_mins(20);
/// Reasons of a waiting container that do not resolve without a change by a user.
const FAILED_STARTS: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    INVALID_IMAGE_NAME,
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];
const INVALID_IMAGE_NAME: &str = "InvalidImageName";
const IMAGE_PULLS: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];
/// Nodes restart until their SuperLink is reachable, so this reason alone is not a failure.
const CRASHES: &str = "CrashLoopBackOff";
const REVISION_LABEL: &str = "controller-revision-hash";

/// Why a pod does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFailure {
    /// Reason for a condition, in Kubernetes' own terms.
    pub reason: String,
    pub message: String,
}

impl StartFailure {
    /// Whether no retry of the kubelet can succeed.
    pub fn is_permanent(&self) -> bool {
        self.reason == INVALID_IMAGE_NAME
    }
}

/// Why pods of a workload are not ready, from their status, else from the controller's events. Pods with the same
/// reason are reported once, with their number.
pub fn start_failures(workload: &Object, pods: &[Value], events: &[Value], now: Timestamp) -> Vec<StartFailure> {
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| belongs(workload, pod)) {
        if let Some(StartFailure { reason, message }) = start_failure(pod, now) {
            let (count, first) = found.entry(reason).or_insert((0, String::new()));
            *count += 1;
            if first.is_empty() || message < *first {
                *first = message;
            }
        }
    }
    let progress = Progress::of(&workload.0);
    if progress.pods < progress.desired
        && let Some(refused) = refused_creation(workload, events, now)
    {
        found.entry(refused.reason).or_insert((1, refused.message));
    }
    let summary = |(reason, (count, message)): (String, (usize, String))| StartFailure {
        reason,
        message: if count > 1 { format!("{message} (and {} more)", count - 1) } else { message },
    };
    found.into_iter().map(summary).collect()
}

/// Pods that block a rolling update: they belong to an earlier revision and cannot start. A StatefulSet that starts
/// pods in order never replaces them by itself.
pub fn blocking<'p>(workload: &Object, pods: &'p [Value], now: Timestamp) -> Vec<&'p Value> {
    let (set, status) = (&workload.0, &workload.0["status"]);
    let is_current = status["observedGeneration"].as_i64() >= set["metadata"]["generation"].as_i64();
    let Some(revision) = status["updateRevision"].as_str().filter(|_| set["kind"] == "StatefulSet" && is_current)
    else {
        return Vec::new();
    };
    let is_outdated = |pod: &&Value| {
        let own = pod["metadata"]["labels"][REVISION_LABEL].as_str();
        own.is_some_and(|own| own != revision) && !pod["metadata"]["deletionTimestamp"].is_string()
    };
    let cannot_start =
        |pod: &&Value| start_failure(pod, now).is_some() || waiting(pod).any(|(_, wait)| wait["reason"] == CRASHES);
    pods.iter().filter(|pod| belongs(workload, pod)).filter(is_outdated).filter(cannot_start).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn belongs(workload: &Object, pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.iter().any(|owner| text(&owner["uid"]) == workload.uid()))
}

/// Why one pod does not start, from its status.
pub fn start_failure(pod: &Value, now: Timestamp) -> Option<StartFailure> {
    let name = text(&pod["metadata"]["name"]);
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let placed = conditions.iter().find(|each| each["type"] == "PodScheduled" && each["status"] == "False");
    if let Some(placed) = placed {
        let since = text(&placed["lastTransitionTime"]).parse::<Timestamp>().ok();
        let is_new = since.is_some_and(|since| now.duration_since(since) < UNSCHEDULABLE_GRACE);
        let reason = Some(text(&placed["reason"])).filter(|reason| !reason.is_empty()).unwrap_or("Unschedulable");
        let message = format!("pod {name} cannot be scheduled: {}", text(&placed["message"]));
        return (!is_new).then(|| StartFailure { reason: reason.to_owned(), message });
    }
    waiting(pod).find_map(|(container, wait)| {
        let reason = text(&wait["reason"]);
        let (image, said) = (text(&container["image"]), text(&wait["message"]));
        let place = format!("pod {name}, container {}", text(&container["name"]));
        match reason {
            // The reason alternates between these two while the kubelet retries; the status must stay stable.
            _ if IMAGE_PULLS.contains(&reason) => {
                let said = said.rsplit_once("ErrImagePull: ").map_or(said, |(_, cause)| cause);
                let message = format!("{place}: image {image} cannot be pulled: {said}");
                Some(StartFailure { reason: IMAGE_PULLS[1].to_owned(), message })
            }
            _ if FAILED_STARTS.contains(&reason) => {
                Some(StartFailure { reason: reason.to_owned(), message: format!("{place}: image {image}: {said}") })
            }
            _ => None,
        }
    })
}

/// Why a container of a pod restarts repeatedly, from its last termination.
pub fn crash_loop(pod: &Value) -> Option<String> {
    let (status, _) = waiting(pod).find(|(_, waiting)| waiting["reason"] == CRASHES)?;
    let last = &status["lastState"]["terminated"];
    let code = last["exitCode"].as_i64().map(|code| format!("exit code {code}"));
    let reason = Some(text(&last["reason"])).filter(|reason| !["", "Error"].contains(reason)).map(str::to_owned);
    let said = Some(text(&last["message"]).trim()).filter(|said| !said.is_empty()).map(str::to_owned);
    let count = status["restartCount"].as_u64().map(|count| format!("{count} restarts"));
    let details: Vec<String> = [code, reason, said, count].into_iter().flatten().collect();
    let place = format!("pod {}, container {}", text(&pod["metadata"]["name"]), text(&status["name"]));
    let details = if details.is_empty() { "the reason is unknown".to_owned() } else { details.join(", ") };
    Some(format!("{place}: the program ends again and again: {details}"))
}

/// Waiting containers, each with its `waiting` state.
fn waiting(pod: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let statuses = lists.into_iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    statuses.map(|status| (status, &status["state"]["waiting"])).filter(|(_, waiting)| waiting.is_object())
}

/// The last event about a pod that the controller could not create: quota, Pod Security, missing RuntimeClass.
fn refused_creation(workload: &Object, events: &[Value], now: Timestamp) -> Option<StartFailure> {
    let is_recent = |event: &&Value| {
        let times = [&event["lastTimestamp"], &event["series"]["lastObservedTime"], &event["eventTime"]];
        let last = times.into_iter().find_map(|time| text(time).parse::<Timestamp>().ok());
        last.is_some_and(|last| now.duration_since(last) < MAX_EVENT_AGE)
    };
    let fits =
        |event: &&Value| event["reason"] == "FailedCreate" && text(&event["involvedObject"]["uid"]) == workload.uid();
    let last =
        events.iter().filter(fits).filter(is_recent).max_by_key(|event| text(&event["lastTimestamp"]).to_owned())?;
    let message = format!("{}: {}", workload.identity(), text(&last["message"]));
    Some(StartFailure { reason: "FailedCreate".to_owned(), message })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:10:00Z";

    fn now() -> Timestamp {
        NOW.parse().expect("a time")
    }

    fn set(update: &str) -> Object {
        Object(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "fl-superlink", "uid": "set", "generation": 2},
            "spec": {"replicas": 1},
            "status": {"observedGeneration": 2, "replicas": 1, "updateRevision": update, "currentRevision": "old"},
        }))
    }

    fn pod(name: &str, status: Value) -> Value {
        let owners = json!([{"uid": "set", "controller": true}]);
        json!({"metadata": {"name": name, "labels": {REVISION_LABEL: "old"}, "ownerReferences": owners}, "status": status})
    }

    fn waits(reason: &str, message: &str) -> Value {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        json!({"containerStatuses": [{"name": "superlink", "image": "no/such:1", "state": state}]})
    }

    fn unscheduled(since: &str) -> Value {
        json!({"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since,
            "message": "0/3 nodes are available: persistentvolumeclaim \"data\" not found.",
        }]})
    }

    fn found(pods: &[Value]) -> Vec<(String, String)> {
        let found = start_failures(&set("old"), pods, &[], now());
        found.into_iter().map(|each| (each.reason, each.message)).collect()
    }

    #[test]
    fn pods_tell_why_they_do_not_start() {
        let pulled = "pod a, container superlink: image no/such:1 cannot be pulled: not found";
        for (status, expected) in [
            (waits("ErrImagePull", "not found"), Some(("ImagePullBackOff", pulled))),
            (
                waits("ImagePullBackOff", "Back-off pulling image \"no/such:1\": ErrImagePull: not found"),
                Some(("ImagePullBackOff", pulled)),
            ),
            (
                waits("CreateContainerConfigError", "secret \"s\" not found"),
                Some((
                    "CreateContainerConfigError",
                    "pod a, container superlink: image no/such:1: secret \"s\" not found",
                )),
            ),
            (
                unscheduled("2026-01-01T00:09:00Z"),
                Some((
                    "Unschedulable",
                    "pod a cannot be scheduled: 0/3 nodes are available: persistentvolumeclaim \"data\" not found.",
                )),
            ),
            (unscheduled("2026-01-01T00:09:55Z"), None),
            (waits("ContainerCreating", ""), None),
            (waits("CrashLoopBackOff", "back-off"), None),
            (json!({"containerStatuses": [{"name": "superlink", "state": {"running": {}}}]}), None),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
            assert_eq!(found(&[pod("a", status.clone())]), expected, "{status}");
        }
        let both = [pod("b", waits("ErrImagePull", "not found")), pod("a", waits("ImagePullBackOff", "not found"))];
        assert_eq!(found(&both), [("ImagePullBackOff".to_owned(), format!("{pulled} (and 1 more)"))]);
        let mut foreign = pod("a", waits("ErrImagePull", "not found"));
        foreign["metadata"]["ownerReferences"][0]["uid"] = "other".into();
        assert_eq!(found(&[foreign]), []);
    }

    #[test]
    fn a_controller_tells_why_it_makes_no_pod() {
        let event = |time: &str, uid: &str| json!({"reason": "FailedCreate", "involvedObject": {"uid": uid}, "lastTimestamp": time, "message": "RuntimeClass \"x\" not found"});
        let mut lacking = set("old");
        lacking.0["status"]["replicas"] = 0.into();
        let found = |set: &Object, event: Value| {
            start_failures(set, &[], &[event], now()).into_iter().map(|each| each.message).collect::<Vec<_>>()
        };
        let said = "StatefulSet fl-superlink: RuntimeClass \"x\" not found";
        assert_eq!(found(&lacking, event("2026-01-01T00:09:00Z", "set")), [said]);
        assert!(found(&lacking, event("2026-01-01T00:09:00Z", "other")).is_empty());
        assert!(found(&lacking, event("2025-12-31T00:09:00Z", "set")).is_empty(), "long ago");
        assert!(found(&set("old"), event("2026-01-01T00:09:00Z", "set")).is_empty(), "its pod is there now");
    }

    #[test]
    fn only_outdated_pods_that_cannot_start_are_in_the_way() {
        let names = |set: &Object, pod: Value| blocking(set, &[pod], now()).len();
        for reason in ["ImagePullBackOff", "CrashLoopBackOff"] {
            assert_eq!(names(&set("new"), pod("a", waits(reason, ""))), 1, "{reason}");
        }
        assert_eq!(names(&set("old"), pod("a", waits("ImagePullBackOff", ""))), 0, "there is nothing newer");
        assert_eq!(
            names(&set("new"), pod("a", json!({"containerStatuses": [{"state": {"running": {}}}]}))),
            0,
            "it starts"
        );
        let mut leaving = pod("a", waits("ImagePullBackOff", ""));
        leaving["metadata"]["deletionTimestamp"] = NOW.into();
        assert_eq!(names(&set("new"), leaving), 0);
        let mut behind = set("new");
        behind.0["metadata"]["generation"] = 3.into();
        assert_eq!(
            names(&behind, pod("a", waits("ImagePullBackOff", ""))),
            0,
            "the controller has not seen the change"
        );
    }
}
