//! A namespace of the control plane with one federation in it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::{Value, json};
use trellis_kube::crd;
use trellis_kube::federation::Federation;
use trellis_kube::trust::ObservedSecret;
use trellis_operator::trust::{Error, Input, Outcome, ensure};
use trellis_testing::kube::{ControlPlane, Parts, shared};

pub struct Ward {
    pub plane: &'static ControlPlane,
    pub client: Client,
    pub namespace: String,
}

/// Seconds since 1970, by the clock of this machine: programs that check certificates have no other.
pub fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

impl Ward {
    /// A federation named `ward`. `None`: no control plane is installed on this machine.
    pub async fn new(name: &str, spec: Value) -> Option<Ward> {
        let plane = shared(Parts::ApiServer)?;
        static DEFINED: OnceLock<()> = OnceLock::new();
        DEFINED.get_or_init(|| {
            for definition in crd::all() {
                plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &definition.to_string());
            }
            plane.until_defined();
        });
        // TLS of the client itself.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let namespace = plane.namespace(name);
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a configuration")).expect("a client");
        let ward = Ward { plane, client, namespace };
        ward.apply(&json!({
            "apiVersion": "flwr.exalsius.ai/v1",
            "kind": "Federation",
            "metadata": {"name": "ward", "namespace": ward.namespace},
            "spec": spec,
        }));
        Some(ward)
    }

    pub fn apply(&self, object: &Value) {
        let done = self
            .plane
            .kubectl_with_input(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &object.to_string());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Changes the federation.
    pub fn patch(&self, change: &Value) {
        let arguments =
            ["patch", "federation", "ward", "-n", &self.namespace, "--type=merge", "-p", &change.to_string()];
        let done = self.plane.kubectl(&arguments);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    pub fn federation(&self) -> Federation {
        let path = format!("/apis/flwr.exalsius.ai/v1/namespaces/{}/federations/ward", self.namespace);
        let resource: Value = serde_json::from_str(&self.plane.get(&path)).expect("JSON");
        Federation::read(&resource).expect("readable")
    }

    /// The outcome of an operator that starts now.
    pub async fn try_pass(&self, now: i64) -> Result<Outcome, Error> {
        let federation = self.federation();
        let sizes = BTreeMap::new();
        ensure(&Input { client: &self.client, federation: &federation, sizes: &sizes, now }).await
    }

    pub async fn pass(&self, now: i64) -> Outcome {
        self.try_pass(now).await.expect("a pass")
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn secret(&self, name: &str) -> Option<ObservedSecret> {
        let found = self.secrets().get_opt(name).await.expect("an answer")?;
        Some(ObservedSecret::read(&serde_json::to_value(found).expect("JSON")))
    }

    pub async fn text(&self, secret: &str, entry: &str) -> String {
        let found = self.secret(secret).await.unwrap_or_else(|| panic!("there is no Secret {secret}"));
        found.text(entry).unwrap_or_else(|| panic!("{secret} has no {entry}")).to_owned()
    }

    pub async fn names(&self) -> Vec<String> {
        let all = self.secrets().list(&ListParams::default()).await.expect("a list");
        all.into_iter().filter_map(|secret| secret.metadata.name).collect()
    }

    /// Writes the operator made here since the control plane started.
    pub fn writes(&self) -> usize {
        self.plane
            .writes()
            .iter()
            .filter(|write| write.namespace == self.namespace && write.resource == "secrets")
            .count()
    }

    /// Writes the status part of an object.
    pub async fn set_status(&self, kind: &str, name: &str, status: Value) {
        let done = self.plane.kubectl(&[
            "patch",
            kind,
            name,
            "-n",
            &self.namespace,
            "--subresource=status",
            "--type=merge",
            "-p",
            &json!({"status": status}).to_string(),
        ]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    pub async fn put_secret(&self, name: &str, entries: &BTreeMap<String, Vec<u8>>) {
        let entries: BTreeMap<&str, String> =
            entries.iter().map(|(name, bytes)| (name.as_str(), String::from_utf8_lossy(bytes).into_owned())).collect();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries});
        let _ = self.secrets().delete(name, &Default::default()).await;
        let params = PatchParams::apply("another-writer").force();
        self.secrets().patch(name, &params, &Patch::Apply(&secret)).await.expect("a Secret");
    }
}

/// A federation of Trellis images with these settings.
pub fn spec(change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "mode": "StatefulSet",
        "isolationMode": "subprocess",
        "insecure": false,
        "superlink": {"image": "trellis-superlink:0.1"},
        "supernodes": {
            "image": "trellis-supernode:0.1",
            "pools": [{"name": "cpu", "replicas": 2, "images": {}}],
        },
    });
    change(&mut spec);
    spec
}

pub fn events(outcome: &Outcome) -> Vec<&str> {
    outcome.events.iter().map(|event| event.reason).collect()
}

pub fn condition(outcome: &Outcome) -> (bool, String, String) {
    let condition = outcome.condition.clone().expect("a condition");
    (condition.holds == Some(true), condition.reason, condition.message)
}
