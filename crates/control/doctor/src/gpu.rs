//! Whether a host can pass GPUs through to VMs, or a VM can use its GPUs: `observe` reads the machine into `facts`, which
//! [`check_host`] and [`check_guest`] judge.

mod facts;
mod guest;
mod host;
mod observe;
#[cfg(test)]
mod tests;

pub use guest::check_guest;
pub use host::check_host;
pub use observe::Machine;
