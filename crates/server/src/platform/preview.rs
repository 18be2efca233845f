//! The driver of a site in a preview. It calls another machine only if an administrator applied a document with the
//! same connection. It creates no client, file or task.
//!
//! Every caller with a token may send documents to be planned. A document selects the machine to call and the
//! credentials to use. Credentials are therefore bound to the connections that administrators applied.

use std::sync::Arc;

use trellis_plan::{Action, Call, Capabilities, Desired, Driver, Observation, Outcome, Rendering, Seen, Weight, Why};
use trellis_spec::{self as spec, Federation, Name};

const NOT_APPLIED: &str =
    "no applied document of this federation has this site with the same connection and credentials";

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

pub struct PreviewDriver {
    /// The site in the planned document.
    site: spec::Site,
    /// The driver of the applied site; `None` if the site is not observed.
    observer: Option<Arc<dyn Driver>>,
    /// The site may have parts of the federation.
    is_known: bool,
}

impl PreviewDriver {
    pub fn new(site: spec::Site, observer: Option<Arc<dyn Driver>>, is_known: bool) -> PreviewDriver {
        PreviewDriver { site, observer, is_known }
    }
}

impl Driver for PreviewDriver {
    fn capabilities(&self) -> Capabilities {
        self.observer.as_ref().map_or(Capabilities::ALL, |observer| observer.capabilities())
    }

    fn observe<'a>(&'a self, federation: &'a Name, site: &'a Name) -> Call<'a, Observation> {
        match &self.observer {
            Some(observer) => observer.observe(federation, site),
            None if self.is_known => {
                let why = format!("it is not observed for a preview: {NOT_APPLIED}");
                Box::pin(std::future::ready(Observation::Unreachable { why }))
            }
            None => {
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
        match &self.site.driver {
            spec::Driver::Local { .. } => Vec::new(),
            spec::Driver::OpenNebula(one) => trellis_driver_one::preview(one, federation, site, wanted),
            spec::Driver::Kubernetes(kube) => trellis_driver_kube::preview(kube, federation, site, wanted),
        }
    }
}
