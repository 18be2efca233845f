//! The Federation document: what a user writes, read and checked once.
//!
//! What is in a [`Federation`] holds together: names are unique and fit, references lead somewhere, numbers are in range.
//! Nothing here knows what exists, or how to make it.

mod federation;

pub use federation::*;
