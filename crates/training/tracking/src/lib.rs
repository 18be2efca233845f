//! Experiment tracking: the reports of a run become points, and the points go to TensorBoard event files and to MLflow.
//!
//! Decisions are pure: `point` (report to points), `rounds` (which reports are final), `backlog` (what to send when, and what
//! to give up), `mlflow::request` and `tensorboard::event` (points to bytes). IO is in `tracker` (one task for each sink) and in
//! the sinks. A sink that is slow, down or full never delays the run: its queue is bounded, and lost points are counted.
//!
//! Knows nothing of command lines, and of SuperLinks and servers only what a [`Source`] tells.

mod backlog;
mod mlflow;
mod point;
mod rounds;
mod run;
mod sink;
mod tensorboard;
mod tracker;

pub use mlflow::{Credentials, Mlflow};
pub use run::{Ended, Parameters, RunFacts, Source};
pub use sink::{Delivery, Sinks};
pub use tensorboard::TensorBoard;
pub use tracker::{Tracker, Until};
