//! The REST API of the control plane as data: what is asked and what is answered, in JSON, for the server, the command line
//! and everybody else. The page has the same shapes from the OpenAPI document.
//!
//! Ids of runs and nodes are text, since 64 bits do not fit a JSON number. Times are seconds since 1970, unless a name ends
//! with `_ms`. How a call travels is known in [`Client`] alone.

mod client;
mod event;
mod federation;
mod list;
mod plan;
mod problem;
mod run;
mod token;

pub use client::{Applied, CallError, Client, Events, Expected};
pub use event::Event;
pub use federation::{
    Connection, FederationDetail, FederationSummary, Node, NodeChange, NodeCounts, PastFederation, Pool, State,
};
pub use list::{MAX_PAGE, Page, USUAL_PAGE};
pub use plan::{PlanReport, PlannedAction, SiteTemplate};
pub use problem::{Detail, PROBLEM_JSON, Problem};
pub use run::{
    AppDescription, Apps, Bundle, LogPart, ModelFile, NewRun, Run, RunState, Scalar, SettingDescription, Training,
    TrainingRounds,
};
pub use token::{IssuedToken, Me, NewToken, Role, Token};
pub use trellis_plan::{Condition, Status, Weight, Why};
pub use trellis_wire::report::{ClientReport, FindingReport, MetricReport, PhaseReport, TrainingReport};
