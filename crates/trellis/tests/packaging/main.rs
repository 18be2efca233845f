//! How the operator is installed, seen from a shell, with real programs and a real API server: `trellis operator manifests`, the
//! chart with Helm, the kustomization, the plugin of kubectl, and the operator with the
//! permissions that all of these give it. Without these programs the tests skip, and say so.

mod chart;
mod documents;
mod kustomize;
mod manifests;
mod operator;
mod plugin;
mod quick_start;
mod rbac;
mod readme;
mod stories;
mod tools;
