//! MLflow, by its REST API (`/api/2.0/mlflow`), and its artifact proxy for the model.
//!
//! A run of ours is found by the tag `trellis.run_id`, and the points that MLflow has of it are read before any is sent. After
//! a call whose outcome is unknown both are read again, so that no point is sent twice.

mod call;
mod model;
mod request;

use std::collections::BTreeSet;

use trellis_client::{Rest, Security, Target, Timeouts};

use crate::point::Point;
use crate::run::RunFacts;
use crate::sink::{Failure, Sink};
use crate::tracker::MODEL_TIMEOUT;
use call::{Api, Found, Problem};
pub use model::{Model, read_model};

/// How a caller proves who it is.
#[derive(Clone, Default)]
pub enum Credentials {
    #[default]
    None,
    Token(trellis_wire::token::Token),
    Basic {
        user: String,
        password: String,
    },
}

/// Never shown.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// An experiment of a server.
#[derive(Debug)]
pub struct Mlflow {
    api: Api,
    /// The same, for uploads, which take longer.
    uploads: Api,
    /// As the user wrote it.
    uri: String,
    experiment: String,
    session: Option<Session>,
}

/// Our run in MLflow.
#[derive(Debug)]
struct Session {
    run: Found,
    /// Name and step of the points that MLflow has.
    points: BTreeSet<(String, u64)>,
    /// Names of the parameters that it has, or has refused.
    parameters: BTreeSet<String>,
    /// Why it has refused some.
    refused: Option<String>,
}

impl Mlflow {
    /// `prefix`: the path of the server below its host, without a slash at its end.
    pub fn new(
        uri: &str,
        (host, port, prefix): (String, u16, String),
        security: Security,
        credentials: Credentials,
        experiment: &str,
    ) -> Mlflow {
        let (token, basic) = match credentials {
            Credentials::Token(token) => (Some(token), None),
            Credentials::Basic { user, password } => (None, Some(request::basic(&user, &password))),
            Credentials::None => (None, None),
        };
        let target = Target { host, port, security, token };
        let api = |answer| {
            let timeouts = Timeouts { connect: request::TIMEOUT, answer, retries: Vec::new() };
            Api { rest: Rest::new(target.clone(), timeouts), prefix: prefix.clone(), basic: basic.clone() }
        };
        let (api, uploads) = (api(request::TIMEOUT), api(MODEL_TIMEOUT));
        Mlflow { api, uploads, uri: uri.to_owned(), experiment: experiment.to_owned(), session: None }
    }

    /// Our run. The caller puts it back after a success; otherwise the next call looks the run up again.
    async fn session(&mut self, run: &RunFacts) -> Result<Session, Failure> {
        match self.session.take() {
            Some(session) => Ok(session),
            None => self.open(run).await.map_err(|problem| match problem.into_failure() {
                // Without a run there is no place for any point.
                Failure::Refused(why) => Failure::Final(why),
                failure => failure,
            }),
        }
    }

    async fn open(&self, run: &RunFacts) -> Result<Session, Problem> {
        let experiment = self.api.experiment(&self.experiment).await?;
        let mut session = match self.api.find(&experiment, &run.id).await? {
            Some((found, metrics, parameters)) => {
                let mut points = BTreeSet::new();
                for name in metrics {
                    points.extend(self.api.steps(&found.id, &name).await?.into_iter().map(|step| (name.clone(), step)));
                }
                Session { run: found, points, parameters, refused: None }
            }
            None => {
                let run = self.api.create(&experiment, run).await?;
                Session { run, points: BTreeSet::new(), parameters: BTreeSet::new(), refused: None }
            }
        };
        self.add_parameters(&mut session, run).await?;
        Ok(session)
    }

    /// Logs parameters that MLflow does not have: it refuses to change one.
    async fn add_parameters(&self, session: &mut Session, run: &RunFacts) -> Result<(), Problem> {
        let new: Vec<(String, String)> =
            request::parameters(run).into_iter().filter(|(name, _)| !session.parameters.contains(name)).collect();
        for batch in new.chunks(request::MAX_PARAMETERS) {
            match self.api.log_parameters(&session.run.id, batch).await {
                // They must not hold up the points.
                Err(Problem::Refused { status: 400, message, .. }) => session.refused = Some(message),
                logged => logged?,
            }
            session.parameters.extend(batch.iter().map(|(name, _)| name.clone()));
        }
        Ok(())
    }
}

impl Sink for Mlflow {
    const KIND: &'static str = "mlflow";
    const TITLE: &'static str = "MLflow at";
    const MAX_POINTS: usize = request::MAX_POINTS;
    const TAKES_MODELS: bool = true;

    fn place(&self) -> String {
        self.uri.clone()
    }

    async fn deliver(&mut self, run: &RunFacts, points: &[Point]) -> Result<(), Failure> {
        let mut session = self.session(run).await?;
        let new: Vec<&Point> =
            points.iter().filter(|point| !session.points.contains(&(point.name.clone(), point.step))).collect();
        if !new.is_empty() {
            self.api.log_points(&session.run.id, &new).await.map_err(Problem::into_failure)?;
            session.points.extend(new.into_iter().map(|point| (point.name.clone(), point.step)));
        }
        self.session = Some(session);
        Ok(())
    }

    async fn end(&mut self, run: &RunFacts) -> Result<(), Failure> {
        let mut session = self.session(run).await?;
        self.add_parameters(&mut session, run).await.map_err(Problem::into_failure)?;
        if let Some(ended) = &run.ended {
            self.api.end(&session.run.id, ended).await.map_err(Problem::into_failure)?;
        }
        let refused = session.refused.clone();
        self.session = Some(session);
        refused.map_or(Ok(()), |why| Err(Failure::Refused(format!("MLflow refused some parameters: {why}"))))
    }

    async fn keep(&mut self, run: &RunFacts, model: &Model) -> Result<(), Failure> {
        let session = self.session(run).await?;
        let directory = request::artifact_path(&session.run.artifact_uri).map_err(Failure::Refused)?;
        for (name, content) in model.files(&session.run.id) {
            let path = format!("{directory}/{}/{name}", model::DIRECTORY);
            self.uploads.upload(&path, content).await.map_err(Problem::into_failure)?;
        }
        self.session = Some(session);
        Ok(())
    }
}
