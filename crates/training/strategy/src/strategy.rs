//! The strategies with their parameters, and what each requires.
//!
//! Names, parameters and defaults are those of `flwr.serverapp.strategy`.

#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// The mean of the replies, weighted by examples.
    FedAvg,
    /// The mean is a direction: the model moves towards it with a learning rate and momentum.
    FedAvgM {
        server_learning_rate: f64,
        server_momentum: f64,
    },
    /// FedAvg; clients add a proximal term.
    FedProx {
        proximal_mu: f64,
    },
    FedAdagrad {
        eta: f64,
        tau: f64,
    },
    FedAdam {
        eta: f64,
        beta_1: f64,
        beta_2: f64,
        tau: f64,
    },
    FedYogi {
        eta: f64,
        beta_1: f64,
        beta_2: f64,
        tau: f64,
    },
    /// The median of each coordinate.
    FedMedian,
    /// The mean of each coordinate without the lowest and highest fraction `beta` of the values.
    FedTrimmedAvg {
        beta: f64,
    },
    /// The reply nearest to the others.
    Krum {
        num_malicious: usize,
    },
    /// The mean of the replies nearest to the others.
    MultiKrum {
        num_malicious: usize,
        num_nodes_to_select: usize,
    },
    /// MultiKrum's selection, then the mean of each coordinate near its median.
    Bulyan {
        num_malicious: usize,
    },
    /// Weights replies by the power `q` of their loss.
    QFedAvg {
        client_learning_rate: f64,
        q: f64,
    },
    /// FedAvg; a round with fewer replies than these fractions of the selected nodes is dropped.
    FaultTolerantFedAvg {
        min_completion_rate_train: f64,
        min_completion_rate_evaluate: f64,
    },
    /// XGBoost: the trees of all replies are added to the model.
    FedXgbBagging,
    /// XGBoost: one node at a time continues the model.
    FedXgbCyclic,
}

impl Strategy {
    pub const NAMES: &[&str] = &[
        "FedAvg",
        "FedAvgM",
        "FedProx",
        "FedAdagrad",
        "FedAdam",
        "FedYogi",
        "FedMedian",
        "FedTrimmedAvg",
        "Krum",
        "MultiKrum",
        "Bulyan",
        "QFedAvg",
        "FaultTolerantFedAvg",
        "FedXgbBagging",
        "FedXgbCyclic",
    ];

    /// The strategy with this name in any spelling (`FedAvg`, `fed-avg`, `fedavg`), with Flower's defaults. Flower has no default for
    /// FedProx's `proximal_mu`, here 1, and QFedAvg's `client_learning_rate`, here 0.1.
    pub fn with_defaults(name: &str) -> Option<Self> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
        let known = Self::NAMES.iter().find(|known| plain(known) == plain(name))?;
        Some(match *known {
            "FedAvg" => Self::FedAvg,
            "FedAvgM" => Self::FedAvgM { server_learning_rate: 1.0, server_momentum: 0.0 },
            "FedProx" => Self::FedProx { proximal_mu: 1.0 },
            "FedAdagrad" => Self::FedAdagrad { eta: 0.1, tau: 1e-3 },
            "FedAdam" => Self::FedAdam { eta: 0.1, beta_1: 0.9, beta_2: 0.99, tau: 1e-3 },
            "FedYogi" => Self::FedYogi { eta: 0.01, beta_1: 0.9, beta_2: 0.99, tau: 1e-3 },
            "FedMedian" => Self::FedMedian,
            "FedTrimmedAvg" => Self::FedTrimmedAvg { beta: 0.2 },
            "Krum" => Self::Krum { num_malicious: 0 },
            "MultiKrum" => Self::MultiKrum { num_malicious: 0, num_nodes_to_select: 1 },
            "Bulyan" => Self::Bulyan { num_malicious: 0 },
            "QFedAvg" => Self::QFedAvg { client_learning_rate: 0.1, q: 0.1 },
            "FaultTolerantFedAvg" => {
                Self::FaultTolerantFedAvg { min_completion_rate_train: 0.5, min_completion_rate_evaluate: 0.5 }
            }
            "FedXgbBagging" => Self::FedXgbBagging,
            "FedXgbCyclic" => Self::FedXgbCyclic,
            _ => return None,
        })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::FedAvg => "FedAvg",
            Self::FedAvgM { .. } => "FedAvgM",
            Self::FedProx { .. } => "FedProx",
            Self::FedAdagrad { .. } => "FedAdagrad",
            Self::FedAdam { .. } => "FedAdam",
            Self::FedYogi { .. } => "FedYogi",
            Self::FedMedian => "FedMedian",
            Self::FedTrimmedAvg { .. } => "FedTrimmedAvg",
            Self::Krum { .. } => "Krum",
            Self::MultiKrum { .. } => "MultiKrum",
            Self::Bulyan { .. } => "Bulyan",
            Self::QFedAvg { .. } => "QFedAvg",
            Self::FaultTolerantFedAvg { .. } => "FaultTolerantFedAvg",
            Self::FedXgbBagging => "FedXgbBagging",
            Self::FedXgbCyclic => "FedXgbCyclic",
        }
    }

    /// Validates the parameters, and whether `nodes` training nodes are enough; returns all errors.
    pub fn check(&self, nodes: usize) -> Result<(), Vec<String>> {
        let mut errors = ParameterErrors(Vec::new());
        match *self {
            Self::FedAvg | Self::FedMedian | Self::FedXgbBagging | Self::FedXgbCyclic => {}
            Self::FedAvgM { server_learning_rate, server_momentum } => {
                errors.expect_positive("the server's learning rate", server_learning_rate);
                errors.expect("the server's momentum", server_momentum, 0.0, 1.0);
            }
            Self::FedProx { proximal_mu } => errors.expect("proximal-mu", proximal_mu, 0.0, f64::INFINITY),
            Self::FedAdagrad { eta, tau } => errors.expect_rates(eta, tau),
            Self::FedAdam { eta, beta_1, beta_2, tau } | Self::FedYogi { eta, beta_1, beta_2, tau } => {
                errors.expect_rates(eta, tau);
                errors.expect("beta-1", beta_1, 0.0, 1.0);
                errors.expect("beta-2", beta_2, 0.0, 1.0);
            }
            Self::FedTrimmedAvg { beta } => errors.expect("the trimmed share beta", beta, 0.0, 0.5),
            Self::Krum { num_malicious } => errors.expect_nodes(self.name(), 2, num_malicious, nodes),
            Self::MultiKrum { num_malicious, num_nodes_to_select } => {
                errors.expect_nodes(self.name(), 2, num_malicious, nodes);
                if !(1..=nodes).contains(&num_nodes_to_select) {
                    let text = format!("num-nodes-to-select must be between 1 and {nodes}, not {num_nodes_to_select}");
                    errors.0.push(text);
                }
            }
            Self::Bulyan { num_malicious } => errors.expect_nodes(self.name(), 4, num_malicious, nodes),
            Self::QFedAvg { client_learning_rate, q } => {
                errors.expect_positive("the clients' learning rate", client_learning_rate);
                errors.expect("q", q, 0.0, f64::INFINITY);
            }
            Self::FaultTolerantFedAvg { min_completion_rate_train, min_completion_rate_evaluate } => {
                errors.expect_share("min-completion-rate-train", min_completion_rate_train);
                errors.expect_share("min-completion-rate-evaluate", min_completion_rate_evaluate);
            }
        }
        if errors.0.is_empty() { Ok(()) } else { Err(errors.0) }
    }

    /// Whether replies can be aggregated one at a time. Otherwise all are stored until the end of the round.
    pub fn folds(&self) -> bool {
        match self {
            Self::FedAvg | Self::FedAvgM { .. } | Self::FedProx { .. } | Self::FaultTolerantFedAvg { .. } => true,
            Self::FedAdagrad { .. } | Self::FedAdam { .. } | Self::FedYogi { .. } | Self::QFedAvg { .. } => true,
            Self::FedMedian | Self::FedTrimmedAvg { .. } => false,
            Self::Krum { .. } | Self::MultiKrum { .. } | Self::Bulyan { .. } => false,
            Self::FedXgbBagging | Self::FedXgbCyclic => false,
        }
    }

    /// Whether the model is an ensemble of trees: one byte array whose length varies.
    pub fn is_trees(&self) -> bool {
        matches!(self, Self::FedXgbBagging | Self::FedXgbCyclic)
    }

    /// Entries for the config of each training instruction.
    pub fn train_config(&self) -> Vec<(String, f64)> {
        match *self {
            Self::FedProx { proximal_mu } => vec![("proximal-mu".to_owned(), proximal_mu)],
            _ => Vec::new(),
        }
    }
}

/// The number of replies that Krum-like strategies need to tolerate malicious nodes.
pub(crate) fn nodes_needed(per_malicious: usize, num_malicious: usize) -> usize {
    num_malicious.saturating_mul(per_malicious).saturating_add(3)
}

struct ParameterErrors(Vec<String>);

impl ParameterErrors {
    /// Requires a number in `low..high`.
    fn expect(&mut self, what: &str, number: f64, low: f64, high: f64) {
        if number >= low && number < high {
            return;
        }
        self.0.push(match high.is_finite() {
            true => format!("{what} must be at least {low} and below {high}, not {number}"),
            false => format!("{what} must be a finite number, at least {low}, not {number}"),
        });
    }

    fn expect_positive(&mut self, what: &str, number: f64) {
        if !(number > 0.0 && number.is_finite()) {
            self.0.push(format!("{what} must be a finite number above 0, not {number}"));
        }
    }

    fn expect_share(&mut self, what: &str, number: f64) {
        if !(0.0..=1.0).contains(&number) {
            self.0.push(format!("{what} must be between 0 and 1, not {number}"));
        }
    }

    fn expect_rates(&mut self, eta: f64, tau: f64) {
        self.expect_positive("the server's learning rate (eta)", eta);
        self.expect_positive("tau", tau);
    }

    fn expect_nodes(&mut self, name: &str, per_malicious: usize, num_malicious: usize, nodes: usize) {
        let needed = nodes_needed(per_malicious, num_malicious);
        if nodes < needed {
            self.0.push(format!(
                "{name} tolerates {num_malicious} malicious nodes ({per_malicious} f + 3) only with at least {needed} nodes, \
                  not {nodes}: raise min-train-nodes, or lower num-malicious"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_default_parameters_are_valid() {
        for &name in Strategy::NAMES {
            let strategy = Strategy::with_defaults(name).unwrap();
            assert_eq!(strategy.name(), name);
            assert_eq!(strategy.check(3), Ok(()), "{name}");
        }
        assert_eq!(Strategy::with_defaults("fed-trimmed_AVG"), Some(Strategy::FedTrimmedAvg { beta: 0.2 }));
        assert_eq!(Strategy::with_defaults("FedSomething"), None);
    }

    #[test]
    fn all_invalid_parameters_are_reported() {
        let errors = |strategy: Strategy, nodes| strategy.check(nodes).unwrap_err();
        let adam = Strategy::FedAdam { eta: -1.0, beta_1: 1.0, beta_2: f64::NAN, tau: 0.0 };
        assert_eq!(errors(adam, 2).len(), 4);
        assert_eq!(errors(Strategy::FedTrimmedAvg { beta: 0.5 }, 2).len(), 1);
        assert_eq!(errors(Strategy::MultiKrum { num_malicious: 1, num_nodes_to_select: 5 }, 4).len(), 2);
        assert_eq!(errors(Strategy::QFedAvg { client_learning_rate: 0.0, q: -0.1 }, 2).len(), 2);
        let rates =
            Strategy::FaultTolerantFedAvg { min_completion_rate_train: 1.1, min_completion_rate_evaluate: -0.1 };
        assert_eq!(errors(rates, 2).len(), 2);
        assert_eq!(errors(Strategy::FedAvgM { server_learning_rate: f64::INFINITY, server_momentum: 1.0 }, 2).len(), 2);
        assert_eq!(errors(Strategy::FedProx { proximal_mu: -0.1 }, 2).len(), 1);
    }

    #[test]
    fn byzantine_strategies_need_enough_nodes() {
        assert_eq!(Strategy::Krum { num_malicious: 2 }.check(7), Ok(()));
        assert!(Strategy::Krum { num_malicious: 2 }.check(6).is_err());
        assert_eq!(Strategy::Bulyan { num_malicious: 2 }.check(11), Ok(()));
        let errors = Strategy::Bulyan { num_malicious: 2 }.check(10).unwrap_err();
        assert!(errors[0].contains("only with at least 11 nodes, not 10"), "{errors:?}");
        assert!(Strategy::Bulyan { num_malicious: usize::MAX }.check(10).is_err());
    }

    #[test]
    fn clients_receive_the_proximal_term() {
        assert_eq!(Strategy::FedProx { proximal_mu: 0.5 }.train_config(), [("proximal-mu".to_owned(), 0.5)]);
        assert!(Strategy::FedAvg.train_config().is_empty());
    }
}
