//! The tests of `wire`, with a SuperLink whose store is in memory.

#[path = "wire/main.rs"]
mod wire;
