//! Certificates and keys of federations, as Secrets.
