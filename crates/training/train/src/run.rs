//! A run of the native ServerApp, from its inputs to its last word. Wiring: the training itself is elsewhere.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;
use trellis_client::app::{App, AppError, Outcome, TaskInput};
use trellis_wire::fab;

use crate::error::TrainError;
use crate::logbook::Logbook;
use crate::paths;
use crate::settings;
use crate::training::{Ended, RunFacts, Training};

/// A ServerApp that is not heard for 60 s counts as dead.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);
/// Of the reason of a failure, in the status of the run. The log has all of it.
const MAX_DETAIL_CHARS: usize = 2000;

/// Where a run keeps its things.
#[derive(Debug, Clone)]
pub struct Options {
    /// Checkpoints, by run.
    pub models_dir: PathBuf,
    /// Replies that wait for their turn, while the run goes on. Made if it is not there.
    pub spool_dir: PathBuf,
    /// Values of settings that neither the app nor the run has.
    pub defaults: fab::Config,
    /// The lines of the log go to the standard error too.
    pub echo: bool,
    /// The run belongs to the user of this process, so its settings may name any path. Otherwise only paths below
    /// `models_dir`.
    pub any_path: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    Completed {
        /// The last round that the model has seen.
        round: u64,
        /// Where the last model is kept.
        checkpoint: Option<PathBuf>,
    },
    /// Somebody has stopped it.
    Stopped,
}

/// Carries out the run whose token the app has, and tells the SuperLink how it ended.
pub async fn run(app: App, options: Options) -> Result<Finished, TrainError> {
    let mut heartbeat = AbortOnDropHandle::new(tokio::spawn(beat(app.clone())));
    let working = work(&app, options);
    let finished = tokio::select! {
        finished = working => finished,
        ended = &mut heartbeat => Err(ended.map_err(|error| TrainError::Broken(error.to_string()))?.into()),
    };
    match finished {
        Err(error) if error.is_run_over() => Ok(Finished::Stopped),
        finished => finished,
    }
}

async fn work(app: &App, options: Options) -> Result<Finished, TrainError> {
    let input = app.pull_task_input().await?;
    let context = input.context.clone();
    let (book, writing) = Logbook::begin(app.clone(), options.echo);
    let watching = AbortOnDropHandle::new(tokio::spawn(watch_link(app.clone(), book.clone())));
    let trained = train(app, options, input, &book).await;
    let (outcome, details) = match &trained {
        Ok(_) => (Outcome::Completed, String::new()),
        Err(error) if error.is_run_over() => return trained,
        Err(error) => {
            let told = error.told();
            book.error(&told);
            (Outcome::Failed, told.chars().take(MAX_DETAIL_CHARS).collect())
        }
    };
    watching.abort();
    let _ = watching.await;
    drop(book);
    writing.finish().await;
    match app.push_task_output(context, outcome, &details).await {
        // Said before, and the answer was lost.
        Ok(()) | Err(AppError::RunOver { .. }) => trained,
        Err(error) => Err(error.into()),
    }
}

async fn train(app: &App, options: Options, input: TaskInput, book: &Logbook) -> Result<Finished, TrainError> {
    let project = fab::pyproject(&input.fab.content)?;
    let mut run_config = fab::config(&project)?;
    run_config.extend(input.run.override_config);
    let added = settings::complete(&mut run_config, &options.defaults);
    if !added.is_empty() {
        book.info(format!("defaults of this SuperLink: {}", added.join(", ")));
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
    let training = Training::begin(app.clone(), options, facts, book.clone()).await?;
    let Ended { round, checkpoint } = training.go().await?;
    Ok(Finished::Completed { round, checkpoint })
}

/// Until the run is over.
async fn beat(app: App) -> AppError {
    loop {
        if let Err(error) = app.heartbeat().await {
            return error;
        }
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
    }
}

/// Tells when the SuperLink goes away, and when it is back.
async fn watch_link(app: App, book: Logbook) {
    let mut away = app.away();
    while away.changed().await.is_ok() {
        let why = away.borrow_and_update().clone();
        match why {
            Some(why) => book.warn(format!("the SuperLink does not answer, trying again: {why}")),
            None => book.info("the SuperLink answers again"),
        }
    }
}
