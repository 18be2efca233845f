//! Training: its hyperparameters, their sources, and the loop of mini-batch SGD.

use std::collections::BTreeMap;

use trellis_wire::object::ConfigRecord;
use trellis_wire::proto::Scalar;

use crate::app::{AppError, Stop};
use crate::data::Examples;
use crate::network::{Network, Workspace};
use crate::number::Number;
use crate::random::{Purpose, Random};
use crate::settings::Setting;

/// More epochs would not finish within the lifetime of an instruction.
const MAX_EPOCHS: i128 = 100_000;
const MAX_BATCH_SIZE: i128 = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    pub lr: f32,
    pub local_epochs: u32,
    pub batch_size: usize,
    pub momentum: f32,
    pub weight_decay: f32,
    /// The weight of the proximal term, which pulls towards the received parameters (FedProx); 0 disables it.
    pub proximal_mu: f32,
    pub seed: u64,
}

impl Default for Training {
    fn default() -> Self {
        let mut training = Self {
            lr: 0.0,
            local_epochs: 0,
            batch_size: 0,
            momentum: 0.0,
            weight_decay: 0.0,
            proximal_mu: 0.0,
            seed: 0,
        };
        for setting in SETTINGS {
            let number = Number::parse(setting.default).expect("defaults are numbers");
            training.set(setting.name, number).expect("defaults are allowed");
        }
        training
    }
}

pub const SETTINGS: &[Setting] = &[
    Setting { name: "lr", default: "0.1", help: "learning rate, above 0 (also: learning-rate)" },
    Setting { name: "local-epochs", default: "1", help: "passes over the training examples in one round" },
    Setting { name: "batch-size", default: "32", help: "examples per step" },
    Setting {
        name: "momentum",
        default: "0.9",
        help: "at least 0 and below 1; the velocity starts at 0 in each round",
    },
    Setting { name: "weight-decay", default: "0", help: "pull of the weights towards 0" },
    Setting { name: "proximal-mu", default: "0", help: "pull of the weights towards those received (FedProx)" },
    Setting { name: "seed", default: "0", help: "seed of the order of examples and of initial weights" },
];

/// Alternative names.
pub const ALIASES: &[(&str, &str)] = &[("learning-rate", "lr")];

impl Training {
    /// Sets one hyperparameter; the error describes the allowed values.
    pub fn set(&mut self, name: &str, number: Number) -> Result<(), String> {
        let float = number.as_f64();
        let real = |allowed: bool, expected: &str| {
            if float.is_finite() && allowed { Ok(float as f32) } else { Err(expected.to_owned()) }
        };
        let int = |from: i128, to: i128| {
            number
                .as_int()
                .filter(|int| (from..=to).contains(int))
                .ok_or_else(|| format!("a whole number from {from} to {to}"))
        };
        match name {
            "lr" => self.lr = real(float > 0.0, "a number above 0")?,
            "local-epochs" => self.local_epochs = int(1, MAX_EPOCHS)? as u32,
            "batch-size" => self.batch_size = int(1, MAX_BATCH_SIZE)? as usize,
            "momentum" => self.momentum = real((0.0..1.0).contains(&float), "a number from 0 to below 1")?,
            "weight-decay" => self.weight_decay = real(float >= 0.0, "a non-negative number")?,
            "proximal-mu" => self.proximal_mu = real(float >= 0.0, "a non-negative number")?,
            // Negative seeds are allowed.
            "seed" => self.seed = int(i64::MIN.into(), u64::MAX.into())? as u64,
            other => unreachable!("{other} is not in the table"),
        }
        Ok(())
    }

    /// These hyperparameters, overridden by the run config, which is overridden by the config of the instruction.
    pub fn adjusted(
        &self,
        run_config: &BTreeMap<String, Scalar>,
        config: Option<&ConfigRecord>,
    ) -> Result<Self, AppError> {
        let mut training = self.clone();
        for setting in SETTINGS {
            for name in spellings(setting.name) {
                if let Some(value) = run_config.get(name) {
                    let number = Number::from_scalar(value);
                    training.set_from(setting.name, name, number, "the run config")?;
                }
            }
            for name in spellings(setting.name) {
                if let Some(value) = config.and_then(|config| config.0.get(name)) {
                    let number = Number::from_config(value);
                    training.set_from(setting.name, name, number, "the config of the message")?;
                }
            }
        }
        Ok(training)
    }

    fn set_from(&mut self, name: &str, written: &str, number: Option<Number>, place: &str) -> Result<(), AppError> {
        let wrong = |expected| AppError::failed(format!("{written} in {place} must be {expected}"));
        let number = number.ok_or_else(|| wrong("a number".to_owned()))?;
        self.set(name, number).map_err(wrong)
    }
}

/// All names of a setting. The main name comes last, so that it takes precedence.
fn spellings(name: &str) -> impl Iterator<Item = &str> {
    let others = ALIASES.iter().filter(move |(_, meant)| *meant == name).map(|(alias, _)| *alias);
    others.chain(std::iter::once(name))
}

/// Trains the parameters in place. Returns the mean loss over the examples of the last epoch, each measured before the step
/// that uses it. `order` separates the random order of rounds and nodes that share a seed.
pub fn train(
    network: &Network,
    parameters: &mut [f32],
    examples: &Examples,
    training: &Training,
    order: &[u64],
    stop: &Stop,
) -> Result<f64, AppError> {
    let received = parameters.to_vec();
    let mut random = Random::new(training.seed, Purpose::Order, order);
    let mut indices: Vec<usize> = (0..examples.len()).collect();
    let mut velocity = vec![0.0; parameters.len()];
    let mut gradient = vec![0.0; parameters.len()];
    let mut workspace = Workspace::default();
    let mut batch = Examples::empty(examples.features());
    let mut loss = 0.0;
    for epoch in 1..=training.local_epochs {
        random.shuffle(&mut indices);
        loss = 0.0;
        for chosen in indices.chunks(training.batch_size) {
            stop.check()?;
            batch.fill(examples, chosen);
            loss += network.gradient(parameters, &batch, &mut gradient, &mut workspace) * chosen.len() as f64;
            step(parameters, &received, &gradient, &mut velocity, training);
        }
        loss /= examples.len() as f64;
        if !loss.is_finite() || !parameters.iter().all(|parameter| parameter.is_finite()) {
            let reason = format!("the training diverged in epoch {epoch}: a lower lr than {} may help", training.lr);
            return Err(AppError::failed(reason));
        }
    }
    Ok(loss)
}

/// One step of SGD with momentum, weight decay and the proximal term.
fn step(parameters: &mut [f32], received: &[f32], gradient: &[f32], velocity: &mut [f32], training: &Training) {
    let Training { lr, momentum, weight_decay, proximal_mu, .. } = *training;
    let numbers = parameters.iter_mut().zip(velocity).zip(gradient.iter().zip(received));
    for ((parameter, velocity), (gradient, received)) in numbers {
        let pull = gradient + weight_decay * *parameter + proximal_mu * (*parameter - received);
        *velocity = momentum * *velocity + pull;
        *parameter -= lr * *velocity;
    }
}

#[cfg(test)]
mod tests {
    use trellis_wire::object::{ConfigValue, Entries};
    use trellis_wire::proto::scalar;

    use super::*;
    use crate::data::digits::digits;
    use crate::data::partition::Scheme;
    use crate::data::shard::{Division, Partition, shard};

    fn config(entries: &[(&str, ConfigValue)]) -> ConfigRecord {
        let mut record = Entries::default();
        entries.iter().for_each(|(name, value)| record.insert(*name, value.clone()));
        ConfigRecord(record)
    }

    fn run(entries: &[(&str, scalar::Scalar)]) -> BTreeMap<String, Scalar> {
        let scalar = |value: &scalar::Scalar| Scalar { scalar: Some(value.clone()) };
        entries.iter().map(|(name, value)| ((*name).to_owned(), scalar(value))).collect()
    }

    #[test]
    fn the_instruction_overrides_the_run_and_the_run_overrides_settings() {
        let settings = Training { lr: 0.5, batch_size: 7, ..Training::default() };
        let run = run(&[
            ("learning-rate", scalar::Scalar::Double(0.25)),
            ("local-epochs", scalar::Scalar::Sint64(4)),
            ("seed", scalar::Scalar::Sint64(-1)),
            ("momentum", scalar::Scalar::String("0.5".into())),
            ("something-else", scalar::Scalar::Bool(true)),
        ]);
        let adjusted = settings.adjusted(&run, None).unwrap();
        assert_eq!((adjusted.lr, adjusted.local_epochs, adjusted.batch_size), (0.25, 4, 7));
        assert_eq!((adjusted.seed, adjusted.momentum), (u64::MAX, 0.5));
        let message = config(&[("lr", 0.125.into()), ("proximal-mu", 1i64.into()), ("local-epochs", 2.0.into())]);
        let adjusted = settings.adjusted(&run, Some(&message)).unwrap();
        assert_eq!((adjusted.lr, adjusted.local_epochs, adjusted.proximal_mu), (0.125, 2, 1.0));
    }

    #[test]
    fn invalid_numbers_are_refused_with_their_origin() {
        for (name, value, expected) in [
            ("lr", ConfigValue::from(0.0), "lr in the config of the message must be a number above 0"),
            ("lr", f64::NAN.into(), "lr in the config of the message must be a number above 0"),
            ("lr", true.into(), "lr in the config of the message must be a number"),
            (
                "local-epochs",
                1.5.into(),
                "local-epochs in the config of the message must be a whole number from 1 to 100000",
            ),
            ("momentum", 1i64.into(), "momentum in the config of the message must be a number from 0 to below 1"),
            ("proximal-mu", (-0.1).into(), "proximal-mu in the config of the message must be a non-negative number"),
        ] {
            let refused = Training::default().adjusted(&BTreeMap::new(), Some(&config(&[(name, value)])));
            assert_eq!(refused, Err(AppError::failed(expected)));
        }
        let refused = Training::default().adjusted(&run(&[("batch-size", scalar::Scalar::Sint64(0))]), None);
        let expected = "batch-size in the run config must be a whole number from 1 to 1048576";
        assert_eq!(refused, Err(AppError::failed(expected)));
    }

    fn all_digits(data_seed: u64) -> (Examples, Examples) {
        let division = Division { scheme: Scheme::Iid, seed: data_seed, test_fraction: 0.2, standardise: false };
        let shard = shard(&digits(), &division, Partition { id: 0, of: 1 }).unwrap();
        (shard.train, shard.test)
    }

    /// A single split of the small test set varies too much, so the accuracy is averaged over several.
    #[test]
    fn both_networks_learn_the_digits() {
        const DIVISIONS: u64 = 4;
        let stop = Stop::default();
        for (network, expected) in [(Network::logistic(64, 10), 0.94), (Network::mlp(64, 64, 10), 0.95)] {
            let accuracy = |data_seed| {
                let (examples, test) = all_digits(data_seed);
                let mut parameters = network.fresh(1);
                let mut round = |number| {
                    let training = Training::default();
                    train(&network, &mut parameters, &examples, &training, &[0, number], &stop).unwrap()
                };
                let losses: Vec<f64> = (0..20).map(&mut round).collect();
                assert!(losses[0] > 2.0 * losses[1] && losses[1] > 2.0 * losses[19], "{losses:?}");
                network.evaluate(&parameters, &test, &stop).unwrap().accuracy
            };
            let mean = (0..DIVISIONS).map(accuracy).sum::<f64>() / DIVISIONS as f64;
            assert!(mean > expected, "{mean}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bits() {
        let (examples, _) = all_digits(0);
        let network = Network::mlp(64, 16, 10);
        let trained = |seed: u64, order: &[u64]| {
            let mut parameters = network.fresh(1);
            let training = Training { seed, ..Training::default() };
            train(&network, &mut parameters, &examples, &training, order, &Stop::default()).unwrap();
            parameters
        };
        assert_eq!(trained(1, &[0, 1]), trained(1, &[0, 1]));
        assert_ne!(trained(1, &[0, 1]), trained(2, &[0, 1]));
        assert_ne!(trained(1, &[0, 1]), trained(1, &[0, 2]), "each round has its own order");
    }

    #[test]
    fn the_proximal_term_and_weight_decay_pull_the_weights() {
        let (examples, _) = all_digits(0);
        let network = Network::mlp(64, 16, 10);
        let fresh = network.fresh(1);
        let trained = |training: Training| {
            let mut parameters = fresh.clone();
            train(&network, &mut parameters, &examples, &training, &[], &Stop::default()).unwrap();
            parameters
        };
        let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt();
        let free = distance(&trained(Training::default()), &fresh);
        let held = distance(&trained(Training { proximal_mu: 1.0, ..Training::default() }), &fresh);
        assert!(held < free / 2.0, "{held} {free}");
        let zero = vec![0.0; fresh.len()];
        let plain = distance(&trained(Training::default()), &zero);
        let decayed = distance(&trained(Training { weight_decay: 0.05, ..Training::default() }), &zero);
        assert!(decayed < plain, "{decayed} {plain}");
    }

    #[test]
    fn one_step_matches_the_formula() {
        let training = Training { lr: 0.5, momentum: 0.5, weight_decay: 0.25, proximal_mu: 2.0, ..Training::default() };
        let (mut parameters, mut velocity) = ([2.0], [1.0]);
        step(&mut parameters, &[1.5], &[3.0], &mut velocity, &training);
        // 3 + 0.25 * 2 + 2 * (2 - 1.5) = 4.5; 0.5 * 1 + 4.5 = 5; 2 - 0.5 * 5 = -0.5
        assert_eq!((parameters, velocity), ([-0.5], [5.0]));
    }

    #[test]
    fn divergence_is_an_error_and_stop_is_honoured() {
        let (examples, _) = all_digits(0);
        let network = Network::mlp(64, 16, 10);
        let training = Training { lr: 1e30, ..Training::default() };
        let mut parameters = network.fresh(1);
        let error = train(&network, &mut parameters, &examples, &training, &[], &Stop::default()).unwrap_err();
        assert!(error.to_string().starts_with("the training diverged in epoch 1: a lower lr than"), "{error}");
        let stop = Stop::default();
        stop.clone().stop();
        let stopped = train(&network, &mut network.fresh(1), &examples, &Training::default(), &[], &stop);
        assert_eq!(stopped, Err(AppError::Stopped));
    }
}
