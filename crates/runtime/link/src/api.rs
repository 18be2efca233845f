//! The calls of Flower's three APIs, whatever brings them here: a front end decodes, asks, encodes.

pub mod account;
pub mod app;
pub mod changes;
pub mod control;
pub mod fleet;
pub mod training;
pub mod trellis;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// A random id. Zero and one mean something else.
fn random_id() -> u64 {
    loop {
        let id = u64::from_le_bytes(random());
        if id > 1 {
            return id;
        }
    }
}

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    bytes
}
