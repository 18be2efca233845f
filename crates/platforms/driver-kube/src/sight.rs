//! What is told of a part: its record, its workload, its pod. Pure.

use jiff::Timestamp;
use serde_json::Value;
use trellis_plan::{Addresses, Facts, Generation, Millis, Phase, ResourceId, Sighting, Spec};
use trellis_spec::{Exposure, KubeSite};

use crate::names::{self, Called};
use crate::record::Record;
use crate::view::{View, condition, is_of, is_ready, is_stopping, record};

/// A pod that should be gone for so long is held up by something.
const OVERDUE_MS: Millis = 30_000;

/// Everything that is there, by part.
pub fn sightings(view: &View, site: &KubeSite, now_ms: Millis) -> Vec<(ResourceId, Sighting)> {
    let mut told = Vec::new();
    for (id, workload) in &view.workloads {
        let sighting = match record(workload) {
            // Somebody put our labels on what is not ours.
            None => continue,
            Some(Err(why)) => Sighting::Unknown { why },
            Some(Ok(record)) => of_record(id, &record, workload, view, site, now_ms),
        };
        told.push((id.clone(), sighting));
    }
    for (id, pods) in &view.pods {
        if !view.workloads.contains_key(id)
            && let Some(pod) = pods.iter().find(|pod| is_stopping(pod))
        {
            told.push((id.clone(), left_over(id, pod, now_ms)));
        }
    }
    told
}

/// Its workload is gone already, and its pod has not ended yet.
fn left_over(id: &ResourceId, pod: &Value, now_ms: Millis) -> Sighting {
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
        waits_for: None,
        shard: None,
        shards: None,
        node_id: None,
        since_ms,
        instance,
        hindrance: overdue(id, pod, now_ms),
    };
    Sighting::Present { generation, facts }
}

fn of_record(
    id: &ResourceId,
    record: &Record,
    workload: &Value,
    view: &View,
    site: &KubeSite,
    now_ms: Millis,
) -> Sighting {
    let pods = view.pods.get(id).map_or(&[][..], Vec::as_slice);
    let pod = pods.iter().find(|pod| is_of(pod, record) && !is_stopping(pod));
    let (phase, hindrance) = match pod {
        _ if is_stopping(workload) => (Phase::Stopping, pods.iter().find_map(|pod| overdue(id, pod, now_ms))),
        Some(pod) if is_ready(pod) => (Phase::Ready, None),
        Some(pod) => of_pod(pod, view),
        None => {
            let before = pods.iter().find_map(|pod| overdue(id, pod, now_ms));
            let warned = || view.warnings.get(&Called::of(id).workload()).cloned();
            (Phase::Starting, before.or_else(warned))
        }
    };
    let machine = pod.and_then(|pod| pod["status"]["hostIP"].as_str());
    let is_at_work = phase == Phase::Ready;
    let since = pod.filter(|_| is_at_work).and_then(|pod| condition(pod, "Ready"));
    let since_ms = since.and_then(|ready| time_ms(&ready["lastTransitionTime"])).unwrap_or(record.since_ms);
    let facts = Facts {
        // To take a node away lets it finish: who was told so may be taken.
        busy: match (id.node_key(), &phase) {
            (_, Phase::Failed { .. }) => Some(false),
            (Some(_), _) if record.draining => Some(false),
            _ => None,
        },
        draining: record.draining && is_at_work,
        version: version(&record.desired.spec),
        addresses: match &view.service {
            Some(service) if id.node_key().is_none() => {
                addresses(service, site, advertised(&record.desired.spec).or(machine))
            }
            _ => Addresses::default(),
        },
        runs: None,
        round_ms: None,
        waits_for: None,
        shard: record.desired.spec.shard(),
        shards: record.desired.spec.shards(),
        node_id: None,
        since_ms,
        instance: record.instance,
        hindrance,
        phase,
    };
    Sighting::Present { generation: Some(record.generation()), facts }
}

/// A pod that does not serve, or not yet.
fn of_pod(pod: &Value, view: &View) -> (Phase, Option<String>) {
    if let Some(placed) = condition(pod, "PodScheduled").filter(|placed| placed["status"] == "False") {
        let why = format!("no machine takes its pod: {}", text(&placed["message"]));
        return (Phase::Starting, Some(why));
    }
    let statuses = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array());
    let statuses: Vec<&Value> = statuses.into_iter().flatten().flatten().collect();
    if let Some(waits) = statuses.iter().find_map(|status| waiting(status)) {
        return waits;
    }
    let warned = view.warnings.get(pod["metadata"]["name"].as_str().unwrap_or_default());
    let not_ready = condition(pod, "Ready").filter(|ready| ready["reason"] == "ContainersNotReady");
    let begun = statuses.iter().all(|status| status["state"]["running"].is_object()) && !statuses.is_empty();
    let unready =
        not_ready.filter(|_| begun).map(|ready| format!("it runs and does not serve yet: {}", text(&ready["message"])));
    (Phase::Starting, warned.cloned().or(unready))
}

/// What a container waits for, where that is worth telling.
fn waiting(status: &Value) -> Option<(Phase, Option<String>)> {
    let waiting = status["state"].get("waiting").filter(|waiting| waiting.is_object())?;
    let (image, said) = (text(&status["image"]), text(&waiting["message"]));
    let hindrance = |why: String| Some((Phase::Starting, Some(why)));
    match text(&waiting["reason"]) {
        "InvalidImageName" => Some((Phase::Failed { why: format!("{image} is no name of an image: {said}") }, None)),
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" => {
            hindrance(format!("its image {image} cannot be pulled: {said}"))
        }
        "CrashLoopBackOff" => hindrance(format!("its program ends again and again: {}", last_end(status))),
        reason @ ("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
            hindrance(format!("its container cannot be started: {reason}: {said}"))
        }
        _ => None,
    }
}

fn last_end(status: &Value) -> String {
    let ended = &status["lastState"]["terminated"];
    let code = ended["exitCode"].as_i64().map(|code| format!("exit code {code}"));
    let said = Some(text(&ended["message"]).trim().to_owned()).filter(|said| !said.is_empty());
    let reason = Some(text(&ended["reason"]).to_owned()).filter(|reason| !["", "Error"].contains(&reason.as_str()));
    let count = status["restartCount"].as_u64().map(|count| format!("{count} times"));
    let all: Vec<String> = [code, reason, said, count].into_iter().flatten().collect();
    if all.is_empty() { "nobody says why".to_owned() } else { all.join(", ") }
}

/// A pod that does not end: its machine may be gone.
fn overdue(id: &ResourceId, pod: &Value, now_ms: Millis) -> Option<String> {
    let until_ms = time_ms(&pod["metadata"]["deletionTimestamp"])?;
    let late_s = now_ms.checked_sub(until_ms + OVERDUE_MS)? / 1000;
    let (name, machine) = (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]));
    let namespace = text(&pod["metadata"]["namespace"]);
    let late_s = late_s + OVERDUE_MS / 1000;
    Some(format!(
        "pod {name} of {} should have ended {late_s} s ago: machine {machine} may be gone (to do: when it surely is, kubectl -n \
         {namespace} delete pod {name} --force)",
        id.part.name()
    ))
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

/// Where the coordinator is reached, by the ports of its Service.
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
    let inside = || Some(format!("{}:{}", inside(text(&service["metadata"]["name"]), site), port["port"].as_u64()?));
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

/// The name of a Service, as all pods of a cluster find it.
pub fn inside(service: &str, site: &KubeSite) -> String {
    format!("{service}.{}.svc", site.namespace)
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
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
