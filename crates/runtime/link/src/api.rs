//! The handlers of Flower's three APIs, independent of the transport: a front end decodes the request and encodes the
//! response.

pub mod account;
pub mod app;
pub mod changes;
pub mod control;
pub mod fleet;
pub mod training;
pub mod trellis;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// Generates a random id. Zero and one are reserved.
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
