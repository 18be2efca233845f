//! The settings of a training, read from a run config or a command line and validated; all errors are reported at once. Keys
//! that are not settings belong to the app and are ignored.

mod read;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use trellis_diagnostic::Diagnostic;
use trellis_strategy::{Privacy, Sampling, Strategy};
use trellis_wire::proto;

use self::read::Reader;
pub use self::read::Value;
pub use self::table::{Kind, Range, SETTINGS, Setting, find};

/// The requested training.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub strategy: Strategy,
    pub rounds: u64,
    pub train: Sampling,
    pub evaluate: Sampling,
    pub evaluate_every: u64,
    pub round_timeout: Duration,
    pub accept_failures: bool,
    pub weighted_by: String,
    pub train_loss_key: String,
    /// `None`: random.
    pub seed: Option<u64>,
    pub non_finite: NonFinite,
    pub compat: bool,
    pub dp: Option<Dp>,
    pub checkpoints: Option<Checkpoints>,
    /// A run id or a directory.
    pub resume: Option<String>,
    pub initial_model: Option<PathBuf>,
    pub target: Option<Target>,
    pub patience: Option<Patience>,
    /// Notes about given settings without effect.
    pub notes: Vec<String>,
}

/// What to do with a reply that contains non-finite numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonFinite {
    Reject,
    Fail,
}

/// Differential privacy. The number of sampled nodes is known at the start of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Dp {
    mode: String,
    noise_multiplier: f64,
    clipping_norm: f64,
    target_quantile: f64,
    clip_norm_lr: f64,
    clipped_count_stddev: Option<f64>,
    pub delta: f64,
    /// The privacy budget: a round that would exceed it does not start.
    pub max_epsilon: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoints {
    pub every: u64,
    pub keep: usize,
    /// `None`: the SuperLink's directory of models.
    pub directory: Option<PathBuf>,
}

/// Stop when a metric reaches a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub metric: String,
    pub value: f64,
}

/// Stop when a metric does not improve for some rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patience {
    pub rounds: u64,
    /// `None`: the first loss.
    pub metric: Option<String>,
}

/// Adds default values for settings that the configuration does not have under any name; returns their names. Keys that are
/// not settings are ignored: an app does not expect keys of other apps.
pub fn complete(
    config: &mut BTreeMap<String, proto::Scalar>,
    defaults: &BTreeMap<String, proto::Scalar>,
) -> Vec<&'static str> {
    let mut added = Vec::new();
    for (name, value) in defaults {
        let Some(setting) = find(name) else { continue };
        let is_there = setting.aliases.iter().chain([&setting.name]).any(|name| config.contains_key(*name));
        if !is_there {
            config.insert(setting.name.to_owned(), value.clone());
            added.push(setting.name);
        }
    }
    added
}

impl Settings {
    /// Reads the configuration of a run.
    pub fn read(config: &BTreeMap<String, proto::Scalar>) -> Result<Settings, Vec<Diagnostic>> {
        let mut reader = Reader::new(config);
        let (train, evaluate) = sampling(&reader);
        let strategy = strategy(&reader);
        let nodes = min_nodes(&train);
        if let Err(problems) = strategy.check(nodes) {
            let errors =
                problems.into_iter().map(|what| Diagnostic::error("strategy", what, "change one of the settings"));
            reader.problems.extend(errors);
        }
        let dp = dp(&mut reader, &strategy, nodes);
        let settings = Settings {
            rounds: reader.count("num-server-rounds"),
            train,
            evaluate,
            evaluate_every: reader.count("evaluate-every").max(1),
            round_timeout: Duration::try_from_secs_f64(reader.number("round-timeout").unwrap_or(3600.0))
                .unwrap_or(Duration::MAX),
            accept_failures: reader.switch("accept-failures"),
            weighted_by: reader.text("weighted-by-key").unwrap_or_default(),
            train_loss_key: reader.text("train-loss-key").unwrap_or_default(),
            seed: seed(&mut reader),
            non_finite: match reader.text("non-finite").as_deref() {
                Some("fail") => NonFinite::Fail,
                _ => NonFinite::Reject,
            },
            compat: reader.switch("compat"),
            dp,
            checkpoints: reader.switch("checkpoint-enabled").then(|| Checkpoints {
                every: reader.count("checkpoint-interval").max(1),
                keep: usize::try_from(reader.count("checkpoint-keep")).unwrap_or(usize::MAX),
                directory: reader.text("checkpoint-path").map(PathBuf::from),
            }),
            resume: reader.text("resume"),
            initial_model: reader.text("initial-model").map(PathBuf::from),
            target: target(&mut reader),
            patience: Some(reader.count("patience"))
                .filter(|rounds| *rounds > 0)
                .map(|rounds| Patience { rounds, metric: reader.text("monitor") }),
            notes: [without_effect(&reader, &strategy), served_elsewhere(config)].concat(),
            strategy,
        };
        if reader.problems.is_empty() { Ok(settings) } else { Err(reader.problems) }
    }

    /// The privacy of a round with this many sampled nodes.
    pub fn privacy(&self, num_sampled: usize) -> Option<Privacy> {
        self.dp.as_ref().map(|dp| dp.privacy(num_sampled))
    }
}

/// The sampling of training and of evaluation.
fn sampling(reader: &Reader) -> (Sampling, Sampling) {
    let count = |name: &str| usize::try_from(reader.count(name)).unwrap_or(usize::MAX);
    let min_available = count("min-available-nodes");
    let over_selection = reader.number("over-selection").unwrap_or_default();
    let phase = |fraction: &str, min: &str| Sampling {
        fraction: reader.number(fraction).unwrap_or(1.0),
        min_nodes: count(min),
        min_available,
        over_selection,
    };
    (phase("fraction-train", "min-train-nodes"), phase("fraction-evaluate", "min-evaluate-nodes"))
}

/// The minimum number of training nodes.
fn min_nodes(train: &Sampling) -> usize {
    let online = train.min_available.max(train.min_nodes);
    ((online as f64 * train.fraction) as usize).max(train.min_nodes)
}

fn strategy(reader: &Reader) -> Strategy {
    let name = reader.text("strategy").unwrap_or_default();
    let mut strategy = Strategy::with_defaults(&name).unwrap_or(Strategy::FedAvg);
    let set = |place: &mut f64, name: &str| {
        if reader.is_given(name) {
            *place = reader.number(name).unwrap_or(*place);
        }
    };
    let set_count = |place: &mut usize, name: &str| {
        if reader.is_given(name) {
            *place = usize::try_from(reader.count(name)).unwrap_or(usize::MAX);
        }
    };
    match &mut strategy {
        Strategy::FedAvg | Strategy::FedMedian | Strategy::FedXgbBagging | Strategy::FedXgbCyclic => {}
        Strategy::FedAvgM { server_learning_rate, server_momentum } => {
            set(server_learning_rate, "server-lr");
            set(server_momentum, "server-momentum");
        }
        Strategy::FedProx { proximal_mu } => set(proximal_mu, "proximal-mu"),
        Strategy::FedAdagrad { eta, tau } => {
            set(eta, "server-lr");
            set(tau, "tau");
        }
        Strategy::FedAdam { eta, beta_1, beta_2, tau } | Strategy::FedYogi { eta, beta_1, beta_2, tau } => {
            set(eta, "server-lr");
            set(beta_1, "beta-1");
            set(beta_2, "beta-2");
            set(tau, "tau");
        }
        Strategy::FedTrimmedAvg { beta } => set(beta, "trim-beta"),
        Strategy::Krum { num_malicious } | Strategy::Bulyan { num_malicious } => {
            set_count(num_malicious, "num-malicious");
        }
        Strategy::MultiKrum { num_malicious, num_nodes_to_select } => {
            set_count(num_malicious, "num-malicious");
            set_count(num_nodes_to_select, "num-nodes-to-select");
        }
        Strategy::QFedAvg { client_learning_rate, q } => {
            set(client_learning_rate, "client-lr");
            set(q, "q");
        }
        Strategy::FaultTolerantFedAvg { min_completion_rate_train, min_completion_rate_evaluate } => {
            set(min_completion_rate_train, "min-completion-rate-train");
            set(min_completion_rate_evaluate, "min-completion-rate-evaluate");
        }
    }
    strategy
}

/// Notes about keys of other ServerApps that have a replacement here.
fn served_elsewhere(config: &BTreeMap<String, proto::Scalar>) -> Vec<String> {
    let given = |name: &&&str| config.contains_key(**name);
    let note = |name: &&str| format!("{name} has no effect: the SuperLink serves the metrics of all runs, at /metrics");
    ["metrics-enabled", "metrics-port"].iter().filter(given).map(note).collect()
}

/// Notes about parameters of other strategies. Not errors: the same config may be tried with several strategies.
fn without_effect(reader: &Reader, strategy: &Strategy) -> Vec<String> {
    const ADAPTIVE: &[&str] = &["server-lr", "beta-1", "beta-2", "tau", "client-lr"];
    let own: &[&str] = match strategy {
        Strategy::FedAvgM { .. } => &["server-lr", "server-momentum"],
        Strategy::FedProx { .. } => &["proximal-mu"],
        Strategy::FedAdagrad { .. } | Strategy::FedAdam { .. } | Strategy::FedYogi { .. } => ADAPTIVE,
        Strategy::FedTrimmedAvg { .. } => &["trim-beta"],
        Strategy::Krum { .. } | Strategy::Bulyan { .. } => &["num-malicious"],
        Strategy::MultiKrum { .. } => &["num-malicious", "num-nodes-to-select"],
        Strategy::QFedAvg { .. } => &["client-lr", "q"],
        Strategy::FaultTolerantFedAvg { .. } => &["min-completion-rate-train", "min-completion-rate-evaluate"],
        Strategy::FedAvg | Strategy::FedMedian | Strategy::FedXgbBagging | Strategy::FedXgbCyclic => &[],
    };
    const ALL: &[&str] = &[
        "proximal-mu",
        "server-lr",
        "client-lr",
        "server-momentum",
        "beta-1",
        "beta-2",
        "tau",
        "num-malicious",
        "num-nodes-to-select",
        "trim-beta",
        "q",
        "min-completion-rate-train",
        "min-completion-rate-evaluate",
    ];
    let idle = ALL.iter().filter(|name| reader.is_given(name) && !own.contains(name));
    idle.map(|name| format!("{name} has no effect with {}", strategy.name())).collect()
}

fn seed(reader: &mut Reader) -> Option<u64> {
    let text = reader.text("seed")?;
    // Negative seeds are allowed.
    let seed = text.parse::<u64>().ok().or_else(|| text.parse::<i64>().ok().map(|seed| seed as u64));
    if seed.is_none() {
        let what = format!("{text:?} cannot be used");
        reader.problems.push(Diagnostic::error("seed", what, "write a whole number, or leave it out"));
    }
    seed
}

fn target(reader: &mut Reader) -> Option<Target> {
    match (reader.text("target-metric"), reader.number("target-value")) {
        (Some(metric), Some(value)) => Some(Target { metric, value }),
        (None, None) => None,
        (Some(_), None) => {
            reader.required("target-value", "target-metric is given without it");
            None
        }
        (None, Some(_)) => {
            let advice = "give the name of a metric, or leave target-value out";
            reader.problems.push(Diagnostic::error(
                "target-metric",
                "it is missing: target-value is given without it",
                advice,
            ));
            None
        }
    }
}

fn dp(reader: &mut Reader, strategy: &Strategy, nodes: usize) -> Option<Dp> {
    let Some(mode) = reader.text("dp").filter(|mode| mode != "off") else {
        if reader.is_given("dp-max-epsilon") {
            let (what, advice) = ("it has no effect without differential privacy", "give dp too, or leave it out");
            reader.problems.push(Diagnostic::error("dp-max-epsilon", what, advice));
        }
        return None;
    };
    if strategy.is_trees() {
        let what = format!("{} has trees, and noise is for numbers", strategy.name());
        reader.problems.push(Diagnostic::error("dp", what, "leave it out, or take another strategy"));
    }
    let noise_multiplier = reader.required("dp-noise-multiplier", "privacy is as strong as its noise");
    let clipping_norm = match mode.ends_with("fixed") {
        true => reader.required("dp-clipping-norm", "it is the limit of an update's norm"),
        false => Some(reader.number("dp-clipping-norm").unwrap_or(Privacy::DEFAULT_INITIAL_CLIPPING_NORM)),
    };
    let dp = Dp {
        mode,
        noise_multiplier: noise_multiplier?,
        clipping_norm: clipping_norm?,
        target_quantile: reader.number("dp-target-quantile")?,
        clip_norm_lr: reader.number("dp-clip-norm-lr")?,
        clipped_count_stddev: reader.number("dp-clipped-count-stddev"),
        delta: reader.number("dp-delta")?,
        max_epsilon: reader.number("dp-max-epsilon"),
    };
    if let Err(problems) = dp.privacy(nodes).check() {
        reader
            .problems
            .extend(problems.into_iter().map(|what| Diagnostic::error("dp", what, "change one of the settings")));
    }
    Some(dp)
}

impl Dp {
    fn privacy(&self, num_sampled: usize) -> Privacy {
        let Dp { noise_multiplier, clipping_norm, clip_norm_lr, clipped_count_stddev, .. } = *self;
        let (initial_clipping_norm, target_clipped_quantile) = (clipping_norm, self.target_quantile);
        match self.mode.as_str() {
            "server-fixed" => Privacy::ServerFixed { noise_multiplier, clipping_norm, num_sampled },
            "client-fixed" => Privacy::ClientFixed { noise_multiplier, clipping_norm, num_sampled },
            "server-adaptive" => Privacy::ServerAdaptive {
                noise_multiplier,
                num_sampled,
                initial_clipping_norm,
                target_clipped_quantile,
                clip_norm_lr,
                clipped_count_stddev,
            },
            _ => Privacy::ClientAdaptive {
                noise_multiplier,
                num_sampled,
                initial_clipping_norm,
                target_clipped_quantile,
                clip_norm_lr,
                clipped_count_stddev,
            },
        }
    }

    pub fn noise_multiplier(&self) -> f64 {
        self.noise_multiplier
    }

    #[cfg(test)]
    pub fn for_tests(noise_multiplier: f64, delta: f64, max_epsilon: Option<f64>) -> Dp {
        Dp {
            mode: "server-fixed".to_owned(),
            noise_multiplier,
            clipping_norm: 1.0,
            target_quantile: 0.5,
            clip_norm_lr: 0.2,
            clipped_count_stddev: None,
            delta,
            max_epsilon,
        }
    }
}

impl std::fmt::Display for Dp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Dp { mode, noise_multiplier, clipping_norm, .. } = self;
        write!(f, "{mode}, noise multiplier {noise_multiplier}, clipping norm {clipping_norm}")
    }
}

#[cfg(test)]
mod tests;
