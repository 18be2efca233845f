//! Sites in Kubernetes clusters.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{SiteFields, SiteTraits};
use crate::kind::{Choice, ListOf, Scalar, choice, choice_name, id, labels, path, word};
use crate::object::Object;
use crate::write::{show_path, show_texts, show_variables};
use crate::yaml::Map;

const EXPOSURES: [Choice<Exposure>; 3] =
    [("ClusterIP", Exposure::Cluster), ("NodePort", Exposure::NodePort), ("LoadBalancer", Exposure::LoadBalancer)];

/// A namespace of a Kubernetes cluster, and the images of its pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeSite {
    /// `None`: that of kubectl, or of the pod that we run in.
    #[serde(default)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None`: the current one.
    pub context: Option<String>,
    pub namespace: String,
    /// How clients outside of the cluster reach the coordinator.
    #[serde(default)]
    pub exposure: Exposure,
    /// Annotations of the coordinator's Service, for load balancers.
    #[serde(default)]
    pub service_annotations: BTreeMap<String, String>,
    /// `None`: the default one of the cluster.
    #[serde(default)]
    pub storage_class: Option<String>,
    #[serde(default)]
    pub images: KubeImages,
    /// Names of Secrets.
    #[serde(default)]
    pub image_pull_secrets: Vec<String>,
    /// Labels that select the machines for pods.
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
}

impl KubeSite {
    /// A namespace of the default cluster.
    pub fn of(namespace: &str) -> KubeSite {
        KubeSite {
            kubeconfig: None,
            context: None,
            namespace: namespace.to_owned(),
            exposure: Exposure::default(),
            service_annotations: BTreeMap::new(),
            storage_class: None,
            images: KubeImages::default(),
            image_pull_secrets: Vec::new(),
            node_selector: BTreeMap::new(),
        }
    }
}

/// Scope in which the coordinator's Service is reachable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exposure {
    #[default]
    Cluster,
    NodePort,
    LoadBalancer,
}

/// `None`: the images named after our programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeImages {
    pub superlink: Option<String>,
    pub supernode: Option<String>,
}

impl SiteFields for KubeSite {
    const NAME: &'static str = "kubernetes";
    const STORED: &'static str = "Kubernetes";
    const HELP: &'static str = "Pods in a Kubernetes cluster.";

    fn read(object: &mut Object<'_>) -> Option<KubeSite> {
        let help = "Kubeconfig file. The default is that of kubectl (`KUBECONFIG`, `~/.kube/config`), or the \
                    cluster that we run in.";
        let kubeconfig = object.optional("kubeconfig", path("/etc/trellis/kubeconfig"), help);
        let help = "Context of the kubeconfig; the current one by default.";
        let context = object.optional("context", id("the name of a context", "staging"), help);
        let namespace = dns_label("the name of a namespace", "federations");
        let namespace = object.or("namespace", namespace, "default", "Namespace of all objects. It must exist.");
        let help = "How clients reach the coordinator.";
        let (exposure, service_annotations) = object.object("service", help, service);
        let help = "Storage class of persistent volumes; the default one of the cluster by default.";
        let storage_class = object.optional("storageClass", id("the name of a storage class", "fast-ssd"), help);
        let images = object.object("images", "Default images of pods.", kube_images);
        let help = "Secrets for pulling images.";
        let pull_secrets = object.any("imagePullSecrets", ListOf(dns_label("the name of a secret", "registry")), help);
        let help = "Labels of the machines on which pods may run.";
        let node_selector = object.any("nodeSelector", labels("topology.kubernetes.io/zone", "\"zone-a\""), help);
        Some(KubeSite {
            kubeconfig,
            context,
            namespace,
            exposure,
            service_annotations,
            storage_class,
            images,
            image_pull_secrets: pull_secrets,
            node_selector,
        })
    }

    fn write(&self) -> Map {
        let service = Map::new().put("type", choice_name(&EXPOSURES, &self.exposure));
        let service = match self.service_annotations.is_empty() {
            true => service,
            false => service.put("annotations", show_variables(&self.service_annotations)),
        };
        let images = Map::new()
            .maybe("superlink", self.images.superlink.as_deref())
            .maybe("supernode", self.images.supernode.as_deref());
        Map::new()
            .maybe("kubeconfig", self.kubeconfig.as_deref().map(show_path))
            .maybe("context", self.context.as_deref())
            .put("namespace", self.namespace.as_str())
            .put("service", service)
            .maybe("storageClass", self.storage_class.as_deref())
            .put("images", images)
            .put("imagePullSecrets", show_texts(&self.image_pull_secrets))
            .put("nodeSelector", show_variables(&self.node_selector))
    }

    fn traits(&self) -> SiteTraits {
        SiteTraits::default()
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        self.kubeconfig.iter_mut().map(|path| ("kubeconfig", path)).collect()
    }
}

fn service(object: &mut Object<'_>) -> (Exposure, BTreeMap<String, String>) {
    let help = "Scope: pods of the cluster, clients that reach its nodes, or clients of its load balancer.";
    let exposure = object.or("type", choice(&EXPOSURES), "ClusterIP", help);
    let help = "Annotations of the Service, for load balancers.";
    (exposure, object.any("annotations", labels("metallb.io/address-pool", "\"lab\""), help))
}

fn kube_images(object: &mut Object<'_>) -> KubeImages {
    let image = || id("an image", "trellis-supernode:1.0");
    KubeImages {
        superlink: object.optional("superlink", image(), "Image of the coordinator; ours of this version by default."),
        supernode: object.optional("supernode", image(), "Image of the nodes; ours of this version by default."),
    }
}

fn dns_label(words: &str, example: &'static str) -> Scalar<String> {
    word(words, example, "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", |text| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        text.len() <= 63 && text.chars().all(plain) && !text.starts_with('-') && !text.ends_with('-')
    })
}
