//! The API server of these tests, with our definitions.

use std::process::Output;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::Value;
use trellis_kube::crd;
use trellis_spec::yaml;
use trellis_testing::kube::{ControlPlane, Parts, shared};

/// A definition is served a moment after its condition Established is true.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// An additional message of the API server if a violation prevents the evaluation of rules. Not a violation itself.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid";

/// The namespace of one test.
pub struct Cluster {
    pub plane: &'static ControlPlane,
    pub client: Client,
    pub namespace: String,
}

/// One reason for the refusal of a resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Cause {
    pub field: String,
    pub message: String,
}

impl Cluster {
    /// `None`, and a line on stderr, if this machine has no API server.
    pub async fn of(test: &str) -> Option<Cluster> {
        let plane = shared(Parts::ApiServer)?;
        installed(plane);
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let read = Kubeconfig::read_from(plane.kubeconfig()).expect("the harness wrote it");
        let config =
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.expect("a configuration");
        let client = Client::try_from(config).expect("a client");
        Some(Cluster { plane, client, namespace: plane.namespace(test) })
    }

    pub fn api(&self, resource: &Value) -> Api<DynamicObject> {
        let text = |field: &str| resource[field].as_str().expect("every resource has it");
        let (group, version) = text("apiVersion").split_once('/').expect("a group and a version");
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
    }

    /// The resource after a dry run of the API server.
    pub async fn tried(&self, resource: &Value) -> Result<Value, Vec<Cause>> {
        self.posted(resource, true).await
    }

    pub async fn created(&self, resource: &Value) -> Result<Value, Vec<Cause>> {
        self.posted(resource, false).await
    }

    async fn posted(&self, resource: &Value, dry_run: bool) -> Result<Value, Vec<Cause>> {
        let parameters = PostParams { dry_run, ..PostParams::default() };
        let made = self.api(resource).create(&parameters, &dynamic(resource)).await;
        made.map(|made| serde_json::to_value(made).expect("JSON")).map_err(|error| causes(&error))
    }

    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_with_input(arguments, "")
    }

    pub fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut all = vec!["--namespace", self.namespace.as_str()];
        all.extend(arguments);
        self.plane.kubectl_with_input(&all, input)
    }
}

pub fn dynamic(resource: &Value) -> DynamicObject {
    let mut object: DynamicObject = serde_json::from_value(resource.clone()).expect("a resource");
    object.metadata =
        ObjectMeta { name: object.metadata.name, labels: object.metadata.labels, ..ObjectMeta::default() };
    object
}

/// # Panics
/// If the API server returns anything but a refusal of the resource.
pub fn causes(error: &kube::Error) -> Vec<Cause> {
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!(status.code, 422, "{}", status.message);
    let details = status.details.as_ref().expect("a refusal has details");
    let causes =
        details.causes.iter().map(|cause| Cause { field: cause.field.clone(), message: cause.message.clone() });
    causes.filter(|cause| !cause.message.contains(NOT_CHECKED)).collect()
}

/// Once for all tests, like users: client-side apply.
fn installed(plane: &ControlPlane) {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| install(plane, &crd::all()));
}

/// Applies the definitions and waits until they are served.
pub fn install(plane: &ControlPlane, definitions: &[Value]) {
    let applied = plane.kubectl_with_input(&["apply", "-f", "-"], &yaml::documents(definitions));
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    for definition in definitions {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let kind = format!("{}.{}", plural.as_str().expect("text"), group.as_str().expect("text"));
        eventually(|| plane.kubectl(&["get", kind.as_str(), "--all-namespaces"]).status.success(), &kind);
    }
}

/// # Panics
/// If the timeout passes.
pub fn eventually(mut is_so: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + SERVED_WITHIN;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {SERVED_WITHIN:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
