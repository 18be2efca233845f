//! The observed state of each part, from its record, its workload and its pods. Pure.

use jiff::Timestamp;
use serde_json::Value;
use trellis_kube::pods;
use trellis_plan::{Addresses, Facts, Generation, Millis, Phase, Presence, ResourceId, Spec};
use trellis_spec::{Exposure, KubeSite};

use crate::names::{self, ObjectNames};
use crate::record::Record;
use crate::snapshot::{Snapshot, condition, is_current, is_ready, is_stopping, record};

/// A pod that exists this long after its grace period is reported.
const OVERDUE_S: Millis = 30;

/// All existing parts.
pub fn observed_parts(snapshot: &Snapshot, site: &KubeSite, now_ms: Millis) -> Vec<(ResourceId, Presence)> {
    let mut parts = Vec::new();
    for (id, workload) in &snapshot.workloads {
        let presence = match record(workload) {
            // A workload of another program with our labels.
            None => continue,
            Some(Err(why)) => Presence::Unknown { why },
            Some(Ok(record)) => of_record(id, &record, workload, snapshot, site, now_ms),
        };
        parts.push((id.clone(), presence));
    }
    for (id, pods) in &snapshot.pods {
        if !snapshot.workloads.contains_key(id)
            && let Some(pod) = pods.iter().find(|pod| is_stopping(pod))
        {
            parts.push((id.clone(), orphaned_pod(id, pod, now_ms)));
        }
    }
    parts
}

/// A pod whose workload is already deleted.
fn orphaned_pod(id: &ResourceId, pod: &Value, now_ms: Millis) -> Presence {
    let mark = |name: &str| pod["metadata"]["annotations"][name].as_str().map(str::to_owned);
    let generation = mark(names::GENERATION).and_then(|text| Generation::try_from(text).ok());
    let instance = mark(names::INSTANCE).and_then(|text| text.parse().ok()).unwrap_or_default();
    let since_ms = time_ms(&pod["metadata"]["deletionTimestamp"]).unwrap_or(now_ms);
    let facts = Facts {
        phase: Phase::Stopping,
        busy: None,
        draining: false,
        version: None,
        addresses: Addresses::default(),
        runs: None,
        round_ms: None,
        required_nodes: None,
        shard: None,
        shards: None,
        node_id: None,
        since_ms,
        instance,
        waiting_for: overdue(id, pod, now_ms),
    };
    Presence::Present { generation, facts }
}

fn of_record(
    id: &ResourceId,
    record: &Record,
    workload: &Value,
    snapshot: &Snapshot,
    site: &KubeSite,
    now_ms: Millis,
) -> Presence {
    let pods = snapshot.pods.get(id).map_or(&[][..], Vec::as_slice);
    let now = timestamp(now_ms);
    let pod = pods.iter().find(|pod| is_current(pod, record) && !is_stopping(pod));
    let (phase, waiting_for) = match pod {
        _ if is_stopping(workload) => (Phase::Stopping, pods.iter().find_map(|pod| overdue(id, pod, now_ms))),
        Some(pod) if is_ready(pod) => (Phase::Ready, None),
        Some(pod) => phase_of_pod(pod, snapshot, now),
        None => {
            let overdue = pods.iter().find_map(|pod| self::overdue(id, pod, now_ms));
            let warning = || snapshot.warnings.get(&ObjectNames::of(id).workload()).cloned();
            (Phase::Starting, overdue.or_else(warning))
        }
    };
    let machine = pod.and_then(|pod| pod["status"]["hostIP"].as_str());
    let is_ready_now = phase == Phase::Ready;
    let since = pod.filter(|_| is_ready_now).and_then(|pod| condition(pod, "Ready"));
    let since_ms = since.and_then(|ready| time_ms(&ready["lastTransitionTime"])).unwrap_or(record.since_ms);
    let facts = Facts {
        // Deletion drains a node, so a draining node may be deleted at any time.
        busy: match (id.node_key(), &phase) {
            (_, Phase::Failed { .. }) => Some(false),
            (Some(_), _) if record.draining => Some(false),
            _ => None,
        },
        draining: record.draining && is_ready_now,
        version: version(&record.desired.spec),
        addresses: match &snapshot.service {
            Some(service) if id.node_key().is_none() => {
                addresses(service, site, advertised(&record.desired.spec).or(machine))
            }
            _ => Addresses::default(),
        },
        runs: None,
        round_ms: None,
        required_nodes: None,
        shard: record.desired.spec.shard(),
        shards: record.desired.spec.shards(),
        node_id: None,
        since_ms,
        instance: record.instance,
        waiting_for,
        phase,
    };
    Presence::Present { generation: Some(record.generation()), facts }
}

/// Phase of a pod that is not ready, and what it waits for.
fn phase_of_pod(pod: &Value, snapshot: &Snapshot, now: Timestamp) -> (Phase, Option<String>) {
    if let Some(failure) = pods::start_failure(pod, now) {
        let why = format!("{}: {}", failure.reason, failure.message);
        return match failure.is_permanent() {
            true => (Phase::Failed { why }, None),
            false => (Phase::Starting, Some(why)),
        };
    }
    if let Some(why) = pods::crash_loop(pod) {
        return (Phase::Starting, Some(why));
    }
    let warning = snapshot.warnings.get(text(&pod["metadata"]["name"]));
    let not_ready = condition(pod, "Ready").filter(|ready| ready["reason"] == "ContainersNotReady");
    let mut containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten().peekable();
    let is_running = containers.peek().is_some() && containers.all(|status| status["state"]["running"].is_object());
    let unready = not_ready.filter(|_| is_running);
    let unready = unready.map(|ready| format!("it runs and is not ready yet: {}", text(&ready["message"])));
    (Phase::Starting, warning.cloned().or(unready))
}

/// Why a pod that must end does not: its machine may be gone.
fn overdue(id: &ResourceId, pod: &Value, now_ms: Millis) -> Option<String> {
    let deadline_ms = time_ms(&pod["metadata"]["deletionTimestamp"])?;
    let late_s = now_ms.saturating_sub(deadline_ms) / 1000;
    let (name, machine) = (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]));
    let namespace = text(&pod["metadata"]["namespace"]);
    (late_s >= OVERDUE_S).then(|| {
        format!(
            "pod {name} of {} is overdue by {late_s} s: machine {machine} may be gone (to do: if it is, run kubectl -n \
             {namespace} delete pod {name} --force)",
            id.part.name()
        )
    })
}

fn version(spec: &Spec) -> Option<String> {
    use trellis_spec::Runtime;
    let (runtime, program) = match spec {
        Spec::Coordinator(spec) => (&spec.runtime, &spec.program),
        Spec::Node(spec) => (&spec.runtime, &spec.program),
    };
    match runtime {
        Runtime::Flower(version) => Some(version.to_string()),
        Runtime::Trellis => program.clone(),
    }
}

fn advertised(spec: &Spec) -> Option<&str> {
    match spec {
        Spec::Coordinator(spec) => spec.endpoints.advertise.first().map(String::as_str),
        Spec::Node(_) => None,
    }
}

/// Addresses of the coordinator, from the ports of its Service.
pub fn addresses(service: &Value, site: &KubeSite, machine: Option<&str>) -> Addresses {
    let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let find = |names: &[&str]| {
        let port = ports.iter().find(|port| names.contains(&text(&port["name"])))?;
        at(port, service, site, machine)
    };
    Addresses {
        fleet: find(&["fleet"]).or_else(|| find(&["http"])),
        control: find(&["control"]).or_else(|| find(&["http"])),
        app: find(&["serverappio"]),
        http: find(&["http"]),
    }
}

fn at(port: &Value, service: &Value, site: &KubeSite, machine: Option<&str>) -> Option<String> {
    let inside =
        || Some(format!("{}:{}", service_host(text(&service["metadata"]["name"]), site), port["port"].as_u64()?));
    match site.exposure {
        Exposure::Cluster => inside(),
        Exposure::NodePort => {
            let (machine, port) = machine.zip(port["nodePort"].as_u64())?;
            Some(format!("{}:{port}", bracketed(machine)))
        }
        Exposure::LoadBalancer => {
            let given = &service["status"]["loadBalancer"]["ingress"][0];
            let host = given["hostname"].as_str().or(given["ip"].as_str())?;
            Some(format!("{}:{}", bracketed(host), port["port"].as_u64()?))
        }
    }
}

/// Name of a Service for all pods of the cluster.
pub fn service_host(service: &str, site: &KubeSite) -> String {
    format!("{service}.{}.svc", site.namespace)
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn timestamp(at_ms: Millis) -> Timestamp {
    i64::try_from(at_ms).ok().and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok()).unwrap_or_default()
}

fn time_ms(value: &Value) -> Option<Millis> {
    let time: Timestamp = value.as_str()?.parse().ok()?;
    Millis::try_from(time.as_millisecond()).ok()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
