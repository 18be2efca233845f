//! A training: what it begins with, and its rounds one after the other. Decisions are made elsewhere (settings, round,
//! strategy, progress); here they are carried out in order.

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
use trellis_strategy::{Model, Options as StrategyOptions, Sampling, Seed, Server, State, Wanted, first_non_finite};
use trellis_wire::fab::Config;

use self::checkpoints::Keeper;
use self::rounds::Learning;
use crate::content::{Address, ModelObjects};
use crate::error::TrainError;
use crate::exchange::Speech;
use crate::first::{self, First};
use crate::logbook::Logbook;
use crate::progress::{Progress, Verdict, rounded};
use crate::receive::Receiver;
use crate::run::Options;
use crate::settings::Settings;
use crate::spool::Spool;

/// Who waits for nodes looks this often.
const GLANCE: Duration = Duration::from_millis(500);
/// Instructions live a little longer than they are waited for: a clock may be wrong.
const TTL_SLACK: Duration = Duration::from_secs(60);

/// What is known of a run.
#[derive(Debug, Clone)]
pub struct RunFacts {
    pub run_id: u64,
    pub task_id: u64,
    pub fab_id: String,
    pub fab_version: String,
    pub fab_hash: String,
    pub run_config: Config,
}

/// How a training ended.
#[derive(Debug)]
pub struct Ended {
    pub round: u64,
    pub checkpoint: Option<PathBuf>,
}

pub struct Training {
    receiver: Receiver,
    book: Logbook,
    facts: RunFacts,
    settings: Settings,
    seed: u64,
    noise: Seed,
    speech: Speech,
    /// Whether the app is known to be spoken to so.
    is_speech_known: bool,
    server: Arc<Server>,
    model: Arc<Model>,
    /// The model as it is sent, once that was made.
    objects: Option<Arc<ModelObjects>>,
    /// What is remembered beside what the strategy remembers: of privacy, of turns, of the app.
    memory: State,
    progress: Progress,
    keeper: Option<Keeper>,
    /// The last round that the model has seen.
    round: u64,
    origin: Option<Origin>,
    takes_reports: bool,
    learning: Learning,
}

impl Training {
    /// Reads the settings and finds the first model.
    pub async fn begin(app: App, options: Options, facts: RunFacts, book: Logbook) -> Result<Training, TrainError> {
        let settings = Settings::read(&facts.run_config).map_err(TrainError::Settings)?;
        let receiver =
            Receiver { app, spool: Spool::new(&options.spool_dir), weighted_by: settings.weighted_by.clone() };
        announce(&book, &settings);
        let server = Server::new(settings.strategy.clone(), StrategyOptions { compat: settings.compat });
        let mut training = Training {
            seed: settings.seed.unwrap_or_else(|| u64::from_le_bytes(random())),
            noise: settings.seed.map_or_else(|| Seed::from(random::<32>()), Seed::from),
            speech: Speech::Records,
            is_speech_known: false,
            server: Arc::new(server),
            model: Arc::default(),
            objects: None,
            memory: State::default(),
            progress: Progress::default(),
            keeper: settings.checkpoints.clone().map(|checkpoints| Keeper::new(checkpoints, &options.models_dir)),
            round: 0,
            origin: None,
            takes_reports: true,
            learning: Learning::default(),
            receiver,
            book,
            facts,
            settings,
        };
        match (training.own_checkpoints(), training.settings.resume.clone()) {
            (Some(directory), _) => training.take_up(directory).await?,
            (None, Some(named)) => training.resume(&options, named).await?,
            (None, None) => training.start(&options).await?,
        }
        if training.round == 0 {
            // A run that is broken off in its first rounds can be resumed too, with the same seed.
            training.save(false, Duration::ZERO).await?;
        }
        Ok(training)
    }

    async fn start(&mut self, options: &Options) -> Result<(), TrainError> {
        let First { model, origin, speech } = match &self.settings.initial_model {
            Some(file) => first::from_file(&options.models_dir, file).await?,
            None if self.settings.strategy.is_trees() => first::no_trees(),
            None => {
                let least = Sampling { fraction: 1.0, min_nodes: 1, ..self.settings.train };
                let (online, _) = self.online(&least).await?;
                let address = self.address("query.init", 0, Duration::from_secs(600));
                first::ask(&self.receiver, &online, self.seed, &address).await?
            }
        };
        if let Some(speech) = speech {
            (self.speech, self.is_speech_known) = (speech, true);
        }
        if let Some(why) = not_finite(&model) {
            return Err(TrainError::NoFirstModel(format!("the one {origin} cannot be used: {why}")));
        }
        self.book.info(format!("first model: {origin}, {}", described(&model)));
        self.model = Arc::new(model);
        Ok(())
    }

    async fn resume(&mut self, options: &Options, named: String) -> Result<(), TrainError> {
        let has_begun = !named.contains('/') && options.models_dir.join(&named).is_dir();
        let loaded = match first::checkpoint(options.models_dir.clone(), named).await {
            Err(TrainError::Models(ModelError::NoRun { run, .. })) if has_begun => {
                self.book.warn(format!("run {run} had kept nothing when it ended: the training begins anew"));
                return self.start(options).await;
            }
            loaded => loaded?,
        };
        self.go_on(loaded)
    }

    /// Where this very run has kept something, if it has: then it was begun by another process, which died.
    fn own_checkpoints(&self) -> Option<PathBuf> {
        let directory = self.keeper.as_ref()?.directory();
        directory.join(self.facts.run_id.to_string()).join(LATEST).exists().then(|| directory.to_owned())
    }

    async fn take_up(&mut self, directory: PathBuf) -> Result<(), TrainError> {
        let loaded = first::checkpoint(directory, self.facts.run_id.to_string()).await?;
        let manifest = &loaded.checkpoint.manifest;
        if let Some(keeper) = &mut self.keeper {
            keeper.taken_up(manifest.round, manifest.is_final);
        }
        let before = manifest.resumed_from.clone();
        self.go_on(loaded)?;
        self.origin = before;
        Ok(())
    }

    fn go_on(&mut self, loaded: Loaded) -> Result<(), TrainError> {
        for skipped in &loaded.skipped {
            self.book.warn(format!("{} cannot be used and is left aside: {}", skipped.path.display(), skipped.why));
        }
        let checkpoint = loaded.checkpoint;
        let manifest = checkpoint.manifest;
        let (state, memory) = checkpoints::split(checkpoint.state);
        if manifest.strategy != self.settings.strategy.name() {
            let (was, is) = (&manifest.strategy, self.settings.strategy.name());
            self.book
                .warn(format!("the checkpoint is one of {was}: {is} goes on from its model, and remembers nothing"));
        } else {
            let server = Arc::get_mut(&mut self.server).expect("nobody else has it yet");
            server.restore(state, &checkpoint.model.layout).map_err(TrainError::Resume)?;
        }
        if checkpoints::is_legacy(&memory) {
            (self.speech, self.is_speech_known) = (Speech::Legacy, true);
        }
        self.memory = memory;
        self.seed = self.settings.seed.unwrap_or(manifest.seed);
        self.round = manifest.round;
        self.origin = Some(manifest.as_origin());
        self.book.info(format!(
            "goes on after round {} of run {}: {}",
            manifest.round,
            manifest.run_id,
            described(&checkpoint.model)
        ));
        self.progress = Progress::after(manifest.history);
        self.model = Arc::new(checkpoint.model);
        Ok(())
    }

    /// All rounds that are left.
    pub async fn go(mut self) -> Result<Ended, TrainError> {
        let began = std::time::Instant::now();
        let first = self.round;
        let mut ending = String::new();
        while self.round < self.settings.rounds {
            self.round += 1;
            let is_last = self.conduct_round().await?;
            if let Verdict::Stop(why) = is_last {
                self.book.info(format!("the training ends here: {why}"));
                ending = why;
                break;
            }
        }
        if self.round == first && first > 0 {
            let rounds = self.settings.rounds;
            ending = format!("round {first} was the last of {rounds} already: nothing is left to do");
            self.book.info(&ending);
            self.save(true, Duration::ZERO).await?;
        }
        let rounds = counted(self.round - first, "round");
        self.book.info("");
        self.book.info(format!("training finished: {rounds} in {:.2} s", began.elapsed().as_secs_f64()));
        let checkpoint = self.keeper.as_ref().and_then(|keeper| keeper.last.clone());
        match &checkpoint {
            Some(path) => self.book.info(format!("the model is kept in {}", path.display())),
            None => self.book.info("the model is not kept: checkpoint-enabled is off"),
        }
        self.report_end(ending).await?;
        if let Learning::InVain(why) = self.learning {
            return Err(TrainError::InVain { rounds: self.round - first, why });
        }
        Ok(Ended { round: self.round, checkpoint })
    }

    /// The nodes that are online, when they are enough, and how many of them are asked.
    async fn online(&self, sampling: &Sampling) -> Result<(Vec<NodeId>, Wanted), TrainError> {
        let mut was_told = None;
        loop {
            let online = self.receiver.app.get_nodes().await?;
            if let Some(wanted) = sampling.needed(online.len()) {
                return Ok((online, wanted));
            }
            let missing = sampling.missing(online.len());
            if was_told.replace(missing) != Some(missing) {
                let missing = counted(missing as u64, "more node");
                self.book.info(format!("waiting for {missing} ({} online)", online.len()));
            }
            tokio::time::sleep(GLANCE).await;
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

fn announce(book: &Logbook, settings: &Settings) {
    book.info(format!("{}: {}", settings.strategy.name(), counted(settings.rounds, "round")));
    let phase = |name: &str, sampling: &Sampling| match sampling.fraction {
        0.0 => book.info(format!("  {name}: never")),
        fraction => {
            let Sampling { min_nodes, min_available, .. } = sampling;
            let share = rounded(100.0 * fraction);
            let share = share.trim_end_matches('0').trim_end_matches('.');
            book.info(format!(
                "  {name}: {share} % of the nodes, at least {min_nodes}, of at least {min_available} online"
            ));
        }
    };
    phase("train", &settings.train);
    phase("evaluate", &settings.evaluate);
    if let Some(dp) = &settings.dp {
        book.info(format!("  differential privacy: {dp}"));
        if settings.seed.is_some() {
            book.warn("  the noise comes from the seed that was given: whoever knows it can take the noise off again");
        }
    }
    for note in &settings.notes {
        book.info(format!("  {note}"));
    }
}

/// "1 round", "5 rounds".
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Where a model has a number that is none: no reply to it would be of use.
fn not_finite(model: &Model) -> Option<String> {
    model.layout.0.iter().zip(&model.arrays).find_map(|(slot, array)| {
        let position = first_non_finite(slot.dtype, array)?;
        Some(format!("{:?} has a number that is not finite, at position {position}", slot.name))
    })
}

/// A model in words.
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

/// From the operating system.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the operating system has randomness");
    bytes
}
