//! Kubernetes as data: what users write ([`federation`], [`run`]), its definition ([`crd`]), which release of Flower an image
//! holds ([`flower`]), the objects that a federation needs ([`render`]), how wanted and live ones compare ([`object`]), and what
//! is reported about them ([`status`]). Also what pods may request ([`pod_policy`]), why they do not start ([`pods`]),
//! and what an installation of the operator consists of ([`manifests`]).
//!
//! Pure: no client, no clock, no file. Core types of Kubernetes that users write (pod templates, volumes, environment) pass through
//! as JSON, so that fields of a newer cluster are not lost.

pub mod crd;
pub mod federation;
pub mod flower;
pub mod ground;
pub mod manifests;
pub mod object;
pub mod pod_policy;
pub mod pods;
pub mod render;
pub mod run;
pub mod scaling;
pub mod status;
pub mod trust;
pub mod upgrade;
