use trellis_strategy::{Layout, Options, Slot, Strategy};
use trellis_wire::object;
use trellis_wire::records::{Dtype, NUMPY, npy_header};

use super::*;
use crate::spool::Spool;

fn model(dtype: Dtype, bytes: Vec<u8>) -> Model {
    let slot = Slot { name: "w".to_owned(), dtype, shape: vec![bytes.len() / dtype.bytes()] };
    Model { layout: Arc::new(Layout(vec![slot])), arrays: vec![bytes.into()] }
}

fn floats(numbers: &[f32]) -> Model {
    model(Dtype::F32, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
}

fn numbers(model: &Model) -> Vec<f32> {
    model.arrays[0].as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// A reply as the spool would give it.
fn spooled(model: &Model) -> Spooled {
    let slot = &model.layout.0[0];
    let described = object::Array {
        dtype: slot.dtype.name().to_owned(),
        shape: Vec::new(),
        stype: NUMPY.to_owned(),
        chunks: Vec::new(),
    };
    let mut draft = Spool::new(".").free_draft();
    draft.begin(&slot.name, &described).unwrap();
    draft.take(&npy_header(slot.dtype, &slot.shape)).unwrap();
    draft.take(&model.arrays[0]).unwrap();
    draft.end().unwrap();
    draft.finish().unwrap()
}

fn begin(strategy: Strategy, model: Model) -> Begin {
    Begin {
        server: Arc::new(Server::new(strategy, Options::default())),
        model: Arc::new(model),
        round: 1,
        compat: false,
        privacy: None,
        memory: State::default(),
        noise: Seed::from(1),
    }
}

/// Replies of nodes 1, 2, 3 ... with these weights.
async fn merge(begin: Begin, replies: &[(Model, f64)]) -> Result<Merged, Fault> {
    let aggregation = Aggregation::begin(begin);
    for (index, (model, weight)) in replies.iter().enumerate() {
        let reply = Reply { node: NodeId(index as u64 + 1), weight: *weight, loss: None };
        if !aggregation.fold(Contribution { reply, numbers: spooled(model), was_clipped: false }).await {
            break;
        }
    }
    aggregation.finish().await.unwrap()
}

#[tokio::test]
async fn replies_that_are_folded_and_replies_that_are_kept() {
    let replies = [1.0f32, 2.0, 9.0].map(|number| (floats(&[number, -number]), 1.0));
    for (strategy, expected, chosen) in [
        (Strategy::FedAvg, [4.0, -4.0], None),
        (Strategy::FedMedian, [2.0, -2.0], None),
        (Strategy::Krum { num_malicious: 0 }, [1.0, -1.0], Some(vec![NodeId(1)])),
    ] {
        let name = strategy.name();
        let merged = merge(begin(strategy, floats(&[0.0, 0.0])), &replies).await.unwrap();
        assert_eq!((numbers(&merged.model), merged.chosen), (expected.to_vec(), chosen), "{name}");
        let norms: Vec<f64> = merged.norms.iter().map(|(_, norm)| *norm).collect();
        let expected_norms = [1.0, 2.0, 9.0].map(|number: f64| number * 2f64.sqrt());
        assert!(norms.iter().zip(expected_norms).all(|(norm, expected)| (norm - expected).abs() < 1e-9), "{norms:?}");
        let change = f64::from(expected[0]) * 2f64.sqrt();
        assert!((merged.update_norm.unwrap() - change).abs() < 1e-9, "{name}");
    }
}

/// Without noise what remains of privacy are the limit, and that no reply counts for more than another.
#[tokio::test]
async fn privacy_pulls_updates_back_in_every_strategy() {
    let privacy = Privacy::ServerFixed { noise_multiplier: 0.0, clipping_norm: 1.0, num_sampled: 3 };
    let replies = [(floats(&[0.5]), 1.0), (floats(&[10.0]), 1000.0), (floats(&[-8.0]), 1.0)];
    for (strategy, expected) in [(Strategy::FedAvg, 0.5 / 3.0), (Strategy::FedMedian, 0.5)] {
        let name = strategy.name();
        let begin = Begin { privacy: Some(privacy.clone()), ..begin(strategy, floats(&[0.0])) };
        let merged = merge(begin, &replies).await.unwrap();
        let got = numbers(&merged.model)[0];
        assert!((got - expected).abs() < 1e-6, "{name}: {got}");
    }
}

#[tokio::test]
async fn an_adaptive_limit_is_remembered() {
    let privacy = Privacy::ServerAdaptive {
        noise_multiplier: 0.0,
        num_sampled: 2,
        initial_clipping_norm: 1.0,
        target_clipped_quantile: 0.5,
        clip_norm_lr: 0.2,
        clipped_count_stddev: Some(0.0),
    };
    let begin = Begin { privacy: Some(privacy.clone()), ..begin(Strategy::FedAvg, floats(&[0.0])) };
    let merged = merge(begin, &[(floats(&[5.0]), 1.0), (floats(&[6.0]), 1.0)]).await.unwrap();
    assert!(privacy.clipping_norm(&merged.memory) > 1.0, "all were clipped, so the limit grows");
    assert!(merged.state.numbers.is_empty(), "the strategy has nothing to remember");
}

#[tokio::test]
async fn faults_of_replies_are_told() {
    let fault = merge(begin(Strategy::FedAvg, floats(&[0.0])), &[(floats(&[1.0]), 0.0)]).await.err();
    assert!(matches!(fault, Some(Fault::NoWeight)), "{fault:?}");
    let fault = merge(begin(Strategy::FedAvg, floats(&[0.0])), &[]).await.err();
    assert!(matches!(fault, Some(Fault::NoReplies)), "{fault:?}");
    let fault =
        merge(begin(Strategy::Bulyan { num_malicious: 1 }, floats(&[0.0])), &[(floats(&[1.0]), 1.0)]).await.err();
    assert!(matches!(fault, Some(Fault::TooFew { .. })), "{fault:?}");
}

#[tokio::test]
async fn trees_go_their_own_way() {
    let text = |text: &str| model(Dtype::U8, text.as_bytes().to_vec());
    let first = merge(begin(Strategy::FedXgbCyclic, text("old")), &[(text("new trees"), 1.0)]).await.unwrap();
    assert_eq!(&first.model.arrays[0][..], b"new trees");
    assert_eq!(first.model.layout.0[0].shape, [9]);
    let fault = merge(begin(Strategy::FedXgbBagging, text("")), &[(floats(&[1.0]), 1.0)]).await.err();
    assert!(matches!(fault, Some(Fault::Trees { .. })), "{fault:?}");
    let fault = merge(begin(Strategy::FedXgbBagging, text("{}")), &[(text("no JSON"), 1.0)]).await.err();
    assert!(matches!(fault, Some(Fault::Bagging(_))), "{fault:?}");
}

#[tokio::test]
async fn a_round_that_is_given_up_leaves_nothing() {
    let begin = begin(Strategy::FedAvg, floats(&[0.0]));
    let server = Arc::clone(&begin.server);
    let aggregation = Aggregation::begin(begin);
    let reply = Reply { node: NodeId(1), weight: 1.0, loss: None };
    let contribution = Contribution { reply, numbers: spooled(&floats(&[1.0])), was_clipped: false };
    assert!(aggregation.fold(contribution).await);
    aggregation.abandon().await;
    assert_eq!(Arc::strong_count(&server), 1, "the thread is gone");
}
