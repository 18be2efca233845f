//! The driver port: the only code that knows one outside world. It translates and never decides.
//!
//! What every driver promises, and [`crate::conformance`] tests:
//! - an action may be repeated, and one that finds its work done is `Done`, without touching what runs;
//! - what was `Started` is seen from then on, so that it is not asked for twice;
//! - an action with an earlier [`crate::Order`] than one that was already carried out for the resource is refused;
//! - what cannot be seen is never told as absent.
//!
//! The crate of a driver has a [`DriverKind`], which the control plane lists once. Everything that is different for its sites
//! is behind these three traits.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use trellis_spec::{Name, Site, SiteConfig, SiteKind};

use crate::action::{Action, Outcome};
use crate::inventory::Capabilities;
use crate::observed::Observation;
use crate::resource::{Desired, ResourceId};

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

/// A driver as the control plane registers it. It answers what is known without opening anything.
pub trait DriverKind: fmt::Debug + Send + Sync {
    /// How documents write its sites.
    fn site_kind(&self) -> SiteKind;

    /// Resumes what an earlier process began. Needs an async runtime.
    fn open(&self, context: DriverContext) -> Result<Arc<dyn OpenDriver>, OpenError>;

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    /// Whether two sites of this kind call the same machine with the same credentials.
    fn is_same_connection(&self, one: &SiteConfig, other: &SiteConfig) -> bool {
        one == other
    }

    /// Why the control plane must not use a site.
    fn reject(&self, _site: &SiteConfig) -> Vec<RejectedField> {
        Vec::new()
    }

    /// What the driver would send to a site, as people read it. Nothing is done, and nothing is called.
    fn render(&self, _federation: &Name, _site: &Site, _desired: &[Desired]) -> Vec<Rendering> {
        Vec::new()
    }

    /// The command that copies a directory of the coordinator's machine to this one; `None`: it is on this machine.
    fn copy_command(&self, _site: &SiteConfig, _host: &str, _directory: &str) -> Option<String> {
        None
    }
}

pub type OpenError = Box<dyn Error + Send + Sync>;
pub type Wake = Arc<dyn Fn(&Name) + Send + Sync>;
pub type TrustElsewhere = Arc<dyn Fn(&Name) -> Option<PathBuf> + Send + Sync>;

/// What the control plane gives a driver.
#[derive(Clone)]
pub struct DriverContext {
    /// The state directory of the control plane.
    pub directory: PathBuf,
    /// Our own program.
    pub program: PathBuf,
    /// Called with the name of a federation of which a part became ready, ended or went.
    pub wake: Wake,
    /// The authorities of a coordinator at a site of another kind, as a file.
    pub trust: TrustElsewhere,
}

/// A field of a site that the control plane must not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedField {
    pub field: &'static str,
    pub what: String,
    pub advice: &'static str,
}

/// A driver at work: all sites of its kind, and the files that it has of them.
pub trait OpenDriver: Send + Sync {
    /// The driver of a site as a document has it.
    fn site(self: Arc<Self>, site: &Site) -> Arc<dyn Driver>;

    /// Whether this driver made parts of a federation at a site, which may have another kind in the document by now.
    fn has_parts(&self, federation: &Name, site: &Name) -> bool;

    /// The log of a part; `None`: it is not on this machine.
    fn log_path(&self, _id: &ResourceId) -> Option<PathBuf> {
        None
    }

    /// Says where the log of a part is. `site`: as the document has it.
    fn describe_log<'a>(&'a self, _site: Option<&'a Site>, id: &'a ResourceId) -> Call<'a, String> {
        Box::pin(std::future::ready(format!("{} has no log on this machine", id.part.name())))
    }

    /// Where the coordinator of a federation saves models; `None`: it is not on this machine.
    fn models_path(&self, _federation: &Name) -> Option<PathBuf> {
        None
    }

    /// The authorities that users of a federation must trust, as a file; `None`: it has no TLS, or no coordinator here.
    fn trust_path(&self, _federation: &Name) -> Option<PathBuf> {
        None
    }

    /// The token of the SuperLink's first administrator; `None`: it has no accounts, or no coordinator here.
    fn token_path(&self, _federation: &Name) -> Option<PathBuf> {
        None
    }
}
