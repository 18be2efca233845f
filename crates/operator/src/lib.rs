//! The Kubernetes operator: watches, compares, applies, tells. What there should be, and whether it is so, is decided in
//! `trellis-kube`.

pub mod reach;
pub mod runs;
pub mod scaling;
pub mod trust;
