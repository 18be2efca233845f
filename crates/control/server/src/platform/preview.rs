//! The driver of a site in a preview. It calls another machine only if an administrator applied a document with the
//! same connection. It creates no client, file or task. Without a server it observes nothing.
//!
//! Every caller with a token may send documents to be planned. A document selects the machine to call and the
//! credentials to use. Credentials are therefore bound to the connections that administrators applied.

use std::sync::Arc;

use trellis_plan::{
    Action, Call, Capabilities, Desired, Driver, DriverKind, Observation, ObservedSite, Outcome, Rendering, Weight, Why,
};
use trellis_spec::{self as spec, Federation, Name};

pub const NOT_APPLIED: &str =
    "no applied document of this federation has this site with the same connection and credentials";

pub const NO_SERVER: &str = "no server runs on this machine";

/// The applied site of this name, if it has the same connection.
pub fn applied_as<'a>(
    kind: &dyn DriverKind,
    site: &spec::Site,
    applied: Option<&'a Federation>,
) -> Option<&'a spec::Site> {
    let applied = applied?.sites.iter().find(|applied| applied.name == site.name)?;
    let is_same = applied.config.kind() == site.config.kind() && kind.is_same_connection(&site.config, &applied.config);
    is_same.then_some(applied)
}

/// The note in the report about a site that is not observed.
pub fn not_observed(site: &Name) -> Why {
    let text = format!("not observed: {NOT_APPLIED}; the plan assumes that the site is empty");
    Why { weight: Weight::Note, about: format!("site {site}"), text }
}

/// How a preview observes a site.
pub enum Observer {
    /// From the driver of the applied site.
    Driver(Arc<dyn Driver>),
    /// No part was ever created there.
    Empty,
    /// The site may have parts of the federation, and is not observed for this reason.
    Unknown(&'static str),
}

pub struct PreviewDriver {
    kind: &'static dyn DriverKind,
    /// As the planned document has it.
    site: spec::Site,
    observer: Observer,
}

impl PreviewDriver {
    pub fn new(kind: &'static dyn DriverKind, site: &spec::Site, observer: Observer) -> Arc<PreviewDriver> {
        Arc::new(PreviewDriver { kind, site: site.clone(), observer })
    }
}

impl Driver for PreviewDriver {
    fn capabilities(&self) -> Capabilities {
        match &self.observer {
            Observer::Driver(observer) => observer.capabilities(),
            Observer::Empty | Observer::Unknown(_) => self.kind.capabilities(),
        }
    }

    fn observe<'a>(&'a self, federation: &'a Name, site: &'a Name) -> Call<'a, Observation> {
        match &self.observer {
            Observer::Driver(observer) => observer.observe(federation, site),
            Observer::Unknown(why) => {
                let why = format!("it is not observed for a preview: {why}");
                Box::pin(std::future::ready(Observation::Unreachable { why }))
            }
            Observer::Empty => {
                let empty = ObservedSite { complete: true, ..ObservedSite::default() };
                Box::pin(std::future::ready(Observation::Reached(empty)))
            }
        }
    }

    fn apply<'a>(&'a self, _action: &'a Action) -> Call<'a, Outcome> {
        let why = "a preview applies nothing".to_owned();
        Box::pin(std::future::ready(Outcome::Refused { why, retry: false }))
    }

    fn preview(&self, federation: &Name, _site: &Name, desired: &[Desired]) -> Vec<Rendering> {
        self.kind.render(federation, &self.site, desired)
    }
}
