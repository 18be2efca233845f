//! Registers nodes, renews their leases, and simulates their loss.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::NodeSettings;

const FIELD_MANAGER: &str = "fake-kubelet";
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The controllers consider a node lost after 40 s.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
const LEASE_DURATION_S: u32 = 40;

pub(crate) struct Nodes {
    settings: Vec<NodeSettings>,
    lost: Mutex<BTreeSet<String>>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Alive,
    Lost,
}

impl Nodes {
    pub fn new(settings: Vec<NodeSettings>) -> Nodes {
        Nodes { settings, lost: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// Name of one of our nodes.
    pub fn state_of(&self, name: &str) -> Option<State> {
        let is_ours = self.settings.iter().any(|node| node.name == name);
        is_ours.then(|| if self.is_lost(name) { State::Lost } else { State::Alive })
    }

    pub fn set_lost(&self, name: &str, is_lost: bool) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if is_lost {
            lost.insert(name.to_owned())
        } else {
            lost.remove(name)
        };
        drop(lost);
        self.changed.send_replace(());
    }

    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn is_lost(&self, name: &str) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    pub async fn register(&self, client: &Client) -> kube::Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        for settings in &self.settings {
            let apply = PatchParams::apply(FIELD_MANAGER).force();
            nodes.patch(&settings.name, &apply, &Patch::Apply(object(settings))).await?;
            self.write_status(client, settings).await?;
        }
        Ok(())
    }

    /// Never returns. A failed renewal is retried with the next one.
    pub async fn keep_alive(&self, client: &Client) {
        let mut changed = self.changed.subscribe();
        loop {
            for settings in &self.settings {
                if let Err(error) = self.write_status(client, settings).await {
                    tracing::debug!(node = settings.name, %error, "a node was not kept alive");
                }
            }
            // Changes are written at once.
            let _ = tokio::time::timeout(RENEW_INTERVAL, changed.changed()).await;
        }
    }

    async fn write_status(&self, client: &Client, settings: &NodeSettings) -> kube::Result<()> {
        let is_lost = self.is_lost(&settings.name);
        let nodes: Api<Node> = Api::all(client.clone());
        let status = Patch::Strategic(json!({"status": status(settings, is_lost)}));
        nodes.patch_status(&settings.name, &PatchParams::default(), &status).await?;
        if !is_lost {
            let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
            let apply = PatchParams::apply(FIELD_MANAGER).force();
            leases.patch(&settings.name, &apply, &Patch::Apply(lease(&settings.name))).await?;
        }
        Ok(())
    }
}

fn object(settings: &NodeSettings) -> Value {
    let mut labels = settings.labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), settings.name.clone());
    labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": settings.name, "labels": labels}})
}

/// Writes the state in which the controllers see a lost node.
fn status(settings: &NodeSettings, is_lost: bool) -> Value {
    let mut resources = settings.resources.clone();
    for (name, amount) in [("cpu", "64"), ("memory", "256Gi"), ("ephemeral-storage", "1Ti"), ("pods", "1000")] {
        resources.entry(name.to_owned()).or_insert_with(|| amount.to_owned());
    }
    let (status, reason) = if is_lost { ("Unknown", "NodeStatusUnknown") } else { ("True", "KubeletReady") };
    let now = jiff::Timestamp::now();
    json!({
        "capacity": resources,
        "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": settings.name}],
        "nodeInfo": {
            "kubeletVersion": "v1.35.4", "containerRuntimeVersion": "none://0", "operatingSystem": "linux", "architecture": "amd64",
            "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "", "kubeProxyVersion": "",
        },
        "conditions": [{
            "type": "Ready", "status": status, "reason": reason, "message": "", "lastHeartbeatTime": format!("{now:.0}"),
        }],
    })
}

fn lease(name: &str) -> Value {
    let now = jiff::Timestamp::now();
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_DURATION_S, "renewTime": format!("{now:.6}")},
    })
}
