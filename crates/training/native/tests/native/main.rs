//! The built-in apps through their whole way, and the partitions they work on.

mod apps;
mod partitions;
