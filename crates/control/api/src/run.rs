//! Runs: how they are asked for, what became of them, what they say.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trellis_wire::report::TrainingReport;
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    pub id: String,
    pub federation: String,
    /// `publisher/name`.
    pub app: String,
    pub version: String,
    pub state: RunState,
    /// Of one that is finished: `completed`, `failed` or `stopped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Why it ended so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
    /// Trained by Trellis itself; otherwise by the ServerApp of the app, in Python.
    pub native: bool,
    /// Account of the SuperLink that submitted it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub account: String,
    /// Name of the token with which it was started here; none: it was submitted to the SuperLink itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// Values of this run; for all other keys those of the app apply.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, Scalar>,
    pub submitted_at: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
}

/// The model of a round of a native run, as a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelFile {
    pub run: String,
    pub round: u64,
    /// Of the last round of its run.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Below `/federations/{federation}/models`, to download it.
    pub path: String,
    pub bytes: u64,
    pub strategy: String,
    pub saved_at: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    Pending,
    Starting,
    Running,
    Finished,
}

/// How far a run is, from its last report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Training {
    pub strategy: String,
    pub round: u64,
    /// 0: nobody knows.
    pub rounds_planned: u64,
    /// Of the last round, as `train_loss` and `evaluate_accuracy`.
    pub metrics: BTreeMap<String, f64>,
    /// How long the last round took; absent: nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_seconds: Option<f64>,
    /// Where the newest checkpoint is, on the SuperLink's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// The reports of a run, in the order of rounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrainingRounds {
    pub reports: Vec<TrainingReport>,
    /// Ask again, after the last round that is here.
    pub more: bool,
}

/// A run to start: a bundle that was built before, or an app of Trellis itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    /// `native:mlp`, and others that `GET /api/v1/apps` lists. Either this or `bundle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Bundle>,
    /// Of the app and of its training. Those that the document has under `spec.training` apply where these say nothing.
    #[serde(default)]
    pub settings: BTreeMap<String, Scalar>,
}

/// An app as `flwr build` makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// Base64.
    pub content: String,
    /// SHA-256 of the content, hexadecimal.
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Scalar {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

/// Part of a log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogPart {
    pub text: String,
    /// Ask for what comes after with `after` set to this.
    pub next: String,
    /// Nothing will come any more.
    pub ended: bool,
}

/// What can be run without bringing an app.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Apps {
    pub apps: Vec<AppDescription>,
    /// Settings of every native training.
    pub training: Vec<SettingDescription>,
    pub strategies: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppDescription {
    pub name: String,
    pub summary: String,
    pub settings: Vec<SettingDescription>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SettingDescription {
    pub name: String,
    pub help: String,
    /// What may be given, in words.
    pub expects: String,
    pub default: String,
}
