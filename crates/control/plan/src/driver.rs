//! The driver port. A driver translates between the planner and one platform, and makes no decisions.
//!
//! Guarantees of every driver, tested by [`crate::conformance`]:
//! - Actions are idempotent: repeating a completed action returns `Done` and does not disturb running processes.
//! - A `Started` resource is part of every later observation, so that it is not created twice.
//! - An action whose [`crate::Order`] is earlier than that of an action already applied to the resource is refused.
//! - A resource that cannot be observed is `Unknown`, never `Absent`.
//!
//! The crate of a driver has one [`DriverKind`], which the control plane registers. Everything specific to its sites is behind the
//! three traits of this module.

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
use crate::retry::DriverRetries;

/// A call in progress. Dropping it stops waiting; the call may still take effect.
pub type Call<'a, T> = BoxFuture<'a, T>;

pub trait Driver: Send + Sync {
    fn capabilities(&self) -> Capabilities;

    /// Observes all resources of a federation at a site. A failure is an observation too: `Unreachable`, or incomplete.
    fn observe<'a>(&'a self, federation: &'a Name, site: &'a Name) -> Call<'a, Observation>;

    /// Starts an action. Returns `Started` if it is not complete on return.
    fn apply<'a>(&'a self, action: &'a Action) -> Call<'a, Outcome>;

    /// Receives the desired state of a site at every reconcile, before any action. The driver applies changes that are not part of
    /// a generation, such as the rules of a pool.
    fn set_desired(&self, _federation: &Name, _site: &Name, _desired: &[&Desired]) {}

    /// Renders what the driver would send to a site for these resources. Calls and changes nothing.
    fn preview(&self, _federation: &Name, _site: &Name, _desired: &[Desired]) -> Vec<Rendering> {
        Vec::new()
    }
}

/// A manifest or template that a driver would send to a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendering {
    pub title: String,
    pub text: String,
}

/// A driver as the control plane registers it. Its methods need no open connection.
pub trait DriverKind: fmt::Debug + Send + Sync {
    /// The kind of its sites in documents.
    fn site_kind(&self) -> SiteKind;

    /// Resumes actions of an earlier process. Needs an async runtime.
    fn open(&self, context: DriverContext) -> Result<Arc<dyn OpenDriver>, OpenError>;

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    /// Whether two sites of this kind use the same endpoint and credentials.
    fn is_same_connection(&self, one: &SiteConfig, other: &SiteConfig) -> bool {
        one == other
    }

    /// Why the control plane must not use a site.
    fn reject(&self, _site: &SiteConfig) -> Vec<RejectedField> {
        Vec::new()
    }

    /// Renders what the driver would send to a site. Calls and changes nothing.
    fn render(&self, _federation: &Name, _site: &Site, _desired: &[Desired]) -> Vec<Rendering> {
        Vec::new()
    }

    /// The command that copies a directory from the coordinator's machine; `None` if the directory is on this machine.
    fn copy_command(&self, _site: &SiteConfig, _host: &str, _directory: &str) -> Option<String> {
        None
    }
}

pub type OpenError = Box<dyn Error + Send + Sync>;
pub type Wake = Arc<dyn Fn(&Name) + Send + Sync>;
pub type TrustElsewhere = Arc<dyn Fn(&Name) -> Option<PathBuf> + Send + Sync>;

/// What the control plane provides to a driver.
#[derive(Clone)]
pub struct DriverContext {
    /// The state directory of the control plane.
    pub directory: PathBuf,
    /// Our own program.
    pub program: PathBuf,
    /// Wakes the controller of a federation after a part became ready, ended or was deleted.
    pub wake: Wake,
    /// The file with the authorities of a coordinator at a site of another kind.
    pub trust: TrustElsewhere,
    pub retries: DriverRetries,
}

/// A field of a site that the control plane must not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedField {
    pub field: &'static str,
    pub what: String,
    pub advice: &'static str,
}

/// An open driver: all sites of its kind, and its files on this machine.
pub trait OpenDriver: Send + Sync {
    /// The driver for a site of a document.
    fn site(self: Arc<Self>, site: &Site) -> Arc<dyn Driver>;

    /// Whether this driver created parts of a federation at a site. The document may give the site another kind now.
    fn has_parts(&self, federation: &Name, site: &Name) -> bool;

    /// The log of a part; `None` if it is not on this machine.
    fn log_path(&self, _id: &ResourceId) -> Option<PathBuf> {
        None
    }

    /// Describes where the log of a part is. `site`: as in the document.
    fn describe_log<'a>(&'a self, _site: Option<&'a Site>, id: &'a ResourceId) -> Call<'a, String> {
        Box::pin(std::future::ready(format!("{} has no log on this machine", id.part.name())))
    }

    /// The directory in which the coordinator of a federation saves models; `None` if it is on another machine.
    fn models_path(&self, _federation: &Name) -> Option<PathBuf> {
        None
    }

    /// The file with the authorities that users of a federation must trust; `None` without TLS, or without a coordinator here.
    fn trust_path(&self, _federation: &Name) -> Option<PathBuf> {
        None
    }

    /// The file with the token of the SuperLink's first administrator; `None` without accounts, or without a coordinator here.
    fn token_path(&self, _federation: &Name) -> Option<PathBuf> {
        None
    }
}
