//! The driver of Kubernetes: SuperLinks and SuperNodes as pods of a namespace. It translates and never decides.
//!
//! Each part is a StatefulSet with one pod, and whatever the pod needs is owned by that StatefulSet. A StatefulSet and not a pod
//! alone, because its controller brings the pod back when a machine is lost, drained or full, never runs two of a name at once,
//! and keeps a claim for what must last. One for each node and not one for each pool, because nodes leave in any order: which one
//! goes is the planner's to say, and a StatefulSet only ever lets go of its last.
//!
//! The StatefulSet is also where the driver remembers: an annotation holds the [`record`] (what is wanted, by which order), and
//! every write names the version that was read, so that of two controllers one hears of the other. One ConfigMap for a federation
//! and a site says whose orders count, and which were the last for parts that are gone. Nothing that matters is on our own disk:
//! whoever opens the driver next finds everything in the cluster. What lies there are copies, of the authorities that users trust
//! and of the first administrator's token.
//!
//! A part is written down with no pod, then gets what its pod needs, then the pod: who ends in between is followed by whoever
//! hears next what is wanted. To take a node away is to let it finish: its pod has the time for it that the document gives.
//!
//! `record`, `names`, `wish`, `dress` and `sight` are pure: what is kept, what things are called, what is asked of
//! `trellis-kube` and what becomes of its answer, what is told. `cluster` calls the API server, `trust` makes what is secret,
//! `fleet` takes orders for one federation at one site.

mod ask;
mod cluster;
mod dress;
mod driver;
mod enrolment;
mod fleet;
mod home;
mod names;
mod orders;
mod preview;
mod record;
mod sight;
#[cfg(test)]
mod testing;
mod trouble;
mod trust;
mod view;
mod wish;

pub use driver::{KubeDriver, KubeSettings, KubeSites, Kubernetes};
