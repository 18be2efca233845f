//! The calls to MLflow, and what their answers mean.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trellis_client::{Asking, Error, Reply, Rest};

use super::request;
use crate::point::Point;
use crate::run::{Ended, RunFacts};
use crate::sink::Failure;

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
const AUTHORIZATION: &str = "authorization";
const NOT_FOUND: &str = "RESOURCE_DOES_NOT_EXIST";
const EXISTS: &str = "RESOURCE_ALREADY_EXISTS";
/// How much of a strange answer is shown.
const QUOTED_CHARS: usize = 200;
/// Pages of one list. A metric has a point for each round.
const MAX_PAGES: usize = 100;

/// A server of MLflow.
#[derive(Debug)]
pub struct Api {
    pub rest: Rest,
    /// The path of the server below its host.
    pub prefix: String,
    /// The value of the header that proves who calls, where it is no token.
    pub basic: Option<request::Secret>,
}

/// A run of MLflow.
#[derive(Debug, Clone, Deserialize)]
pub struct Found {
    #[serde(rename = "run_id")]
    pub id: String,
    pub artifact_uri: String,
}

/// Why a call has no good answer.
#[derive(Debug)]
pub enum Problem {
    Unreached(Error),
    Refused { status: u16, code: String, message: String },
    Unexpected(String),
}

impl Problem {
    /// What it means for what was to be delivered.
    pub fn into_failure(self) -> Failure {
        match self {
            Problem::Unreached(error) if error.may_pass() => Failure::Passing(reason(&error)),
            // A name that is not known now may be known later, as with a network that comes back.
            Problem::Unreached(error @ Error::Lookup { .. }) => Failure::Passing(reason(&error)),
            Problem::Unreached(error) => Failure::Final(reason(&error)),
            Problem::Refused { status: 429 | 500.., message, .. } => Failure::Passing(message),
            Problem::Refused { status: 401 | 403, message, .. } => Failure::Final(format!("access denied: {message}")),
            // Our run or its experiment was deleted meanwhile: the next try makes another.
            Problem::Refused { code, message, .. } if code == NOT_FOUND => Failure::Passing(message),
            Problem::Refused { message, .. } => Failure::Refused(message),
            Problem::Unexpected(what) => Failure::Final(what),
        }
    }

    fn has_code(&self, wanted: &str) -> bool {
        matches!(self, Problem::Refused { code, .. } if code == wanted)
    }
}

/// The innermost cause is what people know: `connection refused`.
fn reason(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[derive(Deserialize)]
struct Refusal {
    error_code: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct RunAnswer {
    info: Found,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data {
    #[serde(default)]
    metrics: Vec<Named>,
    #[serde(default)]
    params: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    key: String,
}

impl Api {
    /// The id of the experiment of this name. Made, if there is none.
    pub async fn experiment(&self, name: &str) -> Result<String, Problem> {
        #[derive(Deserialize)]
        struct Experiment {
            experiment_id: String,
            #[serde(default)]
            lifecycle_stage: String,
        }
        #[derive(Deserialize)]
        struct Answer {
            experiment: Experiment,
        }
        let by_name = request::query("/experiments/get-by-name", &[("experiment_name", name)]);
        let found = match self.get::<Answer>(&by_name).await {
            Err(none) if none.has_code(NOT_FOUND) => {
                match self.post::<Value>("/experiments/create", &json!({ "name": name })).await {
                    // Somebody else made it meanwhile.
                    Err(there) if there.has_code(EXISTS) => {}
                    made => drop(made?),
                }
                self.get::<Answer>(&by_name).await?
            }
            found => found?,
        };
        match found.experiment.lifecycle_stage.as_str() {
            "deleted" => {
                Err(Problem::Unexpected(format!("the experiment {name:?} is deleted: restore it, or name another")))
            }
            _ => Ok(found.experiment.experiment_id),
        }
    }

    /// Our run with the names of its metrics and parameters, if MLflow has it.
    pub async fn find(
        &self,
        experiment: &str,
        run: &str,
    ) -> Result<Option<(Found, Vec<String>, BTreeSet<String>)>, Problem> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            runs: Vec<RunAnswer>,
        }
        let answer: Answer = self.post("/runs/search", &request::search(experiment, run)).await?;
        let names = |named: Vec<Named>| named.into_iter().map(|named| named.key);
        Ok(answer
            .runs
            .into_iter()
            .next()
            .map(|RunAnswer { info, data }| (info, names(data.metrics).collect(), names(data.params).collect())))
    }

    pub async fn create(&self, experiment: &str, run: &RunFacts) -> Result<Found, Problem> {
        #[derive(Deserialize)]
        struct Answer {
            run: RunAnswer,
        }
        let answer: Answer = self.post("/runs/create", &request::create(experiment, run)).await?;
        Ok(answer.run.info)
    }

    /// The steps of all points that MLflow has of a metric.
    pub async fn steps(&self, run: &str, metric: &str) -> Result<Vec<u64>, Problem> {
        #[derive(Deserialize)]
        struct Logged {
            #[serde(default)]
            step: u64,
        }
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            metrics: Vec<Logged>,
            #[serde(default)]
            next_page_token: String,
        }
        let (mut steps, mut page) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let of_metric =
                [("run_id", run), ("metric_key", metric), ("max_results", request::PAGE), ("page_token", &page)];
            let given = if page.is_empty() { &of_metric[..3] } else { &of_metric };
            let answer: Answer = self.get(&request::query("/metrics/get-history", given)).await?;
            steps.extend(answer.metrics.into_iter().map(|logged| logged.step));
            page = answer.next_page_token;
            if page.is_empty() {
                break;
            }
        }
        Ok(steps)
    }

    pub async fn log_parameters(&self, run: &str, parameters: &[(String, String)]) -> Result<(), Problem> {
        self.post::<Value>("/runs/log-batch", &request::parameter_batch(run, parameters)).await.map(drop)
    }

    pub async fn log_points(&self, run: &str, points: &[&Point]) -> Result<(), Problem> {
        self.post::<Value>("/runs/log-batch", &request::point_batch(run, points)).await.map(drop)
    }

    pub async fn end(&self, run: &str, ended: &Ended) -> Result<(), Problem> {
        self.post::<Value>("/runs/update", &request::update(run, ended)).await.map(drop)
    }

    /// Puts a file where the server keeps artifacts.
    pub async fn upload(&self, path: &str, content: Bytes) -> Result<(), Problem> {
        let path = format!("{}/api/2.0/mlflow-artifacts/artifacts/{path}", self.prefix);
        self.send("PUT", &path, BYTES, content).await.map(drop)
    }

    async fn get<A: DeserializeOwned>(&self, call: &str) -> Result<A, Problem> {
        let path = format!("{}/api/2.0/mlflow{call}", self.prefix);
        decoded(&self.send("GET", &path, JSON, Bytes::new()).await?)
    }

    async fn post<A: DeserializeOwned>(&self, call: &str, body: &Value) -> Result<A, Problem> {
        let path = format!("{}/api/2.0/mlflow{call}", self.prefix);
        decoded(&self.send("POST", &path, JSON, body.to_string().into()).await?)
    }

    async fn send(&self, method: &'static str, path: &str, kind: &'static str, body: Bytes) -> Result<Reply, Problem> {
        let headers: Vec<_> = self.basic.iter().map(|basic| (AUTHORIZATION, basic.0.clone())).collect();
        let asking = Asking { method, path, kind, accept: JSON, body, headers: &headers };
        let reply = self.rest.ask(&asking).await.map_err(Problem::Unreached)?;
        match reply.status {
            200..300 => Ok(reply),
            status => Err(refused(status, reply.body.as_deref().unwrap_or_default())),
        }
    }
}

fn decoded<A: DeserializeOwned>(reply: &Reply) -> Result<A, Problem> {
    let body = reply.body.as_deref().unwrap_or_default();
    serde_json::from_slice(body)
        .map_err(|error| Problem::Unexpected(format!("no answer of MLflow: {error}: {}", quoted(body))))
}

fn refused(status: u16, body: &[u8]) -> Problem {
    match serde_json::from_slice::<Refusal>(body) {
        // A message may hold a whole statement of SQL.
        Ok(Refusal { error_code: code, message }) => {
            Problem::Refused { status, code, message: quoted(message.as_bytes()) }
        }
        Err(_) => Problem::Refused {
            status,
            code: String::new(),
            message: format!("status {status} {}", quoted(body)).trim_end().to_owned(),
        },
    }
}

/// The beginning of a text of others, in one line.
fn quoted(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let words: String =
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(QUOTED_CHARS).collect();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_decides_whether_to_try_again() {
        let failure = |status: u16, body: &str| refused(status, body.as_bytes()).into_failure();
        let refusal = |code: &str| format!(r#"{{"error_code": "{code}", "message": "why\nnot"}}"#);
        for (status, body, expected) in [
            (503, "busy".to_owned(), Failure::Passing("status 503 busy".to_owned())),
            (429, refusal("REQUEST_LIMIT_EXCEEDED"), Failure::Passing("why not".to_owned())),
            (401, String::new(), Failure::Final("access denied: status 401".to_owned())),
            (404, refusal(NOT_FOUND), Failure::Passing("why not".to_owned())),
            (400, refusal("INVALID_PARAMETER_VALUE"), Failure::Refused("why not".to_owned())),
            (404, "<html>".to_owned(), Failure::Refused("status 404 <html>".to_owned())),
        ] {
            assert_eq!(failure(status, &body), expected);
        }
    }
}
