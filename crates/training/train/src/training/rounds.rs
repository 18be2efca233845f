//! One round: training, aggregation, evaluation, and what is kept and told of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trellis_core::id::NodeId;
use trellis_strategy::sampling::{self, cyclic, cyclic_order, keep_cyclic_order, sample};
use trellis_strategy::{Fault, Privacy, Sampling, Strategy};
use trellis_wire::object::ConfigRecord;

use super::{Training, now_s};
use crate::aggregate::{Aggregation, Begin, Merged};
use crate::conduct::{Conducted, Needs, Plan, conduct};
use crate::content::{Content, ModelObjects};
use crate::error::TrainError;
use crate::exchange::{Act, SERVER_ROUND, Speech};
use crate::privacy::{self, Sample};
use crate::progress::{Measurement, Verdict, rounded};
use crate::receive::{Wanted, blocking};
use crate::report::log_phase;
use crate::round::{FailureKind, Rules};

/// What the training phase of a round gave.
#[derive(Default)]
pub(super) struct Trained {
    pub conducted: Option<Conducted>,
    pub measurement: Option<Measurement>,
    merged: Option<Merged>,
    /// Why the model is the old one.
    pub note: String,
}

/// Whether the rounds so far were good for anything.
#[derive(Debug, Default)]
pub(super) enum Learning {
    #[default]
    NotTried,
    /// All of them left the model as it is: why the last one did.
    InVain(String),
    Some,
}

impl Learning {
    fn note(&mut self, trained: &Trained) {
        if trained.merged.is_some() {
            *self = Learning::Some;
        } else if let (Some(conducted), Learning::NotTried | Learning::InVain(_)) = (&trained.conducted, &*self) {
            let mut failures = conducted.phase.failures();
            let first = failures.next().map(|(node, failure)| format!("; node {node}: {}", failure.reason));
            *self = Learning::InVain(format!("{}{}", trained.note, first.unwrap_or_default()));
        }
    }
}

/// What the evaluation gave.
pub(super) type Evaluated = (Conducted, Measurement);

/// What a round changed.
#[derive(Default)]
pub(super) struct Change {
    pub norms: BTreeMap<NodeId, f64>,
    pub chosen: Option<Vec<NodeId>>,
    pub update_norm: Option<f64>,
    /// Of the mean of all updates, where the strategy makes the model of it.
    pub mean_update_norm: Option<f64>,
}

/// The nodes selected for a phase.
struct Chosen {
    nodes: Vec<NodeId>,
    /// Number of replies that end the phase.
    enough: usize,
    online: usize,
}

impl Chosen {
    fn sample(&self) -> Sample {
        Sample { asked: self.nodes.len(), online: self.online }
    }
}

/// What a training phase is to do.
struct Order {
    nodes: Vec<NodeId>,
    rules: Rules,
    /// For the configuration of the instructions.
    numbers: Vec<(String, f64)>,
    needs: Needs,
    privacy: Option<Privacy>,
}

impl Training {
    /// Conducts the round that `self.round` says.
    pub(super) async fn conduct_round(&mut self) -> Result<Verdict, TrainError> {
        let (started_at, began) = (now_s(), Instant::now());
        let chosen = self.choose(Act::Train).await?;
        let sample = chosen.as_ref().map(Chosen::sample);
        if let (Some(dp), Some(sample)) = (&self.settings.dp, sample)
            && let Some(why) = privacy::exceeds_budget(&self.memory.numbers, dp, sample)
        {
            self.round -= 1;
            self.save(true, Duration::ZERO).await?;
            return Ok(Verdict::Stop(why));
        }
        self.book.info("");
        self.book.info(format!("[ROUND {}/{}]", self.round, self.settings.rounds));
        let mut trained = match chosen {
            Some(chosen) => self.train(chosen).await?,
            None => Trained::default(),
        };
        self.learning.note(&trained);
        let change = trained.merged.take().map(|merged| self.accept(merged, sample)).unwrap_or_default();
        let evaluated = self.evaluate().await?;
        let findings = self.look_back(&trained, evaluated.as_ref(), &change);
        let verdict = self.progress.verdict(self.settings.target.as_ref(), self.settings.patience.as_ref());
        let is_last = verdict != Verdict::GoOn || self.round == self.settings.rounds;
        let saved = self.save(is_last, began.elapsed()).await?;
        if let Some(path) = &saved {
            self.book.info(format!("checkpoint: {}", path.display()));
        }
        self.report_round(started_at, &trained, evaluated.as_ref(), &change, &findings, saved.as_deref()).await?;
        Ok(verdict)
    }

    async fn train(&mut self, chosen: Chosen) -> Result<Trained, TrainError> {
        self.log_choice(Act::Train, &chosen);
        let Chosen { nodes, enough, .. } = chosen;
        let privacy = self.settings.privacy(enough);
        let skips = privacy.as_ref().is_some_and(|privacy| privacy.skips_round_on_failure());
        let rules = Rules {
            enough,
            accept_failures: self.settings.accept_failures && !skips,
            min_completion_rate: match self.settings.strategy {
                Strategy::FaultTolerantFedAvg { min_completion_rate_train, .. } => min_completion_rate_train,
                _ => 0.0,
            },
        };
        let mut numbers = self.settings.strategy.train_config();
        numbers.extend(privacy.iter().flat_map(|privacy| privacy.train_config(&self.memory)));
        let needs = Needs {
            loss: matches!(self.settings.strategy, Strategy::QFedAvg { .. })
                .then(|| self.settings.train_loss_key.clone()),
            norm_bit: privacy.as_ref().is_some_and(|privacy| privacy.needs_norm_bit()),
        };
        let order = Order { nodes, rules, numbers, needs, privacy };
        let (conducted, aggregation) = self.attempt(&order).await?;
        if self.is_speech_known || !is_all_errors(&conducted) {
            self.is_speech_known |= conducted.phase.good() > 0;
            return self.finish_training(conducted, aggregation).await;
        }
        // An app that was never heard of may be one with a `client_fn`: then all its answers are errors.
        self.book.info("train: all nodes failed; trying again in the way of apps with a client_fn");
        self.speech = Speech::Legacy;
        let (second, second_aggregation) = self.attempt(&order).await?;
        let (good, other) = match is_all_errors(&second) {
            // It was not that.
            true => {
                self.speech = Speech::Records;
                ((conducted, aggregation), second_aggregation)
            }
            false => {
                self.is_speech_known = true;
                ((second, second_aggregation), aggregation)
            }
        };
        other.abandon().await;
        self.finish_training(good.0, good.1).await
    }

    /// Conducts a training phase, whose replies are aggregated as they come.
    async fn attempt(&mut self, order: &Order) -> Result<(Conducted, Aggregation), TrainError> {
        let aggregation = Aggregation::begin(Begin {
            server: Arc::clone(&self.server),
            model: Arc::clone(&self.model),
            round: self.round,
            compat: self.settings.compat,
            privacy: order.privacy.clone(),
            memory: self.memory.clone(),
            noise: self.noise.clone(),
        });
        let Order { nodes, rules, numbers, needs, .. } = order;
        let conducting = self.conduct(Act::Train, nodes, *rules, numbers, needs.clone(), Some(&aggregation));
        match conducting.await {
            Ok(conducted) => Ok((conducted, aggregation)),
            Err(error) => {
                aggregation.abandon().await;
                Err(error)
            }
        }
    }

    async fn finish_training(&mut self, conducted: Conducted, aggregation: Aggregation) -> Result<Trained, TrainError> {
        if let Some(why) = &conducted.void {
            aggregation.abandon().await;
            log_phase(&self.book, Act::Train, &conducted, None);
            let note = format!("the model stays as it is: {why}");
            self.book.warn(format!("train: {note}"));
            return Ok(Trained { conducted: Some(conducted), note, ..Trained::default() });
        }
        let merged = aggregation.finish().await?;
        let chosen = merged.as_ref().ok().and_then(|merged| merged.chosen.as_deref());
        let (measurement, problems) = Measurement::of(conducted.told.clone(), chosen, &self.settings.weighted_by);
        log_phase(&self.book, Act::Train, &conducted, Some(&measurement));
        self.warn_of_metrics(Act::Train, &problems);
        let (merged, note) = match merged {
            Ok(merged) => (Some(merged), String::new()),
            Err(fault) => match round_is_lost(&fault) {
                false => return Err(TrainError::Aggregation { round: self.round, source: fault }),
                true => {
                    let note = format!("the model stays as it is: {fault}");
                    self.book.warn(format!("train: {note}"));
                    (None, note)
                }
            },
        };
        Ok(Trained { conducted: Some(conducted), measurement: Some(measurement), merged, note })
    }

    async fn evaluate(&mut self) -> Result<Option<Evaluated>, TrainError> {
        let is_due = self.round.is_multiple_of(self.settings.evaluate_every) || self.round == self.settings.rounds;
        if !is_due {
            return Ok(None);
        }
        let Some(chosen) = self.choose(Act::Evaluate).await? else { return Ok(None) };
        self.log_choice(Act::Evaluate, &chosen);
        let Chosen { nodes, enough, .. } = chosen;
        let rules = Rules {
            enough,
            accept_failures: self.settings.accept_failures,
            min_completion_rate: match self.settings.strategy {
                Strategy::FaultTolerantFedAvg { min_completion_rate_evaluate, .. } => min_completion_rate_evaluate,
                _ => 0.0,
            },
        };
        let conducted = self.conduct(Act::Evaluate, &nodes, rules, &[], Needs::default(), None).await?;
        let told = if conducted.void.is_some() { Vec::new() } else { conducted.told.clone() };
        let (measurement, problems) = Measurement::of(told, None, &self.settings.weighted_by);
        log_phase(&self.book, Act::Evaluate, &conducted, Some(&measurement));
        self.warn_of_metrics(Act::Evaluate, &problems);
        if let Some(why) = &conducted.void {
            self.book.warn(format!("evaluate: no result: {why}"));
        }
        Ok(Some((conducted, measurement)))
    }

    /// Selects the nodes of a phase; `None` skips the phase.
    async fn choose(&mut self, act: Act) -> Result<Option<Chosen>, TrainError> {
        let (mut sampling, phase) = match act {
            Act::Train => (self.settings.train, sampling::Phase::Train),
            Act::Evaluate => (self.settings.evaluate, sampling::Phase::Evaluate),
        };
        let takes_turns = act == Act::Train && self.settings.strategy == Strategy::FedXgbCyclic;
        if takes_turns {
            sampling = Sampling { min_nodes: 1, ..sampling };
        }
        let (online, wanted) = self.online(&sampling).await?;
        if wanted.ask == 0 {
            return Ok(None);
        }
        let (nodes, enough) = match takes_turns {
            true => {
                let mut order = cyclic_order(&self.memory);
                let turn = cyclic(&online, &mut order, self.round);
                keep_cyclic_order(&mut self.memory, &order);
                (turn.into_iter().collect(), 1)
            }
            false => (sample(&online, wanted.ask, self.seed, self.round, phase), wanted.enough),
        };
        Ok(Some(Chosen { nodes, enough, online: online.len() }))
    }

    fn log_choice(&self, act: Act, Chosen { nodes, enough, online }: &Chosen) {
        let more = if nodes.len() > *enough { format!(", {enough} answers are enough") } else { String::new() };
        self.book.info(format!("{}: asking {} of {online} nodes{more}", act.name(), nodes.len()));
    }

    async fn conduct(
        &mut self,
        act: Act,
        nodes: &[NodeId],
        rules: Rules,
        numbers: &[(String, f64)],
        needs: Needs,
        aggregation: Option<&Aggregation>,
    ) -> Result<Conducted, TrainError> {
        let mut config = ConfigRecord::default();
        config.0.insert(SERVER_ROUND, self.round);
        for (name, number) in numbers {
            config.0.insert(name.as_str(), *number);
        }
        let objects = match &self.objects {
            Some(objects) => Arc::clone(objects),
            None => {
                let model = Arc::clone(&self.model);
                let objects = Arc::new(blocking(move || ModelObjects::new(model)).await?);
                Arc::clone(self.objects.insert(objects))
            }
        };
        let (arrays_name, config_name) = self.speech.names(act);
        let content = Content::new(objects, arrays_name, config_name, &config);
        let trees = self.settings.strategy.is_trees();
        let plan = Plan {
            speech: self.speech,
            nodes,
            rules,
            timeout: self.settings.round_timeout,
            content,
            address: self.address(act.name(), self.round, self.settings.round_timeout),
            wanted: match act {
                Act::Evaluate => Wanted::Metrics,
                Act::Train if trees => Wanted::AnyModel,
                Act::Train => Wanted::Model { layout: Arc::clone(&self.model.layout), any_type: self.settings.compat },
            },
            reply_bytes: if act == Act::Train { self.model.layout.bytes() } else { 0 },
            needs,
            non_finite: self.settings.non_finite,
        };
        conduct(&self.receiver, &plan, aggregation).await
    }

    /// The next model is the model.
    fn accept(&mut self, merged: Merged, sample: Option<Sample>) -> Change {
        let Merged { model, state, mut memory, chosen, update_norm, norms } = merged;
        if let (Some(_), Some(sample)) = (&self.settings.dp, sample) {
            privacy::count(&mut memory.numbers, sample);
        }
        self.memory = memory;
        (self.model, self.objects) = (Arc::new(model), None);
        Arc::get_mut(&mut self.server).expect("the aggregation is over").accept(state);
        let mean_update_norm = match self.settings.strategy {
            Strategy::FedAvg | Strategy::FedProx { .. } | Strategy::FaultTolerantFedAvg { .. }
                if self.settings.dp.is_none() =>
            {
                update_norm
            }
            _ => None,
        };
        if let Some(epsilon) = self.epsilon() {
            let delta = self.settings.dp.as_ref().map_or(0.0, |dp| dp.delta);
            self.book.info(format!("privacy so far: epsilon {} at delta {delta:e}", rounded(epsilon)));
        }
        Change { norms: norms.into_iter().collect(), chosen, update_norm, mean_update_norm }
    }

    /// What the rounds so far cost of privacy; `None` without it.
    pub(super) fn epsilon(&self) -> Option<f64> {
        let dp = self.settings.dp.as_ref()?;
        Some(privacy::epsilon(&self.memory.numbers, dp))
    }
}

fn is_all_errors(conducted: &Conducted) -> bool {
    let mut failures = conducted.phase.failures();
    conducted.phase.good() == 0 && failures.any(|(_, failure)| failure.kind == FailureKind::Error)
}

/// Whether it lies in the replies, so that the next round may do better.
fn round_is_lost(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::NoReplies
            | Fault::TooFew { .. }
            | Fault::NoWeight
            | Fault::Weight { .. }
            | Fault::Loss { .. }
            | Fault::NoLoss { .. }
            | Fault::Trees { .. }
            | Fault::Bagging(_)
    )
}
