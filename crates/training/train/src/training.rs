//! A training: the initial model, and the rounds. Other modules decide (settings, round, strategy, progress); this one executes
//! the decisions.

mod checkpoints;
mod reports;
mod rounds;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use trellis_client::app::App;
use trellis_clock::now_s;
use trellis_core::id::NodeId;
use trellis_models::{LATEST, Loaded, ModelError, Origin};
use trellis_strategy::{
    Model, Options as StrategyOptions, SampleSize, Sampling, Seed, Server, State, first_non_finite,
};
use trellis_wire::fab::Config;

use self::checkpoints::Checkpointer;
use self::rounds::Learning;
use crate::content::{Address, ModelObjects};
use crate::error::TrainError;
use crate::exchange::MessageFormat;
use crate::initial_model::{self, InitialModel};
use crate::progress::{Progress, Verdict, rounded};
use crate::receive::Receiver;
use crate::run::Options;
use crate::run_log::RunLog;
use crate::settings::Settings;
use crate::spool::Spool;

/// The interval of checking for online nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Instructions live longer than the timeout of a round, because clocks differ.
const TTL_SLACK: Duration = Duration::from_secs(60);

/// The metadata of a run.
#[derive(Debug, Clone)]
pub struct RunFacts {
    pub run_id: u64,
    pub task_id: u64,
    pub fab_id: String,
    pub fab_version: String,
    pub fab_hash: String,
    pub run_config: Config,
}

/// The result of a training.
#[derive(Debug)]
pub struct Ended {
    pub round: u64,
    pub checkpoint: Option<PathBuf>,
}

pub struct Training {
    receiver: Receiver,
    log: RunLog,
    facts: RunFacts,
    settings: Settings,
    seed: u64,
    noise: Seed,
    message_format: MessageFormat,
    /// Whether the message format of the app is known.
    is_format_known: bool,
    server: Arc<Server>,
    model: Arc<Model>,
    /// The model as objects, once they were created.
    objects: Option<Arc<ModelObjects>>,
    /// State in addition to the strategy's: of privacy, of turns, of the app.
    extra_state: State,
    progress: Progress,
    checkpointer: Option<Checkpointer>,
    /// The last round that changed the model.
    round: u64,
    origin: Option<Origin>,
    takes_reports: bool,
    learning: Learning,
}

impl Training {
    /// Reads the settings and obtains the initial model.
    pub async fn begin(app: App, options: Options, facts: RunFacts, log: RunLog) -> Result<Training, TrainError> {
        let settings = Settings::read(&facts.run_config).map_err(TrainError::Settings)?;
        let receiver =
            Receiver { app, spool: Spool::new(&options.spool_dir), weighted_by: settings.weighted_by.clone() };
        announce(&log, &settings);
        let server = Server::new(settings.strategy.clone(), StrategyOptions { compat: settings.compat });
        let mut training = Training {
            seed: settings.seed.unwrap_or_else(|| u64::from_le_bytes(random())),
            noise: settings.seed.map_or_else(|| Seed::from(random::<32>()), Seed::from),
            message_format: MessageFormat::Records,
            is_format_known: false,
            server: Arc::new(server),
            model: Arc::default(),
            objects: None,
            extra_state: State::default(),
            progress: Progress::default(),
            checkpointer: settings
                .checkpoints
                .clone()
                .map(|checkpoints| Checkpointer::new(checkpoints, &options.models_dir)),
            round: 0,
            origin: None,
            takes_reports: true,
            learning: Learning::default(),
            receiver,
            log,
            facts,
            settings,
        };
        match (training.own_checkpoints(), training.settings.resume.clone()) {
            (Some(directory), _) => training.resume_from(directory).await?,
            (None, Some(named)) => training.resume(&options, named).await?,
            (None, None) => training.start(&options).await?,
        }
        if training.round == 0 {
            // Store the seed, so that a run can resume with it even if it fails in its first rounds.
            training.save(false, Duration::ZERO).await?;
        }
        Ok(training)
    }

    async fn start(&mut self, options: &Options) -> Result<(), TrainError> {
        let InitialModel { model, origin, message_format } = match &self.settings.initial_model {
            Some(file) => initial_model::from_file(&options.models_dir, file).await?,
            None if self.settings.strategy.is_trees() => initial_model::no_trees(),
            None => {
                let min = Sampling { fraction: 1.0, min_nodes: 1, ..self.settings.train };
                let (online, _) = self.online(&min).await?;
                let address = self.address("query.init", 0, Duration::from_secs(600));
                initial_model::ask(&self.receiver, &online, self.seed, &address).await?
            }
        };
        if let Some(message_format) = message_format {
            (self.message_format, self.is_format_known) = (message_format, true);
        }
        if let Some(reason) = not_finite(&model) {
            return Err(TrainError::NoInitialModel(format!("the model {origin} cannot be used: {reason}")));
        }
        self.log.info(format!("first model: {origin}, {}", described(&model)));
        self.model = Arc::new(model);
        Ok(())
    }

    async fn resume(&mut self, options: &Options, named: String) -> Result<(), TrainError> {
        let has_begun = !named.contains('/') && options.models_dir.join(&named).is_dir();
        let loaded = match initial_model::checkpoint(options.models_dir.clone(), named).await {
            Err(TrainError::Models(ModelError::NoRun { run, .. })) if has_begun => {
                self.log.warn(format!("run {run} has no checkpoint: the training starts from the beginning"));
                return self.start(options).await;
            }
            loaded => loaded?,
        };
        self.restore(loaded)
    }

    /// The checkpoints of this run, if another process executed it before and died.
    fn own_checkpoints(&self) -> Option<PathBuf> {
        let directory = self.checkpointer.as_ref()?.directory();
        directory.join(self.facts.run_id.to_string()).join(LATEST).exists().then(|| directory.to_owned())
    }

    async fn resume_from(&mut self, directory: PathBuf) -> Result<(), TrainError> {
        let loaded = initial_model::checkpoint(directory, self.facts.run_id.to_string()).await?;
        let manifest = &loaded.checkpoint.manifest;
        if let Some(checkpointer) = &mut self.checkpointer {
            checkpointer.resumed_from(manifest.round, manifest.is_final);
        }
        let before = manifest.resumed_from.clone();
        self.restore(loaded)?;
        self.origin = before;
        Ok(())
    }

    fn restore(&mut self, loaded: Loaded) -> Result<(), TrainError> {
        for skipped in &loaded.skipped {
            self.log.warn(format!("skipped {}: {}", skipped.path.display(), skipped.error));
        }
        let checkpoint = loaded.checkpoint;
        let manifest = checkpoint.manifest;
        let (state, extra_state) = checkpoints::split(checkpoint.state);
        if manifest.strategy != self.settings.strategy.name() {
            let (was, is) = (&manifest.strategy, self.settings.strategy.name());
            self.log.warn(format!("the checkpoint was made with {was}: {is} starts from its model, without its state"));
        } else {
            let server = Arc::get_mut(&mut self.server).expect("the server is not shared yet");
            server.restore(state, &checkpoint.model.layout).map_err(TrainError::Resume)?;
        }
        if checkpoints::is_legacy(&extra_state) {
            (self.message_format, self.is_format_known) = (MessageFormat::Legacy, true);
        }
        self.extra_state = extra_state;
        self.seed = self.settings.seed.unwrap_or(manifest.seed);
        self.round = manifest.round;
        self.origin = Some(manifest.as_origin());
        self.log.info(format!(
            "resumes after round {} of run {}: {}",
            manifest.round,
            manifest.run_id,
            described(&checkpoint.model)
        ));
        self.progress = Progress::resumed(manifest.history);
        self.model = Arc::new(checkpoint.model);
        Ok(())
    }

    /// Runs all remaining rounds.
    pub async fn run_rounds(mut self) -> Result<Ended, TrainError> {
        let began = std::time::Instant::now();
        let first = self.round;
        let mut ending = String::new();
        while self.round < self.settings.rounds {
            self.round += 1;
            let is_last = self.conduct_round().await?;
            if let Verdict::Stop(reason) = is_last {
                self.log.info(format!("the training ends here: {reason}"));
                ending = reason;
                break;
            }
        }
        if self.round == first && first > 0 {
            let rounds = self.settings.rounds;
            ending = format!("round {first} was the last of {rounds}: nothing is left to do");
            self.log.info(&ending);
            self.save(true, Duration::ZERO).await?;
        }
        let rounds = counted(self.round - first, "round");
        self.log.info("");
        self.log.info(format!("training finished: {rounds} in {:.2} s", began.elapsed().as_secs_f64()));
        let checkpoint = self.checkpointer.as_ref().and_then(|checkpointer| checkpointer.last.clone());
        match &checkpoint {
            Some(path) => self.log.info(format!("the model is kept in {}", path.display())),
            None => self.log.info("the model is not kept: checkpoint-enabled is off"),
        }
        self.report_end(ending).await?;
        if let Learning::Failed(reason) = self.learning {
            return Err(TrainError::Failed { rounds: self.round - first, reason });
        }
        Ok(Ended { round: self.round, checkpoint })
    }

    /// Waits for enough online nodes; returns them and the sample size.
    async fn online(&self, sampling: &Sampling) -> Result<(Vec<NodeId>, SampleSize), TrainError> {
        let mut was_told = None;
        loop {
            let online = self.receiver.app.get_nodes().await?;
            if let Some(size) = sampling.size(online.len()) {
                return Ok((online, size));
            }
            let missing = sampling.missing(online.len());
            if was_told.replace(missing) != Some(missing) {
                let missing = counted(missing as u64, "more node");
                self.log.info(format!("waiting for {missing} ({} online)", online.len()));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn address<'a>(&self, message_type: &'a str, round: u64, timeout: Duration) -> Address<'a> {
        Address {
            run_id: self.facts.run_id,
            task_id: self.facts.task_id,
            message_type,
            group_id: round.to_string(),
            created_at_s: now_s(),
            ttl_s: timeout.saturating_add(TTL_SLACK).as_secs_f64(),
        }
    }
}

fn announce(log: &RunLog, settings: &Settings) {
    log.info(format!("{}: {}", settings.strategy.name(), counted(settings.rounds, "round")));
    let phase = |name: &str, sampling: &Sampling| match sampling.fraction {
        0.0 => log.info(format!("  {name}: never")),
        fraction => {
            let Sampling { min_nodes, min_available, .. } = sampling;
            let share = rounded(100.0 * fraction);
            let share = share.trim_end_matches('0').trim_end_matches('.');
            log.info(format!(
                "  {name}: {share} % of the nodes, at least {min_nodes}, of at least {min_available} online"
            ));
        }
    };
    phase("train", &settings.train);
    phase("evaluate", &settings.evaluate);
    if let Some(dp) = &settings.dp {
        log.info(format!("  differential privacy: {dp}"));
        if settings.seed.is_some() {
            log.warn("  the noise derives from the given seed: anyone who knows it can remove the noise");
        }
    }
    for note in &settings.notes {
        log.info(format!("  {note}"));
    }
}

/// "1 round", "5 rounds".
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The first non-finite value of a model, which would make all replies unusable.
fn not_finite(model: &Model) -> Option<String> {
    model.layout.0.iter().zip(&model.arrays).find_map(|(slot, array)| {
        let index = first_non_finite(slot.dtype, array)?;
        Some(format!("{:?} has a non-finite value at index {index}", slot.name))
    })
}

/// A description of a model.
fn described(model: &Model) -> String {
    let arrays = counted(model.arrays.len() as u64, "array");
    let bytes = model.layout.bytes() as f64;
    let (size, unit) = match bytes {
        small if small < 1e3 => return format!("{arrays}, {small} bytes"),
        medium if medium < 1e6 => (medium / 1e3, "kB"),
        large if large < 1e9 => (large / 1e6, "MB"),
        huge => (huge / 1e9, "GB"),
    };
    format!("{arrays}, {size:.1} {unit}")
}

/// Random bytes from the operating system.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the operating system has randomness");
    bytes
}
