//! The control plane, seen from a shell: real processes in a home of their own, from `trellis up` to nothing left.

mod documents;
mod joined;
mod keeper;
mod kubernetes;
mod opennebula;
mod scene;
mod server;
mod up;
