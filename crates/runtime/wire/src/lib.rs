//! The contract with Flower: its messages, the encoding of its objects, its bundles of apps, its error codes; and the calls
//! that a SuperLink answers beside Flower's ([`call`], [`report`], [`token`]).
//!
//! Nothing here knows of stores, clocks or sockets, and no type of this crate is used inside the link core:
//! front ends translate at the border.

/// Messages and services, generated from the files in `proto/`.
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
