//! Runs a strategy on given replies, to compare it with other implementations (`tests/strategy`). Reads one case per line of
//! standard input, as JSON, and writes one answer per line of standard output.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize};
use trellis_core::id::NodeId;
use trellis_strategy::privacy::{self, Clipped};
use trellis_strategy::{
    InMemory, Layout, Model, Numbers, Options, Privacy, Reply, Sampling, Server, Slot, State, Strategy, metrics,
};
use trellis_wire::object::{MetricRecord, MetricValue};
use trellis_wire::records::Dtype;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Case {
    /// The sample size with this many nodes online.
    Sampling {
        fraction: f64,
        min_nodes: usize,
        min_available: usize,
        online: usize,
    },
    Training(Training),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Training {
    strategy: String,
    #[serde(default)]
    parameters: BTreeMap<String, f64>,
    privacy: Option<PrivacyCase>,
    compat: bool,
    model: Vec<ArrayCase>,
    /// The replies of each round, sorted by node id.
    rounds: Vec<Vec<ReplyCase>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrivacyCase {
    kind: String,
    clipping_norm: f64,
    num_sampled: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayCase {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    /// Little-endian, base64.
    data: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyCase {
    node: u64,
    arrays: Vec<ArrayCase>,
    metrics: Vec<(String, MetricCase)>,
}

#[derive(Serialize, Deserialize, Clone)]
#[serde(untagged)]
enum MetricCase {
    Int(i64),
    Float(f64),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Asked(Option<usize>),
    Rounds(Vec<RoundAnswer>),
    Error(String),
}

#[derive(Serialize)]
pub struct RoundAnswer {
    arrays: Vec<ArrayCase>,
    metrics: Vec<(String, MetricCase)>,
    chosen: Option<Vec<usize>>,
    /// The clipping norm that applied to the clients of this round.
    clipping_norm: Option<f64>,
}

type Fallible<T> = Result<T, Box<dyn Error>>;
/// A model, and the indices of the selected replies.
type Next = (Model, Option<Vec<usize>>);

const WEIGHT: &str = "num-examples";
const LOSS: &str = "train_loss";

fn main() -> Fallible<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let answer = match answer(&line?) {
            Ok(answer) => answer,
            Err(error) => Answer::Error(error.to_string()),
        };
        serde_json::to_writer(&mut out, &answer)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

pub fn answer(line: &str) -> Fallible<Answer> {
    match serde_json::from_str(line)? {
        Case::Sampling { fraction, min_nodes, min_available, online } => {
            let sampling = Sampling { fraction, min_nodes, min_available, over_selection: 0.0 };
            Ok(Answer::Asked(sampling.size(online).map(|size| size.selected)))
        }
        Case::Training(training) => train(training).map(Answer::Rounds),
    }
}

fn train(case: Training) -> Fallible<Vec<RoundAnswer>> {
    let privacy = case.privacy.map(privacy_of).transpose()?;
    let mut server = Server::new(strategy(&case.strategy, &case.parameters)?, Options { compat: case.compat });
    let mut model = model(case.model)?;
    let mut private = State::default();
    let mut answers = Vec::new();
    for (replies, number) in case.rounds.into_iter().zip(1..) {
        let round = RoundCase::read(replies)?;
        let limit = privacy.as_ref().map(|privacy| privacy.clipping_norm(&private));
        let clipping = privacy.as_ref().map(|privacy| (privacy, &mut private));
        let (next, chosen) = round.aggregate(&mut server, &model, number, case.compat, clipping)?;
        model = next;
        let metrics =
            metrics::weighted_mean(&round.metrics_of(chosen.as_deref()), WEIGHT).map_err(|errors| errors.join("; "))?;
        answers.push(RoundAnswer {
            arrays: arrays(&model),
            metrics: metrics.0.iter().map(|(name, value)| (name.clone(), metric_case(value))).collect(),
            chosen,
            clipping_norm: limit,
        });
    }
    Ok(answers)
}

/// The replies of one round.
struct RoundCase {
    nodes: Vec<NodeId>,
    models: Vec<InMemory>,
    metrics: Vec<MetricRecord>,
}

impl RoundCase {
    fn read(replies: Vec<ReplyCase>) -> Fallible<Self> {
        let mut round = Self { nodes: Vec::new(), models: Vec::new(), metrics: Vec::new() };
        for reply in replies {
            round.nodes.push(NodeId(reply.node));
            round.models.push(InMemory(model(reply.arrays)?));
            let mut metrics = MetricRecord::default();
            for (name, value) in reply.metrics {
                metrics.0.insert(name, metric_value(value));
            }
            round.metrics.push(metrics);
        }
        Ok(round)
    }

    fn metrics_of(&self, chosen: Option<&[usize]>) -> Vec<(NodeId, &MetricRecord)> {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        chosen.unwrap_or(&all).iter().map(|&place| (self.nodes[place], &self.metrics[place])).collect()
    }

    fn aggregate(
        &self,
        server: &mut Server,
        model: &Model,
        number: u64,
        compat: bool,
        privacy: Option<(&Privacy, &mut State)>,
    ) -> Fallible<Next> {
        let replies = self.nodes.iter().zip(&self.metrics).map(|(&node, metrics)| Reply {
            node,
            weight: metrics::scalar(metrics, WEIGHT).unwrap_or(f64::NAN),
            loss: metrics::scalar(metrics, LOSS),
        });
        let mut replies: Vec<Reply> = replies.collect();
        let Some((privacy, private)) = privacy else {
            let numbers: Vec<&dyn Numbers> = self.models.iter().map(|model| model as &dyn Numbers).collect();
            return finish(server, model, number, &replies, &numbers);
        };
        let (mut clipped, mut bits) = (Vec::new(), Vec::new());
        for ((reply, theirs), metrics) in replies.iter_mut().zip(&self.models).zip(&self.metrics) {
            let factor = privacy.factor(private, privacy::update_norm(model, theirs)?);
            reply.weight = privacy.weight(reply.weight, compat);
            bits.push(match metrics::scalar(metrics, privacy::NORM_BIT) {
                Some(bit) if privacy.needs_norm_bit() => bit != 0.0,
                _ => factor < 1.0,
            });
            clipped.push(Clipped::new(model, theirs, factor)?);
        }
        let numbers: Vec<&dyn Numbers> = clipped.iter().map(|clipped| clipped as &dyn Numbers).collect();
        let (next, chosen) = finish(server, model, number, &replies, &numbers)?;
        Ok((privacy.finish_round(next, private, &bits, compat, &number.into(), number), chosen))
    }
}

fn finish(
    server: &mut Server,
    model: &Model,
    number: u64,
    replies: &[Reply],
    numbers: &[&dyn Numbers],
) -> Fallible<Next> {
    let mut round = server.begin(model, number);
    let mut kept = Vec::new();
    for (reply, numbers) in replies.iter().zip(numbers) {
        if server.strategy().folds() {
            round.fold(reply, *numbers)?;
        } else {
            kept.push((*reply, *numbers));
        }
    }
    let aggregated = round.finish(&kept)?;
    server.accept(aggregated.state);
    Ok((aggregated.model, aggregated.chosen))
}

fn strategy(name: &str, parameters: &BTreeMap<String, f64>) -> Fallible<Strategy> {
    let mut strategy = Strategy::with_defaults(name).ok_or_else(|| format!("there is no strategy {name}"))?;
    for (parameter, &value) in parameters {
        set(&mut strategy, parameter, value).ok_or_else(|| format!("{name} has no parameter {parameter}"))?;
    }
    Ok(strategy)
}

fn set(strategy: &mut Strategy, parameter: &str, value: f64) -> Option<()> {
    use Strategy::*;
    let place = match (strategy, parameter) {
        (FedAvgM { server_learning_rate, .. }, "server_learning_rate") => server_learning_rate,
        (FedAvgM { server_momentum, .. }, "server_momentum") => server_momentum,
        (FedProx { proximal_mu }, "proximal_mu") => proximal_mu,
        (FedAdagrad { eta, .. } | FedAdam { eta, .. } | FedYogi { eta, .. }, "eta") => eta,
        (FedAdagrad { tau, .. } | FedAdam { tau, .. } | FedYogi { tau, .. }, "tau") => tau,
        (FedAdam { beta_1, .. } | FedYogi { beta_1, .. }, "beta_1") => beta_1,
        (FedAdam { beta_2, .. } | FedYogi { beta_2, .. }, "beta_2") => beta_2,
        (FedTrimmedAvg { beta }, "beta") => beta,
        (QFedAvg { client_learning_rate, .. }, "client_learning_rate") => client_learning_rate,
        (QFedAvg { q, .. }, "q") => q,
        (Krum { num_malicious } | MultiKrum { num_malicious, .. } | Bulyan { num_malicious }, "num_malicious") => {
            *num_malicious = value as usize;
            return Some(());
        }
        (MultiKrum { num_nodes_to_select, .. }, "num_nodes_to_select") => {
            *num_nodes_to_select = value as usize;
            return Some(());
        }
        _ => return None,
    };
    *place = value;
    Some(())
}

/// Without noise, which differs between implementations; all other parameters are defaults.
fn privacy_of(case: PrivacyCase) -> Fallible<Privacy> {
    let PrivacyCase { kind, clipping_norm, num_sampled } = case;
    let noise_multiplier = 0.0;
    let initial_clipping_norm = clipping_norm;
    let target_clipped_quantile = Privacy::DEFAULT_TARGET_CLIPPED_QUANTILE;
    let clip_norm_lr = Privacy::DEFAULT_CLIP_NORM_LR;
    Ok(match kind.as_str() {
        "server-fixed" => Privacy::ServerFixed { noise_multiplier, clipping_norm, num_sampled },
        "client-fixed" => Privacy::ClientFixed { noise_multiplier, clipping_norm, num_sampled },
        "server-adaptive" => Privacy::ServerAdaptive {
            noise_multiplier,
            num_sampled,
            initial_clipping_norm,
            target_clipped_quantile,
            clip_norm_lr,
            clipped_count_stddev: None,
        },
        "client-adaptive" => Privacy::ClientAdaptive {
            noise_multiplier,
            num_sampled,
            initial_clipping_norm,
            target_clipped_quantile,
            clip_norm_lr,
            clipped_count_stddev: None,
        },
        other => return Err(format!("there is no privacy {other}").into()),
    })
}

fn model(arrays: Vec<ArrayCase>) -> Fallible<Model> {
    let (mut layout, mut data) = (Vec::new(), Vec::new());
    for array in arrays {
        let dtype = Dtype::ALL.iter().find(|dtype| dtype.name() == array.dtype);
        let dtype = *dtype.ok_or_else(|| format!("there is no type {}", array.dtype))?;
        let slot = Slot { name: array.name, dtype, shape: array.shape };
        let bytes = BASE64_STANDARD.decode(array.data)?;
        if bytes.len() != slot.bytes() {
            return Err(format!("array {} has {} bytes instead of {}", slot.name, bytes.len(), slot.bytes()).into());
        }
        layout.push(slot);
        data.push(bytes.into());
    }
    Ok(Model { layout: Arc::new(Layout(layout)), arrays: data })
}

fn arrays(model: &Model) -> Vec<ArrayCase> {
    let array = |(slot, data): (&Slot, &bytes::Bytes)| ArrayCase {
        name: slot.name.clone(),
        dtype: slot.dtype.name().into(),
        shape: slot.shape.clone(),
        data: BASE64_STANDARD.encode(data),
    };
    model.layout.0.iter().zip(&model.arrays).map(array).collect()
}

fn metric_value(case: MetricCase) -> MetricValue {
    match case {
        MetricCase::Int(number) => number.into(),
        MetricCase::Float(number) => number.into(),
        MetricCase::Ints(list) => list.into(),
        MetricCase::Floats(list) => list.into(),
    }
}

fn metric_case(value: &MetricValue) -> MetricCase {
    match value {
        MetricValue::Double(number) => MetricCase::Float(*number),
        MetricValue::DoubleList(list) => MetricCase::Floats(list.vals.clone()),
        MetricValue::Sint64(number) => MetricCase::Int(*number),
        MetricValue::SintList(list) => MetricCase::Ints(list.vals.clone()),
        MetricValue::Uint64(_) | MetricValue::UintList(_) => unreachable!("means are floats"),
    }
}
