//! Installing the operator from a shell, with real programs and a real API server: `trellis operator manifests`, the chart with
//! Helm, the kustomization, the plugin of kubectl, and the operator with the permissions of each. Without these programs the
//! tests are skipped with a message.

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
