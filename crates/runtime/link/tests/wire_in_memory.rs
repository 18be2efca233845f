//! The tests of `wire` with an in-memory store.

#[path = "wire/main.rs"]
mod wire;
