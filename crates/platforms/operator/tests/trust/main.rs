//! Certificates and keys as Secrets at a real API server. The time is an argument, so months pass at once.

mod cluster;
mod given;
mod nodes;
mod own;
