//! What things of a federation are called in a namespace, and by which marks they are found again.

use std::collections::BTreeMap;

use trellis_digest::fnv1a;
use trellis_plan::{Part, ResourceId};
use trellis_spec::{KubeSite, Name};

/// Labels of everything that is ours.
pub const FEDERATION: &str = "trellis.dev/federation";
pub const SITE: &str = "trellis.dev/site";
/// `coordinator`, `pool-3`.
pub const PART: &str = "trellis.dev/part";

/// Annotation of a StatefulSet: what is kept of the part.
pub const RECORD: &str = "trellis.dev/record";
/// Annotations of a pod: what it was made as.
pub const GENERATION: &str = "trellis.dev/generation";
pub const INSTANCE: &str = "trellis.dev/instance";

/// The controller adds a hash of 10 letters and a dash to it, and all of that must fit a label.
const WORKLOAD_CHARS: usize = 52;
/// Between federation and node.
const SUPERNODE_CHARS: usize = "-supernode-".len();
/// Of each of the two, where they are too long together.
const HALF_CHARS: usize = (WORKLOAD_CHARS - SUPERNODE_CHARS) / 2;

/// As `trellis-kube` is told them: it makes all other names of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    pub federation: String,
    /// Of a node: a pool of its own.
    pub pool: Option<String>,
}

impl Called {
    pub fn of(id: &ResourceId) -> Called {
        let federation = id.federation.as_str();
        match &id.part {
            Part::Coordinator => Called { federation: federation.to_owned(), pool: None },
            Part::Node(key) => {
                let node = key.to_string();
                let fits = federation.len() + node.len() + SUPERNODE_CHARS <= WORKLOAD_CHARS;
                let [federation, node] = match fits {
                    true => [federation.to_owned(), node],
                    false => [bounded(federation, HALF_CHARS), bounded(&node, HALF_CHARS)],
                };
                Called { federation, pool: Some(node) }
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

    /// What only the pods of the part may read.
    pub fn secret(&self) -> String {
        match &self.pool {
            None => format!("{}-superlink-tls", self.federation),
            Some(_) => format!("{}-secret", self.workload()),
        }
    }
}

fn superlink(federation: &str) -> String {
    format!("{federation}-superlink")
}

/// The Service of the coordinator, and its StatefulSet.
pub fn coordinator(federation: &Name) -> String {
    superlink(federation.as_str())
}

/// The authority that the driver keeps for a federation.
pub fn authority(federation: &Name) -> String {
    format!("{federation}-authority")
}

/// The token of the SuperLink's first administrator.
pub fn admin_token(federation: &Name) -> String {
    format!("{federation}-admin-token")
}

/// Whose orders count for a federation at a site.
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

/// The command that shows the log of a part.
pub fn log_command(site: &KubeSite, id: &ResourceId) -> String {
    let context = site.context.as_ref().map(|context| format!(" --context {context}")).unwrap_or_default();
    let labels: Vec<String> = labels(id).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("kubectl{context} --namespace {} logs --all-containers --selector {}", site.namespace, labels.join(","))
}

/// All of a federation at a site.
pub fn selector(federation: &Name, site: &Name) -> String {
    format!("{FEDERATION}={federation},{SITE}={site}")
}

/// The part that the label names.
pub fn part(federation: &Name, site: &Name, label: &str) -> Option<ResourceId> {
    let text = match label {
        "coordinator" => format!("{federation}/{site}/coordinator"),
        node => format!("{federation}/{site}/node/{node}"),
    };
    ResourceId::try_from(text).ok()
}

/// A long name ends in a hash of all of it, so that two of them stay two.
fn bounded(name: &str, most: usize) -> String {
    const HASH_CHARS: usize = 9;
    if name.len() <= most {
        return name.to_owned();
    }
    let short = fnv1a(name.as_bytes()) as u32;
    format!("{}-{short:08x}", name[..most - HASH_CHARS].trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::id;

    #[test]
    fn names_are_those_of_the_operator_and_fit_however_long_they_are() {
        assert_eq!(Called::of(&id("f/lab/coordinator")).workload(), "f-superlink");
        assert_eq!(Called::of(&id("f/lab/node/cpu-3")).workload(), "f-supernode-cpu-3");
        let long = "a".repeat(Name::MAX_CHARS);
        for part in ["coordinator".to_owned(), format!("node/{long}-12345"), format!("node/{long}-12346")] {
            let called = Called::of(&id(&format!("{long}/lab/{part}")));
            assert!(called.workload().len() <= WORKLOAD_CHARS, "{called:?}");
            assert!(called.secret().len() <= 63 && called.pod().len() <= 63, "{called:?}");
        }
        let [first, second] = ["0", "1"].map(|index| Called::of(&id(&format!("{long}/lab/node/{long}-{index}"))));
        assert_ne!(first, second);
    }

    #[test]
    fn a_part_is_found_by_its_label() {
        for text in ["f/lab/coordinator", "f/lab/node/coordinator-0", "f/lab/node/a-1-2"] {
            let id = id(text);
            assert_eq!(part(&id.federation, &id.site, &labels(&id)[PART]), Some(id));
        }
    }
}
