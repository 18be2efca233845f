//! The driver of a site in a preview. It calls another machine only if an administrator applied a document with the
//! same connection. It creates no client, file or task. Without a server it observes nothing.
//!
//! Every caller with a token may send documents to be planned. A document selects the machine to call and the
//! credentials to use. Credentials are therefore bound to the connections that administrators applied.

use std::sync::Arc;

use trellis_plan::{Action, Call, Capabilities, Desired, Driver, Observation, Outcome, Rendering, Seen, Weight, Why};
use trellis_spec::{self as spec, Federation, Name};

pub const NOT_APPLIED: &str =
    "no applied document of this federation has this site with the same connection and credentials";

pub const NO_SERVER: &str = "no server runs on this machine";

/// The applied site of this name, if it has the same connection.
pub fn applied_as<'a>(site: &spec::Site, applied: Option<&'a Federation>) -> Option<&'a spec::Site> {
    let applied = applied?.sites.iter().find(|applied| applied.name == site.name)?;
    is_same_connection(&site.driver, &applied.driver).then_some(applied)
}

/// Whether two sites call the same machine with the same credentials.
fn is_same_connection(one: &spec::Driver, other: &spec::Driver) -> bool {
    match (one, other) {
        (spec::Driver::Local { .. }, spec::Driver::Local { .. }) => true,
        (spec::Driver::OpenNebula(one), spec::Driver::OpenNebula(other)) => {
            (&one.endpoint, &one.flow, &one.zone, &one.auth_file)
                == (&other.endpoint, &other.flow, &other.zone, &other.auth_file)
        }
        (spec::Driver::Kubernetes(one), spec::Driver::Kubernetes(other)) => {
            (&one.kubeconfig, &one.context, &one.namespace) == (&other.kubeconfig, &other.context, &other.namespace)
        }
        _ => false,
    }
}

/// The note in the report about a site that is not observed.
pub fn not_observed(site: &Name) -> Why {
    let text = format!("not observed: {NOT_APPLIED}; the plan assumes that nothing is there");
    Why { weight: Weight::Note, about: format!("site {site}"), text }
}

/// How a preview learns what is at a site.
pub enum Observer {
    /// From the driver of the applied site.
    Driver(Arc<dyn Driver>),
    /// Nothing was ever made there.
    Empty,
    /// The site may have parts of the federation, and is not observed for this reason.
    Unknown(&'static str),
}

pub struct PreviewDriver {
    /// The driver in the planned document.
    driver: spec::Driver,
    observer: Observer,
}

impl PreviewDriver {
    pub fn new(driver: &spec::Driver, observer: Observer) -> Arc<PreviewDriver> {
        Arc::new(PreviewDriver { driver: driver.clone(), observer })
    }
}

impl Driver for PreviewDriver {
    fn capabilities(&self) -> Capabilities {
        match (&self.observer, &self.driver) {
            (Observer::Driver(observer), _) => observer.capabilities(),
            (_, spec::Driver::Local { .. }) => trellis_driver_local::capabilities(),
            (_, spec::Driver::OpenNebula(_) | spec::Driver::Kubernetes(_)) => Capabilities::ALL,
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
                let nothing = Seen { complete: true, ..Seen::default() };
                Box::pin(std::future::ready(Observation::Seen(nothing)))
            }
        }
    }

    fn apply<'a>(&'a self, _action: &'a Action) -> Call<'a, Outcome> {
        let why = "a preview does nothing".to_owned();
        Box::pin(std::future::ready(Outcome::Refused { why, retry: false }))
    }

    fn preview(&self, federation: &Name, site: &Name, wanted: &[Desired]) -> Vec<Rendering> {
        match &self.driver {
            spec::Driver::Local { .. } => Vec::new(),
            spec::Driver::OpenNebula(one) => trellis_driver_one::preview(one, federation, site, wanted),
            spec::Driver::Kubernetes(kube) => trellis_driver_kube::preview(kube, federation, site, wanted),
        }
    }
}
