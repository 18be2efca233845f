//! Names of objects of a federation in a namespace, and the labels and annotations by which the driver finds them.

use std::collections::BTreeMap;

use trellis_digest::fnv1a;
use trellis_plan::{Part, ResourceId};
use trellis_spec::{KubeSite, Name};

/// Labels of all objects of the driver.
pub const FEDERATION: &str = "trellis.dev/federation";
pub const SITE: &str = "trellis.dev/site";
/// `coordinator`, `pool-3`.
pub const PART: &str = "trellis.dev/part";

/// Annotation of a StatefulSet: the [`Record`](crate::record::Record) of its part.
pub const RECORD: &str = "trellis.dev/record";
/// Annotations of a pod: the generation and the instance that it was created for.
pub const GENERATION: &str = "trellis.dev/generation";
pub const INSTANCE: &str = "trellis.dev/instance";

/// The StatefulSet controller appends a dash and a hash of 10 letters, and the result must fit a label.
const MAX_WORKLOAD_CHARS: usize = 52;
/// Between the names of the federation and the node.
const SUPERNODE_CHARS: usize = "-supernode-".len();
/// Maximum length of each name, if both together are too long.
const HALF_CHARS: usize = (MAX_WORKLOAD_CHARS - SUPERNODE_CHARS) / 2;

/// Names in the resource that `trellis-kube` renders. It derives all other names from these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectNames {
    pub federation: String,
    /// The pool that stands for a node.
    pub pool: Option<String>,
}

impl ObjectNames {
    pub fn of(id: &ResourceId) -> ObjectNames {
        let federation = id.federation.as_str();
        match &id.part {
            Part::Coordinator => ObjectNames { federation: federation.to_owned(), pool: None },
            Part::Node(key) => {
                let node = key.to_string();
                let fits = federation.len() + node.len() + SUPERNODE_CHARS <= MAX_WORKLOAD_CHARS;
                let [federation, node] = match fits {
                    true => [federation.to_owned(), node],
                    false => [bounded(federation, HALF_CHARS), bounded(&node, HALF_CHARS)],
                };
                ObjectNames { federation, pool: Some(node) }
            }
        }
    }

    /// The StatefulSet.
    pub fn workload(&self) -> String {
        match &self.pool {
            None => superlink(&self.federation),
            Some(pool) => format!("{}-supernode-{pool}", self.federation),
        }
    }

    pub fn pod(&self) -> String {
        format!("{}-0", self.workload())
    }

    /// The Secret of a node: the authorities that it trusts, and its key.
    pub fn node_secret(&self) -> String {
        format!("{}-secret", self.workload())
    }
}

fn superlink(federation: &str) -> String {
    format!("{federation}-superlink")
}

/// The Service and the StatefulSet of the coordinator.
pub fn coordinator(federation: &Name) -> String {
    superlink(federation.as_str())
}

/// The Secret with the authorities that nodes of the same namespace trust.
pub fn bundle(federation: &Name) -> String {
    format!("{federation}-trust")
}

/// Where earlier versions stored the token of the first administrator.
pub fn former_admin_token(federation: &Name) -> String {
    format!("{federation}-admin-token")
}

/// The ConfigMap with the [`Orders`](trellis_plan::Orders) of a federation at a site.
pub fn orders(federation: &Name, site: &Name) -> String {
    bounded(&format!("trellis-{federation}-{site}-orders"), 63)
}

pub fn labels(id: &ResourceId) -> BTreeMap<String, String> {
    let label = |name: &str, value: String| (name.to_owned(), value);
    BTreeMap::from([
        label(FEDERATION, id.federation.to_string()),
        label(SITE, id.site.to_string()),
        label(PART, id.part.name()),
    ])
}

/// Command that prints the log of a part.
pub fn log_command(site: &KubeSite, id: &ResourceId) -> String {
    let context = site.context.as_ref().map(|context| format!(" --context {context}")).unwrap_or_default();
    let labels: Vec<String> = labels(id).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("kubectl{context} --namespace {} logs --all-containers --selector {}", site.namespace, labels.join(","))
}

/// Label selector for all objects of a federation at a site.
pub fn selector(federation: &Name, site: &Name) -> String {
    format!("{FEDERATION}={federation},{SITE}={site}")
}

/// The part with this value of the label [`PART`].
pub fn part(federation: &Name, site: &Name, label: &str) -> Option<ResourceId> {
    let text = match label {
        "coordinator" => format!("{federation}/{site}/coordinator"),
        node => format!("{federation}/{site}/node/{node}"),
    };
    ResourceId::try_from(text).ok()
}

/// Shortens a long name and appends a hash of the whole name, so that different names stay different.
fn bounded(name: &str, max_chars: usize) -> String {
    const HASH_CHARS: usize = 9;
    if name.len() <= max_chars {
        return name.to_owned();
    }
    let short = fnv1a(name.as_bytes()) as u32;
    format!("{}-{short:08x}", name[..max_chars - HASH_CHARS].trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::id;

    #[test]
    fn names_equal_those_of_the_operator_and_fit_labels() {
        assert_eq!(ObjectNames::of(&id("f/lab/coordinator")).workload(), "f-superlink");
        assert_eq!(ObjectNames::of(&id("f/lab/node/cpu-3")).workload(), "f-supernode-cpu-3");
        let long = "a".repeat(Name::MAX_CHARS);
        for part in ["coordinator".to_owned(), format!("node/{long}-12345"), format!("node/{long}-12346")] {
            let names = ObjectNames::of(&id(&format!("{long}/lab/{part}")));
            assert!(names.workload().len() <= MAX_WORKLOAD_CHARS, "{names:?}");
            assert!(names.node_secret().len() <= 63 && names.pod().len() <= 63, "{names:?}");
        }
        let [first, second] = ["0", "1"].map(|index| ObjectNames::of(&id(&format!("{long}/lab/node/{long}-{index}"))));
        assert_ne!(first, second);
    }

    #[test]
    fn the_label_identifies_the_part() {
        for text in ["f/lab/coordinator", "f/lab/node/coordinator-0", "f/lab/node/a-1-2"] {
            let id = id(text);
            assert_eq!(part(&id.federation, &id.site, &labels(&id)[PART]), Some(id));
        }
    }
}
