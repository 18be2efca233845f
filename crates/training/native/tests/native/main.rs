//! The built-in apps end to end, and the partitions of their data.

mod apps;
mod partitions;
