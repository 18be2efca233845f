//! The Federation document, parsed and checked.
//!
//! A [`Federation`] is consistent: names are unique and valid, references resolve, numbers are in range. This crate knows nothing
//! about existing resources or their creation.
//!
//! # Invariants
//! - A [`Federation`] is checked: its users need not check again.
//! - Only this crate parses YAML. It knows no files, clocks or networks.

mod amount;
mod cidr;
mod document;
mod expression;
mod federation;
mod kind;
mod node_config;
mod object;
mod operator;
mod problem;
mod promises;
mod read;
mod reference;
mod runtime;
mod schedule;
mod schema;
mod site_kind;
mod tree;
mod write;
pub mod yaml;

/// For crates of drivers, to describe the fields of their sites.
pub mod fields {
    pub use crate::kind::{Choice, ListOf, choice, choice_name, flag, id, labels, name, path, port, text, whole, word};
    pub use crate::object::Object;
    pub use crate::yaml::{Map, Out};
}

pub use cidr::Cidr;
pub use document::{STRATEGIES, USUAL_SUBNET};
pub use expression::Expression;
pub use federation::*;
pub use node_config::{ConfigValue, render_node_config};
pub use problem::{Diagnostic, Diagnostics, Mark, Position};
pub use read::{Reading, read, read_with_warnings};
pub use reference::reference;
pub use schedule::Schedule;
pub use schema::schema;
pub use site_kind::{
    Exposure, KubeImages, KubeSite, LocalSite, OneImages, OneSite, SiteConfig, SiteFields, SiteKind, SiteTraits,
};
pub use trellis_flower::{Isolation, Release};
pub use write::to_yaml;
