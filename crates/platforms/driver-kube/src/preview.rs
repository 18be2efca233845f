//! What would be sent, as YAML, for `trellis plan --templates`. Nothing is asked, and nothing secret is in it: objects only name
//! their Secrets.

use serde_json::Value;
use trellis_plan::{Desired, Order, Rendering, Spec};
use trellis_spec::yaml::documents;
use trellis_spec::{KubeSite, Name, Persistence};

use crate::dress::dress;
use crate::names;
use crate::record::Record;
use crate::sight::inside;
use crate::wish::Place;

/// Of the Service, unless the document says otherwise.
const USUAL_FLEET_PORT: u16 = 9092;

pub fn preview(kube: &KubeSite, federation: &Name, wanted: &[Desired]) -> Vec<Rendering> {
    let port = wanted.iter().find_map(|desired| match &desired.spec {
        Spec::Coordinator(spec) => Some(spec.endpoints.fleet.map_or(USUAL_FLEET_PORT, |port| port.get())),
        Spec::Node(_) => None,
    });
    let here = port.map(|port| format!("{}:{port}", inside(&names::coordinator(federation), kube)));
    wanted.iter().map(|desired| rendering(kube, desired, here.as_deref())).collect()
}

fn rendering(kube: &KubeSite, desired: &Desired, coordinator: Option<&str>) -> Rendering {
    let (claim, given) = match &desired.spec {
        Spec::Coordinator(spec) => (matches!(spec.persistence, Persistence::Disk { .. }), None),
        Spec::Node(spec) => (false, Some(spec.coordinator.as_str())),
    };
    let coordinator = given.map(|given| coordinator.unwrap_or(given).to_owned());
    let record = Record::new(desired.clone(), Order::default(), claim, 0);
    let place = Place { site: kube, claim, coordinator, revision: String::new() };
    let text = match dress(&record, &place) {
        Err(problems) => problems.iter().map(|problem| format!("# {problem}\n")).collect(),
        Ok(dressed) => {
            let all: Vec<Value> = dressed.others.into_iter().chain([without_record(dressed.workload)]).collect();
            documents(&all)
        }
    };
    Rendering { title: format!("Objects of {}", desired.id.part.name()), text }
}

/// The driver's own notes are of no use to readers.
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
        assert_eq!(text, golden, "{} differs; UPDATE_GOLDENS=1 writes it anew", path.display());
    }

    #[test]
    fn what_would_be_sent_is_what_it_was() {
        let site = KubeSite {
            exposure: Exposure::LoadBalancer,
            image_pull_secrets: vec!["registry".to_owned()],
            node_selector: [("zone".to_owned(), "a".to_owned())].into(),
            ..testing::site()
        };
        let wanted = ["f/lab/coordinator", "f/lab/node/cpu-0"].map(testing::desired);
        let shown = preview(&site, &wanted[0].id.federation, &wanted);
        let text: String = shown.iter().map(|Rendering { title, text }| format!("# {title}\n{text}\n")).collect();
        check_golden("objects.yaml", &text);
    }

    #[test]
    fn what_cannot_be_made_says_why() {
        let mut desired = testing::desired("f/lab/node/cpu-0");
        if let Spec::Node(spec) = &mut desired.spec {
            spec.python = Some("/usr/bin/python3".into());
            spec.framework = Some(trellis_spec::Framework::PyTorch);
        }
        let shown = preview(&testing::site(), &desired.id.federation, &[desired.clone()]);
        assert!(shown[0].text.contains("leave python out") && shown[0].text.contains("images.supernode"), "{shown:?}");
    }
}
