//! One round: training, aggregation, evaluation, checkpoint and report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trellis_core::id::NodeId;
use trellis_strategy::sampling::{self, cyclic, cyclic_order, sample, store_cyclic_order};
use trellis_strategy::{AggregateError, Privacy, Sampling, Strategy};
use trellis_wire::object::ConfigRecord;

use super::{Training, now_s};
use crate::aggregate::{Aggregation, RoundInput, RoundResult};
use crate::conduct::{Conducted, Needs, Plan, conduct};
use crate::content::{Content, ModelObjects};
use crate::error::TrainError;
use crate::exchange::{Act, MessageFormat, SERVER_ROUND};
use crate::privacy::{self, Sample};
use crate::progress::{Measurement, Verdict, rounded};
use crate::receive::{Expected, blocking};
use crate::report::log_phase;
use crate::round::{FailureKind, Rules};

/// The result of a training phase.
#[derive(Default)]
pub(super) struct Trained {
    pub conducted: Option<Conducted>,
    pub measurement: Option<Measurement>,
    merged: Option<RoundResult>,
    /// Why the model is unchanged.
    pub note: String,
}

/// Whether any round changed the model.
#[derive(Debug, Default)]
pub(super) enum Learning {
    #[default]
    NotTried,
    /// No round changed the model; has the reason of the last one.
    Failed(String),
    Some,
}

impl Learning {
    fn record(&mut self, trained: &Trained) {
        if trained.merged.is_some() {
            *self = Learning::Some;
        } else if let (Some(conducted), Learning::NotTried | Learning::Failed(_)) = (&trained.conducted, &*self) {
            let mut failures = conducted.phase.failures();
            let first = failures.next().map(|(node, failure)| format!("; node {node}: {}", failure.reason));
            *self = Learning::Failed(format!("{}{}", trained.note, first.unwrap_or_default()));
        }
    }
}

/// The result of an evaluation.
pub(super) type Evaluated = (Conducted, Measurement);

/// The changes of a round.
#[derive(Default)]
pub(super) struct Change {
    pub norms: BTreeMap<NodeId, f64>,
    pub chosen: Option<Vec<NodeId>>,
    pub update_norm: Option<f64>,
    /// The norm of the mean of all updates, if the strategy computes it.
    pub mean_update_norm: Option<f64>,
}

/// The nodes selected for a phase.
struct Chosen {
    nodes: Vec<NodeId>,
    /// The number of replies that ends the phase.
    enough: usize,
    online: usize,
}

impl Chosen {
    fn sample(&self) -> Sample {
        Sample { asked: self.nodes.len(), online: self.online }
    }
}

/// The parameters of a training phase.
struct TrainingPhase {
    nodes: Vec<NodeId>,
    rules: Rules,
    /// Entries of the instructions' configuration.
    numbers: Vec<(String, f64)>,
    needs: Needs,
    privacy: Option<Privacy>,
}

impl Training {
    /// Executes round `self.round`.
    pub(super) async fn conduct_round(&mut self) -> Result<Verdict, TrainError> {
        let (started_at, began) = (now_s(), Instant::now());
        let chosen = self.choose(Act::Train).await?;
        let sample = chosen.as_ref().map(Chosen::sample);
        if let (Some(dp), Some(sample)) = (&self.settings.dp, sample)
            && let Some(reason) = privacy::exceeds_budget(&self.extra_state.numbers, dp, sample)
        {
            self.round -= 1;
            self.save(true, Duration::ZERO).await?;
            return Ok(Verdict::Stop(reason));
        }
        self.log.info("");
        self.log.info(format!("[ROUND {}/{}]", self.round, self.settings.rounds));
        let mut trained = match chosen {
            Some(chosen) => self.train(chosen).await?,
            None => Trained::default(),
        };
        self.learning.record(&trained);
        let change = trained.merged.take().map(|merged| self.accept(merged, sample)).unwrap_or_default();
        let evaluated = self.evaluate().await?;
        let findings = self.record_round(&trained, evaluated.as_ref(), &change);
        let verdict = self.progress.verdict(self.settings.target.as_ref(), self.settings.patience.as_ref());
        let is_last = verdict != Verdict::Continue || self.round == self.settings.rounds;
        let saved = self.save(is_last, began.elapsed()).await?;
        if let Some(path) = &saved {
            self.log.info(format!("checkpoint: {}", path.display()));
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
        numbers.extend(privacy.iter().flat_map(|privacy| privacy.train_config(&self.extra_state)));
        let needs = Needs {
            loss: matches!(self.settings.strategy, Strategy::QFedAvg { .. })
                .then(|| self.settings.train_loss_key.clone()),
            norm_bit: privacy.as_ref().is_some_and(|privacy| privacy.needs_norm_bit()),
        };
        let phase = TrainingPhase { nodes, rules, numbers, needs, privacy };
        let (conducted, aggregation) = self.attempt(&phase).await?;
        if self.is_format_known || !is_all_errors(&conducted) {
            self.is_format_known |= conducted.phase.good() > 0;
            return self.finish_training(conducted, aggregation).await;
        }
        // If the message format is unknown, the app may have a `client_fn`: then all answers are errors.
        self.log.info("train: all nodes failed; trying again with the messages of apps with a client_fn");
        self.message_format = MessageFormat::Legacy;
        let (second, second_aggregation) = self.attempt(&phase).await?;
        let (good, other) = match is_all_errors(&second) {
            // The message format was not the cause.
            true => {
                self.message_format = MessageFormat::Records;
                ((conducted, aggregation), second_aggregation)
            }
            false => {
                self.is_format_known = true;
                ((second, second_aggregation), aggregation)
            }
        };
        other.abandon().await;
        self.finish_training(good.0, good.1).await
    }

    /// Runs a training phase; replies are aggregated as they arrive.
    async fn attempt(&mut self, phase: &TrainingPhase) -> Result<(Conducted, Aggregation), TrainError> {
        let aggregation = Aggregation::begin(RoundInput {
            server: Arc::clone(&self.server),
            model: Arc::clone(&self.model),
            round: self.round,
            compat: self.settings.compat,
            privacy: phase.privacy.clone(),
            privacy_state: self.extra_state.clone(),
            noise: self.noise.clone(),
        });
        let TrainingPhase { nodes, rules, numbers, needs, .. } = phase;
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
        if let Some(reason) = &conducted.void {
            aggregation.abandon().await;
            log_phase(&self.log, Act::Train, &conducted, None);
            let note = format!("the model is unchanged: {reason}");
            self.log.warn(format!("train: {note}"));
            return Ok(Trained { conducted: Some(conducted), note, ..Trained::default() });
        }
        let merged = aggregation.finish().await?;
        let chosen = merged.as_ref().ok().and_then(|merged| merged.chosen.as_deref());
        let (measurement, errors) = Measurement::of(conducted.replies.clone(), chosen, &self.settings.weighted_by);
        log_phase(&self.log, Act::Train, &conducted, Some(&measurement));
        self.warn_of_metrics(Act::Train, &errors);
        let (merged, note) = match merged {
            Ok(merged) => (Some(merged), String::new()),
            Err(error) => match is_caused_by_replies(&error) {
                false => return Err(TrainError::Aggregation { round: self.round, source: error }),
                true => {
                    let note = format!("the model is unchanged: {error}");
                    self.log.warn(format!("train: {note}"));
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
        let replies = if conducted.void.is_some() { Vec::new() } else { conducted.replies.clone() };
        let (measurement, errors) = Measurement::of(replies, None, &self.settings.weighted_by);
        log_phase(&self.log, Act::Evaluate, &conducted, Some(&measurement));
        self.warn_of_metrics(Act::Evaluate, &errors);
        if let Some(reason) = &conducted.void {
            self.log.warn(format!("evaluate: no result: {reason}"));
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
        let (online, size) = self.online(&sampling).await?;
        if size.selected == 0 {
            return Ok(None);
        }
        let (nodes, enough) = match takes_turns {
            true => {
                let mut order = cyclic_order(&self.extra_state);
                let turn = cyclic(&online, &mut order, self.round);
                store_cyclic_order(&mut self.extra_state, &order);
                (turn.into_iter().collect(), 1)
            }
            false => (sample(&online, size.selected, self.seed, self.round, phase), size.required),
        };
        Ok(Some(Chosen { nodes, enough, online: online.len() }))
    }

    fn log_choice(&self, act: Act, Chosen { nodes, enough, online }: &Chosen) {
        let more = if nodes.len() > *enough { format!(", {enough} answers are enough") } else { String::new() };
        self.log.info(format!("{}: asking {} of {online} nodes{more}", act.name(), nodes.len()));
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
        let (arrays_name, config_name) = self.message_format.names(act);
        let content = Content::new(objects, arrays_name, config_name, &config);
        let trees = self.settings.strategy.is_trees();
        let plan = Plan {
            message_format: self.message_format,
            nodes,
            rules,
            timeout: self.settings.round_timeout,
            content,
            address: self.address(act.name(), self.round, self.settings.round_timeout),
            expected: match act {
                Act::Evaluate => Expected::Metrics,
                Act::Train if trees => Expected::AnyModel,
                Act::Train => {
                    Expected::Model { layout: Arc::clone(&self.model.layout), any_type: self.settings.compat }
                }
            },
            reply_bytes: if act == Act::Train { self.model.layout.bytes() } else { 0 },
            needs,
            non_finite: self.settings.non_finite,
        };
        conduct(&self.receiver, &plan, aggregation).await
    }

    /// Replaces the model.
    fn accept(&mut self, merged: RoundResult, sample: Option<Sample>) -> Change {
        let RoundResult { model, state, privacy_state: mut extra_state, chosen, update_norm, norms } = merged;
        if let (Some(_), Some(sample)) = (&self.settings.dp, sample) {
            privacy::count(&mut extra_state.numbers, sample);
        }
        self.extra_state = extra_state;
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
            self.log.info(format!("privacy so far: epsilon {} at delta {delta:e}", rounded(epsilon)));
        }
        Change { norms: norms.into_iter().collect(), chosen, update_norm, mean_update_norm }
    }

    /// The privacy budget spent so far; `None` without privacy.
    pub(super) fn epsilon(&self) -> Option<f64> {
        let dp = self.settings.dp.as_ref()?;
        Some(privacy::epsilon(&self.extra_state.numbers, dp))
    }
}

fn is_all_errors(conducted: &Conducted) -> bool {
    let mut failures = conducted.phase.failures();
    conducted.phase.good() == 0 && failures.any(|(_, failure)| failure.kind == FailureKind::Error)
}

/// Whether the replies caused the error, so that the next round may succeed.
fn is_caused_by_replies(error: &AggregateError) -> bool {
    matches!(
        error,
        AggregateError::NoReplies
            | AggregateError::TooFew { .. }
            | AggregateError::NoWeight
            | AggregateError::Weight { .. }
            | AggregateError::Loss { .. }
            | AggregateError::NoLoss { .. }
            | AggregateError::Trees { .. }
            | AggregateError::Bagging(_)
    )
}
