//! The driver port: the only code that knows one outside world. It translates and never decides.
//!
//! What every driver promises, and [`crate::conformance`] tests:
//! - an action may be repeated, and one that finds its work done is `Done`, without touching what runs;
//! - what was `Started` is seen from then on, so that it is not asked for twice;
//! - an action with an earlier [`crate::Order`] than one that was already carried out for the resource is refused;
//! - what cannot be seen is never told as absent.

use futures_util::future::BoxFuture;
use trellis_spec::Name;

use crate::action::{Action, Outcome};
use crate::inventory::Capabilities;
use crate::observed::Observation;
use crate::resource::Desired;

/// A call under way. Dropping it gives up waiting; what was asked may happen all the same.
pub type Call<'a, T> = BoxFuture<'a, T>;

pub trait Driver: Send + Sync {
    fn capabilities(&self) -> Capabilities;

    /// All that exists of a federation at a site. A failure is an observation too: `Unreachable`, or incomplete.
    fn observe<'a>(&'a self, federation: &'a Name, site: &'a Name) -> Call<'a, Observation>;

    /// Begins an action, and at best completes it. What takes long is `Started`.
    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome>;

    /// Hears all that is wanted at a site, at each look and before anything is asked. What is in it beside generations, like
    /// the rules of a pool, is the driver's to keep up with.
    fn hear(&self, _federation: &Name, _site: &Name, _wanted: &[&Desired]) {}

    /// What it would send to a site for these, as people read it. Nothing is done, and nothing is asked.
    fn preview(&self, _federation: &Name, _site: &Name, _wanted: &[Desired]) -> Vec<Rendering> {
        Vec::new()
    }
}

/// Something that a driver would send: a template, as its site takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendering {
    pub title: String,
    pub text: String,
}
