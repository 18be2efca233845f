//! WireGuard between sites: keys, addresses, configuration. Pure.
