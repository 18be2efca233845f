//! The appliance as it boots in a VM: the real program with a root of its own, and a OneGate that can be made to fail. Each
//! case has the outcome that the documentation promises: a code, an exit, what the VM says of itself.

mod federation;
mod life;
mod matrix;
mod scene;
