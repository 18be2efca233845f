//! The driver of Kubernetes: SuperLinks and SuperNodes as pods of a namespace.
//!
//! Each part of a plan is a StatefulSet with one pod, which owns all other objects of the part. A StatefulSet recreates its pod
//! after the loss of a machine, never runs two pods of one name, and keeps a volume claim. Each node has a StatefulSet of its own,
//! because the planner may remove any node of a pool, and a StatefulSet removes the pod with the highest ordinal only
//! (docs/decisions/0017). The objects are those that [`trellis_kube`] renders for the operator, and so are the rules for Secrets,
//! certificates and pods that do not start.
//!
//! The state of a part is its [`record`], an annotation of the StatefulSet. Each write names the resource version that was read, so
//! that concurrent controllers conflict instead of overwriting each other. One ConfigMap for a federation and a site has the last
//! fence and the last orders of deleted parts. Local files are copies for clients: the authorities and the first administrator's
//! token.
//!
//! A StatefulSet is created without pods, then its other objects are created, then it is scaled to one. If the process ends in
//! between, the next observation finds the unfinished part and maintenance completes it. Deleting a node drains it: its pod has
//! the grace period of the document.
//!
//! `record`, `names`, `resource`, `manifests`, `snapshot` and `observation` are pure. `cluster` calls the API server, `trust`
//! writes Secrets, `federation` executes orders for one federation at one site.

mod client_files;
mod cluster;
mod driver;
mod enrolment;
mod failure;
mod federation;
mod manifests;
mod names;
mod observation;
mod orders;
mod preview;
mod record;
mod resource;
mod snapshot;
mod superlink;
#[cfg(test)]
mod testing;
mod trust;

pub use driver::{KubeDriver, KubeSettings, KubeSites, Kubernetes};
