//! OpenNebula as its callers see it. Knows nothing of federations: what a VM or a service means is for the callers.

pub mod keys;
