//! The control plane from a shell: real processes in a separate home, from `trellis up` to the deletion.

mod documents;
mod joined;
mod keeper;
mod kubernetes;
mod opennebula;
mod scene;
mod server;
mod up;
