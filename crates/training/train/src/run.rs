//! A run of the native ServerApp: registers it, starts the heartbeat, runs the training and reports its end.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;
use trellis_client::app::{App, AppError, Outcome, TaskInput};
use trellis_wire::fab;

use crate::error::TrainError;
use crate::paths;
use crate::run_log::RunLog;
use crate::settings;
use crate::training::{Ended, RunFacts, Training};

/// The SuperLink considers a ServerApp dead after 60 s without a heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);
/// The limit of a failure's reason in the status of the run. The log has the full text.
const MAX_DETAIL_CHARS: usize = 2000;

/// The directories and defaults of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Checkpoints by run.
    pub models_dir: PathBuf,
    /// Replies that wait for their turn. Created if missing.
    pub spool_dir: PathBuf,
    /// Values of settings that neither the app nor the run sets.
    pub defaults: fab::Config,
    /// Whether log lines are also written to standard error.
    pub echo: bool,
    /// The run belongs to the user of this process, so its settings may name any path. Otherwise only paths below
    /// `models_dir`.
    pub any_path: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    Completed {
        /// The last round that changed the model.
        round: u64,
        /// The path of the last checkpoint.
        checkpoint: Option<PathBuf>,
    },
    /// The run was stopped.
    Stopped,
}

/// Executes the run that the app's token belongs to, and reports its end to the SuperLink.
pub async fn run(app: App, options: Options) -> Result<Finished, TrainError> {
    let mut heartbeat = AbortOnDropHandle::new(tokio::spawn(beat(app.clone())));
    let working = work(&app, options);
    let finished = tokio::select! {
        finished = working => finished,
        ended = &mut heartbeat => Err(ended.map_err(|error| TrainError::Internal(error.to_string()))?.into()),
    };
    match finished {
        Err(error) if error.is_run_over() => Ok(Finished::Stopped),
        finished => finished,
    }
}

async fn work(app: &App, options: Options) -> Result<Finished, TrainError> {
    let input = app.pull_task_input().await?;
    let context = input.context.clone();
    let (log, writing) = RunLog::begin(app.clone(), options.echo);
    let watching = AbortOnDropHandle::new(tokio::spawn(watch_link(app.clone(), log.clone())));
    let trained = train(app, options, input, &log).await;
    let (outcome, details) = match &trained {
        Ok(_) => (Outcome::Completed, String::new()),
        Err(error) if error.is_run_over() => return trained,
        Err(error) => {
            let text = error.explain();
            log.error(&text);
            (Outcome::Failed, text.chars().take(MAX_DETAIL_CHARS).collect())
        }
    };
    watching.abort();
    let _ = watching.await;
    drop(log);
    writing.finish().await;
    match app.push_task_output(context, outcome, &details).await {
        // A previous attempt was processed, but its answer was lost.
        Ok(()) | Err(AppError::RunOver { .. }) => trained,
        Err(error) => Err(error.into()),
    }
}

async fn train(app: &App, options: Options, input: TaskInput, log: &RunLog) -> Result<Finished, TrainError> {
    let project = fab::pyproject(&input.fab.content)?;
    let mut run_config = fab::config(&project)?;
    run_config.extend(input.run.override_config);
    let added = settings::complete(&mut run_config, &options.defaults);
    if !added.is_empty() {
        log.info(format!("defaults of this SuperLink: {}", added.join(", ")));
    }
    if !options.any_path {
        paths::check(&run_config, &options.defaults, &options.models_dir).map_err(TrainError::Settings)?;
    }
    let facts = RunFacts {
        run_id: input.run.run_id,
        task_id: input.task_id,
        fab_id: input.run.fab_id,
        fab_version: input.run.fab_version,
        fab_hash: input.run.fab_hash,
        run_config,
    };
    let spool_dir = options.spool_dir.clone();
    let made = std::fs::create_dir_all(&spool_dir);
    made.map_err(|source| TrainError::SpoolDirectory { path: spool_dir.display().to_string(), source })?;
    let training = Training::begin(app.clone(), options, facts, log.clone()).await?;
    let Ended { round, checkpoint } = training.run_rounds().await?;
    Ok(Finished::Completed { round, checkpoint })
}

/// Sends heartbeats until the run has ended.
async fn beat(app: App) -> AppError {
    loop {
        if let Err(error) = app.heartbeat().await {
            return error;
        }
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
    }
}

/// Logs when the SuperLink becomes unavailable and available.
async fn watch_link(app: App, log: RunLog) {
    let mut away = app.away();
    while away.changed().await.is_ok() {
        let reason = away.borrow_and_update().clone();
        match reason {
            Some(reason) => log.warn(format!("the SuperLink does not answer, trying again: {reason}")),
            None => log.info("the SuperLink answers again"),
        }
    }
}
