//! Every setting of a training: its name, its other names, what it may be, what it is by default. This table is what help,
//! command lines and the check of a run config go by.

use trellis_strategy::Strategy;

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// As it stands in a run config, and behind `--` on a command line.
    pub name: &'static str,
    /// Other names that are in use for it.
    pub aliases: &'static [&'static str],
    pub kind: Kind,
    /// As it would be written; empty: not set, or decided by other settings.
    pub default: &'static str,
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Switch,
    /// A whole number from `least` up.
    Count {
        least: u64,
    },
    Number(Range),
    Text,
    Choice(&'static [&'static str]),
}

/// Numbers that are allowed. All are finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub low: f64,
    pub high: f64,
    /// Whether the ends themselves are allowed.
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
        /// All settings, in the order in which help shows them.
        pub static SETTINGS: &[Setting] = &[
            $(Setting { name: $name, aliases: &[$($($alias),+)?], kind: $kind, default: $default, help: $help },)+
        ];
    };
}

settings! {
    "strategy": Kind::Choice(Strategy::NAMES), "FedAvg", "how the replies of a round become the next model";
    "num-server-rounds" ["rounds"]: Kind::Count { least: 1 }, "3", "rounds of training";
    "fraction-train" ["fraction-fit"]: SHARE, "1.0", "share of the online nodes that train in a round; 0: no training";
    "fraction-evaluate": SHARE, "1.0", "share of the online nodes that evaluate in a round; 0: no evaluation";
    "min-train-nodes" ["min-fit-clients"]: Kind::Count { least: 1 }, "2", "at least so many nodes train";
    "min-evaluate-nodes" ["min-evaluate-clients"]: Kind::Count { least: 1 }, "2", "at least so many nodes evaluate";
    "min-available-nodes" ["min-available-clients"]: Kind::Count { least: 1 }, "2", "a round begins when so many are online";
    "over-selection": NOT_NEGATIVE, "0.0", "share of nodes asked beyond those needed, so that the slowest are not waited for";
    "round-timeout": POSITIVE, "3600", "seconds after which a phase of a round goes on without those who have not answered";
    "accept-failures": Kind::Switch, "true", "a round in which nodes failed counts all the same";
    "evaluate-every": Kind::Count { least: 1 }, "1", "evaluate after every so many rounds, and after the last";
    "weighted-by-key": Kind::Text, "num-examples", "the metric by which replies are weighed";
    "seed": Kind::Text, "", "a whole number that decides sampling and noise; drawn at random by default";
    "non-finite": Kind::Choice(&["reject", "fail"]), "reject", "a reply with numbers that are not finite: leave it out, or end the run";
    "compat": Kind::Switch, "false", "do as Flower does also where Flower departs from the papers";
    "proximal-mu": NOT_NEGATIVE, "1.0", "FedProx: pull of the clients' weights towards the model";
    "server-lr" ["eta"]: POSITIVE, "", "FedAvgM (1.0), FedAdagrad and FedAdam (0.1), FedYogi (0.01): the server's learning rate";
    "client-lr" ["eta-l"]: POSITIVE, "", "QFedAvg (0.1): the clients' learning rate";
    "server-momentum": BELOW_ONE, "0.0", "FedAvgM: momentum";
    "beta-1": BELOW_ONE, "0.9", "FedAdam, FedYogi: decay of the first moment";
    "beta-2": BELOW_ONE, "0.99", "FedAdam, FedYogi: decay of the second moment";
    "tau": POSITIVE, "0.001", "FedAdagrad, FedAdam, FedYogi: how adaptive they are";
    "num-malicious" ["num-malicious-nodes"]: Kind::Count { least: 0 }, "0", "Krum, MultiKrum, Bulyan: nodes that may lie";
    "num-nodes-to-select": Kind::Count { least: 1 }, "1", "MultiKrum: replies that are averaged";
    "trim-beta": BELOW_HALF, "0.2", "FedTrimmedAvg: share that is cut off at each end";
    "q": NOT_NEGATIVE, "0.1", "QFedAvg: how much more nodes with a high loss count";
    "train-loss-key": Kind::Text, "train_loss", "QFedAvg, diagnostics: the metric that is the training loss";
    "min-completion-rate-train": SHARE, "0.5", "FaultTolerantFedAvg: share of the nodes that must train";
    "min-completion-rate-evaluate": SHARE, "0.5", "FaultTolerantFedAvg: share of the nodes that must evaluate";
    "dp": Kind::Choice(DP_MODES), "off", "differential privacy: who clips updates, and whether the limit adapts";
    "dp-noise-multiplier": NOT_NEGATIVE, "", "noise, as a multiple of the clipping norm; must be given with dp";
    "dp-clipping-norm": POSITIVE, "", "limit of an update's norm; must be given with a fixed one (adaptive: the first, 0.1)";
    "dp-target-quantile": SHARE, "0.5", "share of the updates that an adaptive limit leaves as they are";
    "dp-clip-norm-lr": POSITIVE, "0.2", "how fast an adaptive limit moves";
    "dp-clipped-count-stddev": NOT_NEGATIVE, "", "noise on the count of clipped updates; a twentieth of the nodes by default";
    "dp-delta": INSIDE_ONE, "1e-5", "the delta at which epsilon is told";
    "dp-max-epsilon": POSITIVE, "", "privacy budget: end before a round that would make epsilon larger";
    "checkpoint-enabled": Kind::Switch, "true", "keep checkpoints of the model";
    "checkpoint-interval": Kind::Count { least: 1 }, "5", "after every so many rounds, and after the last";
    "checkpoint-keep": Kind::Count { least: 1 }, "3", "the newest ones that are kept";
    "checkpoint-path": Kind::Text, "", "directory of checkpoints, on a SuperLink below its models; these themselves by default";
    "resume": Kind::Text, "", "go on from a checkpoint: the id of a run, or a directory; on a SuperLink: below its models";
    "initial-model": Kind::Text, "", "begin with the model in this file (.safetensors or .npz); on a SuperLink: below its models";
    "target-metric": Kind::Text, "", "end when this metric has reached target-value";
    "target-value": ANY, "", "see target-metric; a loss or an error is to fall below it, anything else to rise above";
    "patience": Kind::Count { least: 0 }, "0", "end after so many rounds without improvement; 0: never";
    "monitor": Kind::Text, "", "the metric that patience looks at; a loss by default";
}

/// The setting that is called so, by its name or another.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name || setting.aliases.contains(&name))
}

/// The setting that somebody may have meant by a name that is none.
pub fn nearest(name: &str) -> Option<&'static str> {
    let plain = name.to_lowercase().replace('_', "-");
    let names = SETTINGS.iter().flat_map(|setting| setting.aliases.iter().chain([&setting.name]));
    let (distance, nearest) =
        names.map(|known| (strsim::osa_distance(&plain, known), *known)).min_by_key(|(distance, _)| *distance)?;
    // A third of the letters may be wrong, of short words not even one.
    (distance <= plain.chars().count() / 3).then_some(nearest)
}
