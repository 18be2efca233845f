//! Where a tracked run is, and what is known of it before it is asked for: a server of the control plane, or a SuperLink.

use jiff::Timestamp;
use serde_json::Value;
use trellis_api::{Client, Run, RunState};
use trellis_client::SuperLink;
use trellis_terminal::explain;
use trellis_tracking::{Ended, Parameters, RunFacts, Source};
use trellis_train::submit::Submission;
use trellis_wire::call::RunHistory;
use trellis_wire::fab::{App, RUN_MARK};
use trellis_wire::proto;
use trellis_wire::report::TrainingReport;

use crate::run::served::scalar;

pub struct Origin {
    place: Place,
    run: String,
    /// Settings of the app, for which the run has no values of its own.
    known: Parameters,
}

enum Place {
    Server { client: Client, federation: String },
    SuperLink { superlink: SuperLink, run: u64 },
}

impl Origin {
    pub fn server(client: &Client, federation: &str, run: &str) -> Origin {
        let place = Place::Server { client: client.clone(), federation: federation.to_owned() };
        Origin { place, run: run.to_owned(), known: Parameters::new() }
    }

    pub fn superlink(superlink: &SuperLink, run: u64) -> Origin {
        let place = Place::SuperLink { superlink: superlink.clone(), run };
        Origin { place, run: run.to_string(), known: Parameters::new() }
    }

    pub fn with(self, known: Parameters) -> Origin {
        Origin { known, ..self }
    }
}

/// The settings with which a run is sent: those of its app, and its own in their place.
pub fn sent(plan: &Submission) -> Parameters {
    let app = App::open(&plan.bundle.fab.content).map(|app| app.config()).unwrap_or_default();
    app.iter().chain(&plan.values).map(|(name, value)| (name.clone(), json(&scalar(value)))).collect()
}

fn json(scalar: &trellis_api::Scalar) -> Value {
    serde_json::to_value(scalar).unwrap_or_default()
}

impl Source for Origin {
    async fn facts(&mut self) -> Result<RunFacts, String> {
        match &self.place {
            Place::Server { client, federation } => {
                let run = client.run(federation, &self.run).await.map_err(|error| explain(&error))?;
                Ok(of_server(run, &self.known))
            }
            Place::SuperLink { superlink, run } => {
                let runs = superlink.list_runs(Some(*run)).await.map_err(|error| explain(&error))?;
                let gone = || format!("there is no run {run} on {}", superlink.endpoint());
                Ok(of_superlink(runs.into_iter().next().ok_or_else(gone)?, &self.known))
            }
        }
    }

    async fn reports(&mut self, after_round: Option<u64>) -> Result<(Vec<TrainingReport>, bool), String> {
        match &self.place {
            Place::Server { client, federation } => {
                let rounds =
                    client.rounds(federation, &self.run, after_round).await.map_err(|error| explain(&error))?;
                Ok((rounds.reports, rounds.more))
            }
            Place::SuperLink { superlink, .. } => {
                let history = superlink.call(&RunHistory { run_id: self.run.clone(), after_round }).await;
                let history = history.map_err(|error| match error.is_unknown_call() {
                    true => format!("{} keeps no rounds: it is no SuperLink of Trellis", superlink.endpoint()),
                    false => explain(&error),
                })?;
                // Reports of a newer version may not be understood.
                let reports = history.reports.iter().filter_map(|report| serde_json::from_str(report.get()).ok());
                Ok((reports.collect(), history.more))
            }
        }
    }
}

fn of_server(run: Run, known: &Parameters) -> RunFacts {
    let mut parameters = known.clone();
    parameters.extend(run.config.iter().map(|(name, value)| (name.clone(), json(value))));
    let ended = || Ended {
        status: run.outcome.clone().unwrap_or_default(),
        details: run.details.clone(),
        at: run.finished_at.unwrap_or_else(trellis_clock::now_s),
    };
    RunFacts {
        ended: (run.state == RunState::Finished).then(ended),
        id: run.id,
        app: run.app,
        version: run.version,
        federation: run.federation,
        native: run.native,
        parameters,
        submitted_at: run.submitted_at,
    }
}

fn of_superlink(run: proto::Run, known: &Parameters) -> RunFacts {
    let seconds = |moment: &str| Some(moment.parse::<Timestamp>().ok()?.as_microsecond() as f64 / 1e6);
    let mut parameters = known.clone();
    let own = run.override_config.iter().filter(|(name, _)| *name != RUN_MARK);
    parameters.extend(own.map(|(name, value)| (name.clone(), json(&scalar(value)))));
    let ended = |status: proto::RunStatus| Ended {
        status: status.sub_status,
        details: status.details,
        at: seconds(&run.finished_at).unwrap_or_else(trellis_clock::now_s),
    };
    RunFacts {
        ended: run.status.filter(|status| status.status == "finished").map(ended),
        id: run.run_id.to_string(),
        app: run.fab_id,
        version: run.fab_version,
        federation: String::new(),
        native: run.native,
        parameters,
        submitted_at: seconds(&run.pending_at).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_run_replace_those_of_the_app() {
        let run: Run = serde_json::from_value(serde_json::json!({
            "id": "42", "federation": "lab", "app": "a/b", "version": "1", "state": "finished", "outcome": "completed",
            "native": true, "config": {"lr": 0.5, "on": true}, "submitted_at": 1.0, "finished_at": 3.0,
        }))
        .expect("a run");
        let known = [("lr".to_owned(), 0.1.into()), ("epochs".to_owned(), 2.into())].into();
        let facts = of_server(run, &known);
        let parameters: Vec<(&str, String)> =
            facts.parameters.iter().map(|(name, value)| (name.as_str(), value.to_string())).collect();
        let text = |text: &str| text.to_owned();
        assert_eq!(parameters, [("epochs", text("2")), ("lr", text("0.5")), ("on", text("true"))]);
        assert_eq!(facts.ended, Some(Ended { status: text("completed"), details: String::new(), at: 3.0 }));
    }
}
