//! The table of all settings: names, aliases, types and defaults. Help, command lines and the check of a run config use it.

use trellis_strategy::Strategy;

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// The key in a run config, and the flag (with `--`) on a command line.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    pub kind: Kind,
    /// The default as text; empty if there is none, or if other settings determine it.
    pub default: &'static str,
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Switch,
    /// A whole number, at least `min`.
    Count {
        min: u64,
    },
    Number(Range),
    Text,
    Choice(&'static [&'static str]),
}

/// A range of finite numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub low: f64,
    pub high: f64,
    /// Whether the bounds are included.
    pub with_low: bool,
    pub with_high: bool,
}

impl Range {
    const fn new(low: f64, with_low: bool, high: f64, with_high: bool) -> Range {
        Range { low, high, with_low, with_high }
    }

    pub fn contains(self, number: f64) -> bool {
        let above = number > self.low || self.with_low && number == self.low;
        let below = number < self.high || self.with_high && number == self.high;
        number.is_finite() && above && below
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.low.is_finite(), self.high.is_finite()) {
            (false, _) => f.write_str("a number"),
            (true, false) => write!(f, "a number {} {}", if self.with_low { "from" } else { "above" }, self.low),
            (true, true) => {
                let (from, to) =
                    (if self.with_low { "from" } else { "above" }, if self.with_high { "to" } else { "below" });
                write!(f, "a number {from} {} {to} {}", self.low, self.high)
            }
        }
    }
}

const ANY: Kind = Kind::Number(Range::new(f64::NEG_INFINITY, false, f64::INFINITY, false));
const POSITIVE: Kind = Kind::Number(Range::new(0.0, false, f64::INFINITY, false));
const NOT_NEGATIVE: Kind = Kind::Number(Range::new(0.0, true, f64::INFINITY, false));
const SHARE: Kind = Kind::Number(Range::new(0.0, true, 1.0, true));
const BELOW_ONE: Kind = Kind::Number(Range::new(0.0, true, 1.0, false));
const BELOW_HALF: Kind = Kind::Number(Range::new(0.0, true, 0.5, false));
const INSIDE_ONE: Kind = Kind::Number(Range::new(0.0, false, 1.0, false));

pub(super) const DP_MODES: &[&str] = &["off", "server-fixed", "server-adaptive", "client-fixed", "client-adaptive"];

macro_rules! settings {
    ($($name:literal $([$($alias:literal),+])?: $kind:expr, $default:literal, $help:literal;)+) => {
        /// All settings, in the order of the help text.
        pub static SETTINGS: &[Setting] = &[
            $(Setting { name: $name, aliases: &[$($($alias),+)?], kind: $kind, default: $default, help: $help },)+
        ];
    };
}

settings! {
    "strategy": Kind::Choice(Strategy::NAMES), "FedAvg", "how the replies of a round are aggregated";
    "num-server-rounds" ["rounds"]: Kind::Count { min: 1 }, "3", "rounds of training";
    "fraction-train" ["fraction-fit"]: SHARE, "1.0", "share of the online nodes that train in a round; 0: no training";
    "fraction-evaluate": SHARE, "1.0", "share of the online nodes that evaluate in a round; 0: no evaluation";
    "min-train-nodes" ["min-fit-clients"]: Kind::Count { min: 1 }, "2", "minimum number of nodes that train";
    "min-evaluate-nodes" ["min-evaluate-clients"]: Kind::Count { min: 1 }, "2", "minimum number of nodes that evaluate";
    "min-available-nodes" ["min-available-clients"]: Kind::Count { min: 1 }, "2", "number of online nodes that a round waits for";
    "over-selection": NOT_NEGATIVE, "0.0", "share of nodes asked beyond those needed, so that a round need not wait for the slowest";
    "round-timeout": POSITIVE, "3600", "seconds after which a phase of a round ends without the missing replies";
    "accept-failures": Kind::Switch, "true", "whether a round with failed nodes has a result";
    "evaluate-every": Kind::Count { min: 1 }, "1", "rounds between two evaluations; the last round is always evaluated";
    "weighted-by-key": Kind::Text, "num-examples", "the metric by which replies are weighted";
    "seed": Kind::Text, "", "a whole number, the seed of sampling and noise; random by default";
    "non-finite": Kind::Choice(&["reject", "fail"]), "reject", "a reply with NaN or infinite numbers: ignore it, or end the run";
    "compat": Kind::Switch, "false", "behave as Flower does also where Flower departs from the papers";
    "proximal-mu": NOT_NEGATIVE, "1.0", "FedProx: weight of the proximal term";
    "server-lr" ["eta"]: POSITIVE, "", "FedAvgM (1.0), FedAdagrad and FedAdam (0.1), FedYogi (0.01): the server's learning rate";
    "client-lr" ["eta-l"]: POSITIVE, "", "QFedAvg (0.1): the clients' learning rate";
    "server-momentum": BELOW_ONE, "0.0", "FedAvgM: momentum";
    "beta-1": BELOW_ONE, "0.9", "FedAdam, FedYogi: decay of the first moment";
    "beta-2": BELOW_ONE, "0.99", "FedAdam, FedYogi: decay of the second moment";
    "tau": POSITIVE, "0.001", "FedAdagrad, FedAdam, FedYogi: how adaptive they are";
    "num-malicious" ["num-malicious-nodes"]: Kind::Count { min: 0 }, "0", "Krum, MultiKrum, Bulyan: malicious nodes to tolerate";
    "num-nodes-to-select": Kind::Count { min: 1 }, "1", "MultiKrum: replies that are averaged";
    "trim-beta": BELOW_HALF, "0.2", "FedTrimmedAvg: share that is trimmed at each end";
    "q": NOT_NEGATIVE, "0.1", "QFedAvg: additional weight of nodes with a high loss";
    "train-loss-key": Kind::Text, "train_loss", "QFedAvg, diagnostics: the metric that is the training loss";
    "min-completion-rate-train": SHARE, "0.5", "FaultTolerantFedAvg: share of the nodes that must train";
    "min-completion-rate-evaluate": SHARE, "0.5", "FaultTolerantFedAvg: share of the nodes that must evaluate";
    "dp": Kind::Choice(DP_MODES), "off", "differential privacy: where updates are clipped, and whether the norm adapts";
    "dp-noise-multiplier": NOT_NEGATIVE, "", "noise, as a multiple of the clipping norm; required with dp";
    "dp-clipping-norm": POSITIVE, "", "maximum norm of an update; required if fixed (adaptive: the initial one, 0.1)";
    "dp-target-quantile": SHARE, "0.5", "share of the updates that an adaptive norm does not clip";
    "dp-clip-norm-lr": POSITIVE, "0.2", "how fast an adaptive norm changes";
    "dp-clipped-count-stddev": NOT_NEGATIVE, "", "noise on the count of clipped updates; a twentieth of the nodes by default";
    "dp-delta": INSIDE_ONE, "1e-5", "the delta for which epsilon is reported";
    "dp-max-epsilon": POSITIVE, "", "privacy budget: end before a round that would exceed it";
    "checkpoint-enabled": Kind::Switch, "true", "save checkpoints of the model";
    "checkpoint-interval": Kind::Count { min: 1 }, "5", "rounds between two checkpoints; the last round is always saved";
    "checkpoint-keep": Kind::Count { min: 1 }, "3", "number of newest checkpoints to keep";
    "checkpoint-path": Kind::Text, "", "directory of checkpoints; on a SuperLink below its models, which is also the default";
    "resume": Kind::Text, "", "resume from a checkpoint: a run id or a directory; on a SuperLink: below its models";
    "initial-model": Kind::Text, "", "start with the model in this file (.safetensors or .npz); on a SuperLink: below its models";
    "target-metric": Kind::Text, "", "end when this metric has reached target-value";
    "target-value": ANY, "", "see target-metric; a loss or an error must fall to it, any other metric must rise to it";
    "patience": Kind::Count { min: 0 }, "0", "end after this number of rounds without improvement; 0: never";
    "monitor": Kind::Text, "", "the metric for patience; a loss by default";
}

/// The setting with this name or alias.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name || setting.aliases.contains(&name))
}
