//! Free loopback ports, for servers that must know their port before they start.

use std::collections::{BTreeSet, hash_map::RandomState};
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Below the ephemeral port range, so that no outgoing connection takes a port before the server binds it.
const RANGE: Range<u16> = 15_000..32_000;
const TRIES: usize = 200;

static USED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns a port without a listener, which this process has not returned before.
pub fn free_port() -> u16 {
    let mut given = USED.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..TRIES {
        let drawn = RandomState::new().hash_one(()) % u64::from(RANGE.end - RANGE.start);
        let port = RANGE.start + u16::try_from(drawn).expect("below the width of the range");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && given.insert(port) {
            return port;
        }
    }
    panic!("no free port in {RANGE:?} in {TRIES} tries");
}

pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_returned_twice() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 100);
        assert!(ports.iter().all(|port| RANGE.contains(port)));
    }
}
