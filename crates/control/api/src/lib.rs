//! The REST API of the control plane as data: requests and responses in JSON, for the server and its callers. The web page
//! has the same types from the OpenAPI document. [`Client`] calls a server, [`Home`] finds the server of this machine.
//!
//! Ids of runs and nodes are strings, since JSON numbers do not hold 64 bits. Times are seconds since 1970, unless a name
//! ends with `_ms`.

mod client;
mod event;
mod federation;
mod home;
mod list;
mod plan;
mod problem;
mod run;
mod sign_on;
mod token;

pub use client::{Applied, CallError, Client, Events, Expected};
pub use event::Event;
pub use federation::{
    Connection, FederationDetail, FederationSummary, Node, NodeChange, NodeCounts, PastFederation, Pool, State,
};
pub use home::{Home, Lock, Serving};
pub use list::{MAX_PAGE, Page, USUAL_PAGE};
pub use plan::{PlanReport, PlannedAction, SiteTemplate};
pub use problem::{Detail, PROBLEM_JSON, Problem};
pub use run::{
    AppDescription, Apps, Bundle, LogPart, ModelFile, NewRun, Run, RunState, Scalar, SettingDescription, Training,
    TrainingRounds,
};
pub use sign_on::{DeviceLogin, LoginApproval, Proof, SignOn};
pub use token::{IssuedToken, Me, NewToken, Role, Token};
pub use trellis_plan::{Condition, Status, Weight, Why};
pub use trellis_wire::call::AuditEntry;
pub use trellis_wire::report::{ClientReport, FindingReport, MetricReport, PhaseReport, TrainingReport};
