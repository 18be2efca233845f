//! The contract with Flower: messages, object encoding, app bundles, error codes; and the SuperLink's own calls
//! ([`call`], [`report`], [`token`]).
//!
//! This crate knows nothing of stores, clocks or sockets. The link core does not use its types: front ends convert
//! them.
//!
//! # Invariants
//! - No list is decoded before it is counted (`footprint`).

/// Messages generated from the files in `proto/`.
pub mod proto {
    #![allow(clippy::doc_markdown, clippy::large_enum_variant)]
    tonic::include_proto!("flwr.proto");
}

pub mod call;
pub mod error_reply;
pub mod fab;
pub mod footprint;
pub mod object;
pub mod records;
pub mod report;
pub mod token;
