//! Strategies with a state: successive rounds, the state between them, and resuming.

use trellis_core::id::NodeId;
use trellis_strategy::{Aggregated, Model, Options, Reply, Server, State, Strategy};
use trellis_wire::records::Dtype;

use crate::models::{Dice, array, model, numbers, of, play, reply, round};

const ADAM: Strategy = Strategy::FedAdam { eta: 0.1, beta_1: 0.9, beta_2: 0.99, tau: 1e-3 };

fn with_state() -> [Strategy; 4] {
    [
        Strategy::FedAvgM { server_learning_rate: 0.5, server_momentum: 0.9 },
        Strategy::FedAdagrad { eta: 0.1, tau: 1e-3 },
        ADAM,
        Strategy::FedYogi { eta: 0.01, beta_1: 0.9, beta_2: 0.99, tau: 1e-3 },
    ]
}

fn mixed(numbers: &[f64]) -> Model {
    let dtypes = [("a", Dtype::F32), ("b", Dtype::I64), ("c", Dtype::F16), ("d", Dtype::F64), ("e", Dtype::Bf16)];
    model(dtypes.map(|(name, dtype)| array(name, dtype, numbers)))
}

fn replies(round: u64) -> Vec<(Reply, Model)> {
    let mut dice = Dice(round);
    (2..5).map(|node| (reply(node, node as f64), mixed(&[0; 3].map(|_| 10.0 * dice.unit())))).collect()
}

#[test]
fn the_state_has_the_float_arrays_with_enough_precision() {
    for strategy in with_state() {
        let given = round(&strategy, &mixed(&[0.0; 3]), &replies(1)).unwrap();
        assert_eq!(given.model.layout, mixed(&[0.0; 3]).layout);
        for (name, remembered) in &given.state.models {
            let kept: Vec<_> = remembered.layout.0.iter().map(|slot| (slot.name.as_str(), slot.dtype)).collect();
            let expected = [("a", Dtype::F32), ("c", Dtype::F32), ("d", Dtype::F64), ("e", Dtype::F32)];
            assert_eq!(kept, expected, "{} {name}", strategy.name());
        }
        // Integers are averaged, not optimised.
        let mean = round(&Strategy::FedAvg, &mixed(&[0.0; 3]), &replies(1)).unwrap();
        assert_eq!(given.model.arrays[1], mean.model.arrays[1]);
        assert_ne!(given.model.arrays[0], mean.model.arrays[0]);
    }
    let names = |strategy: &Strategy| {
        round(strategy, &mixed(&[0.0; 3]), &replies(1)).unwrap().state.models.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(names(&ADAM), ["m", "v"]);
    assert_eq!(names(&with_state()[0]), ["momentum"]);
    assert!(names(&Strategy::FedAvg).is_empty());
}

/// Three rounds, computed by hand for one coordinate.
#[test]
fn adam_through_the_server() {
    let mut server = Server::new(ADAM, Options::default());
    let (mut w, mut m, mut v) = (1.0f64, 0.0f64, 0.0f64);
    let mut current = of(Dtype::F64, &[w]);
    for (number, mean) in [(1, 2.0), (2, -1.0), (3, 0.5)] {
        // The mean of the two replies.
        let replies = [(reply(2, 1.0), of(Dtype::F64, &[mean - 3.0])), (reply(3, 3.0), of(Dtype::F64, &[mean + 1.0]))];
        let given = play(&server, number, &current, &replies).unwrap();
        let d = mean - w;
        m = 0.9 * m + 0.1 * d;
        v = 0.99 * v + 0.01 * d * d;
        let step = number as i32 + 1;
        let eta = 0.1 * (1.0 - 0.99f64.powi(step)).sqrt() / (1.0 - 0.9f64.powi(step));
        w += eta * m / (v.sqrt() + 1e-3);
        assert!((numbers(&given.model, 0)[0] - w).abs() < 1e-14, "round {number}");
        assert!((numbers(&given.state.models["v"], 0)[0] - v).abs() < 1e-14, "round {number}");
        server.accept(given.state);
        current = given.model;
    }
}

/// A server that is stopped after each round and restored from its state gives the same bytes.
#[test]
fn a_restored_server_continues_identically() {
    for strategy in with_state() {
        let mut whole = Server::new(strategy.clone(), Options::default());
        let mut stopped: (Model, State) = (mixed(&[0.0; 3]), State::default());
        let mut current = stopped.0.clone();
        for number in 1..5 {
            let Aggregated { model, state, .. } = play(&whole, number, &current, &replies(number)).unwrap();
            whole.accept(state);
            current = model;

            let mut again = Server::new(strategy.clone(), Options::default());
            again.restore(stopped.1, &stopped.0.layout).unwrap();
            let given = play(&again, number, &stopped.0, &replies(number)).unwrap();
            stopped = (given.model, given.state);
            assert_eq!((&stopped.0, &stopped.1), (&current, whole.state()), "{} round {number}", strategy.name());
        }
    }
}

#[test]
fn a_state_of_another_strategy_or_model_is_refused() {
    let state = round(&ADAM, &mixed(&[0.0; 3]), &replies(1)).unwrap().state;
    let layout = mixed(&[0.0; 3]).layout;
    let refused = |strategy: Strategy, layout| {
        Server::new(strategy, Options::default()).restore(state.clone(), layout).unwrap_err()
    };
    let reason = refused(with_state()[0].clone(), &layout);
    assert_eq!(
        reason,
        "the state does not belong to FedAvgM: 'momentum' is missing; 'm' belongs to another strategy; \
         'v' belongs to another strategy"
    );
    let reason = refused(ADAM, &of(Dtype::F32, &[0.0]).layout);
    assert!(reason.contains("'m': array 'w' is missing; array 'a' is not in the model"), "{reason}");
    let mut server = Server::new(ADAM, Options::default());
    server.restore(state.clone(), &layout).unwrap();
    assert_eq!(server.state(), &state);
    // A model with another layout is an error, not a panic.
    let other = [(reply(2, 1.0), of(Dtype::F32, &[1.0]))];
    let error = play(&server, 2, &of(Dtype::F32, &[0.0]), &other).unwrap_err();
    assert!(error.to_string().contains("does not match the model"), "{error}");
}

#[test]
fn with_compat_integers_are_optimised_as_float64() {
    let server = Server::new(Strategy::FedAdagrad { eta: 1.0, tau: 1.0 }, Options { compat: true });
    let replies = [(reply(2, 1.0), of(Dtype::I32, &[3.0]))];
    let given = play(&server, 1, &of(Dtype::I32, &[0.0]), &replies).unwrap();
    assert_eq!(numbers(&given.model, 0), [0.75]);
    assert_eq!(given.state.models["v"].layout.0[0].dtype, Dtype::F64);
}

#[test]
fn fedprox_and_fault_tolerant_fedavg_average_like_fedavg() {
    let start = mixed(&[0.0; 3]);
    let mean = round(&Strategy::FedAvg, &start, &replies(7)).unwrap();
    let rates = Strategy::FaultTolerantFedAvg { min_completion_rate_train: 0.5, min_completion_rate_evaluate: 0.5 };
    let plain = Strategy::FedAvgM { server_learning_rate: 1.0, server_momentum: 0.0 };
    for strategy in [Strategy::FedProx { proximal_mu: 0.3 }, rates, plain] {
        assert_eq!(round(&strategy, &start, &replies(7)).unwrap(), mean, "{}", strategy.name());
    }
}

fn with_loss(node: u64, weight: f64, loss: f64) -> Reply {
    Reply { node: NodeId(node), weight, loss: Some(loss) }
}

#[test]
fn unknown_numbers_of_the_state_are_preserved() {
    let mut state = State::default();
    state.numbers.insert("clipping".to_owned(), 0.5);
    for strategy in [Strategy::FedAvg, ADAM, Strategy::FedMedian] {
        let mut server = Server::new(strategy, Options::default());
        server.restore(state.clone(), &mixed(&[0.0; 3]).layout).unwrap();
        let given = play(&server, 1, &mixed(&[0.0; 3]), &replies(1)).unwrap();
        assert_eq!(given.state.numbers, state.numbers);
    }
}

/// Two replies of two coordinates, computed with the formulas of the paper.
#[test]
fn qfedavg() {
    let (q, rate) = (2.0, 0.5);
    let start = model([array("w", Dtype::F64, &[1.0, 2.0]), array("n", Dtype::I64, &[0.0])]);
    let one = |w: [f64; 2], n: f64| model([array("w", Dtype::F64, &w), array("n", Dtype::I64, &[n])]);
    let replies = [(with_loss(2, 1.0, 0.5), one([0.0, 2.0], 4.0)), (with_loss(3, 3.0, 2.0), one([3.0, 1.0], 8.0))];
    let given = round(&Strategy::QFedAvg { client_learning_rate: rate, q }, &start, &replies).unwrap();

    let lipschitz = 1.0 / rate;
    let (mut delta, mut h) = ([0.0; 2], 0.0);
    for (loss, w) in [(0.5 + 1e-10, [0.0, 2.0]), (2.0 + 1e-10, [3.0, 1.0])] {
        let loss: f64 = loss;
        let gradient = [lipschitz * (1.0 - w[0]), lipschitz * (2.0 - w[1])];
        delta = [0, 1].map(|at| delta[at] + loss.powf(q) * gradient[at]);
        let norm = gradient[0] * gradient[0] + gradient[1] * gradient[1];
        h += q * loss.powf(q - 1.0) * norm + lipschitz * loss.powf(q);
    }
    for (found, expected) in numbers(&given.model, 0).iter().zip([1.0 - delta[0] / h, 2.0 - delta[1] / h]) {
        assert!((found - expected).abs() < 1e-14, "{found} is not {expected}");
    }
    assert_eq!(numbers(&given.model, 1), [7.0]);
}
