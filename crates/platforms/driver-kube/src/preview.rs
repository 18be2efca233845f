//! Manifests as YAML, for `trellis plan --templates`. Calls nothing, and contains no secrets: objects only name their Secrets.

use serde_json::Value;
use trellis_plan::{Desired, Order, Rendering, Spec};
use trellis_spec::yaml::documents;
use trellis_spec::{KubeSite, Name, Persistence};

use crate::manifests::manifests;
use crate::names;
use crate::observation::service_host;
use crate::record::Record;
use crate::resource::Context;

const DEFAULT_FLEET_PORT: u16 = 9092;

pub fn preview(kube: &KubeSite, federation: &Name, desired: &[Desired]) -> Vec<Rendering> {
    let port = desired.iter().find_map(|part| match &part.spec {
        Spec::Coordinator(spec) => Some(spec.endpoints.fleet.map_or(DEFAULT_FLEET_PORT, |port| port.get())),
        Spec::Node(_) => None,
    });
    let here = port.map(|port| format!("{}:{port}", service_host(&names::coordinator(federation), kube)));
    desired.iter().map(|part| rendering(kube, part, here.as_deref())).collect()
}

fn rendering(kube: &KubeSite, desired: &Desired, coordinator: Option<&str>) -> Rendering {
    let (claim, given) = match &desired.spec {
        Spec::Coordinator(spec) => (matches!(spec.persistence, Persistence::Disk { .. }), None),
        Spec::Node(spec) => (false, Some(spec.coordinator.as_str())),
    };
    let coordinator = given.map(|given| coordinator.unwrap_or(given).to_owned());
    let record = Record::new(desired.clone(), Order::default(), claim, 0);
    let context = Context { site: kube, claim, coordinator, trust: None };
    let text = match manifests(&record, &context) {
        Err(problems) => problems.iter().map(|problem| format!("# {problem}\n")).collect(),
        Ok(manifests) => {
            let all: Vec<Value> = manifests.others.into_iter().chain([without_record(manifests.workload)]).collect();
            documents(&all)
        }
    };
    Rendering { title: format!("Objects of {}", desired.id.part.name()), text }
}

fn without_record(mut workload: Value) -> Value {
    if let Some(annotations) = workload["metadata"]["annotations"].as_object_mut() {
        annotations.remove(names::RECORD);
    }
    workload
}

#[cfg(test)]
mod tests {
    use trellis_spec::Exposure;

    use super::*;
    use crate::testing;

    fn check_golden(file: &str, text: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("the directory is made");
            std::fs::write(&path, text).expect("the golden is written");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, golden, "{} differs; UPDATE_GOLDENS=1 writes it", path.display());
    }

    #[test]
    fn the_preview_equals_the_golden() {
        let site = KubeSite {
            exposure: Exposure::LoadBalancer,
            image_pull_secrets: vec!["registry".to_owned()],
            node_selector: [("zone".to_owned(), "a".to_owned())].into(),
            ..testing::site()
        };
        let desired = ["f/lab/coordinator", "f/lab/node/cpu-0"].map(testing::desired);
        let shown = preview(&site, &desired[0].id.federation, &desired);
        let text: String = shown.iter().map(|Rendering { title, text }| format!("# {title}\n{text}\n")).collect();
        check_golden("objects.yaml", &text);
    }

    #[test]
    fn problems_are_shown_with_advice() {
        let mut desired = testing::desired("f/lab/node/cpu-0");
        if let Spec::Node(spec) = &mut desired.spec {
            spec.python = Some("/usr/bin/python3".into());
            spec.framework = Some(trellis_spec::Framework::PyTorch);
        }
        let shown = preview(&testing::site(), &desired.id.federation, &[desired.clone()]);
        assert!(shown[0].text.contains("remove python") && shown[0].text.contains("images.supernode"), "{shown:?}");
    }
}
