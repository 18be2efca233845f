//! Kubernetes as data: the resources of users ([`federation`], [`run`]) and their definitions ([`crd`]), the releases
//! of Flower in images ([`flower`]), the objects of a federation ([`render`]), their Secrets ([`trust`]), the
//! comparison of live and desired objects ([`object`]), and the status ([`status`]). Also limits on pods
//! ([`pod_policy`]), pods that do not start ([`pods`]), and the installation of the operator ([`manifests`]).
//!
//! Pure: no client, no clock, no files. Core types of Kubernetes in resources (pod templates, volumes, environment)
//! pass through as JSON, so that fields of newer clusters are kept.
//!
//! # Invariants
//! - There is no shell in a pod, and no value that is parsed twice: node settings are quoted for TOML and for the
//!   expansion of Kubernetes.

pub mod crd;
pub mod durability;
pub mod federation;
pub mod flower;
pub mod manifests;
pub mod object;
pub mod pod_policy;
pub mod pods;
pub mod progress;
pub mod render;
pub mod run;
pub mod scaling;
pub mod status;
pub mod trust;
pub mod upgrade;
