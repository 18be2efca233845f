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

/// A reply as the spool returns it.
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

fn begin(strategy: Strategy, model: Model) -> RoundInput {
    RoundInput {
        server: Arc::new(Server::new(strategy, Options::default())),
        model: Arc::new(model),
        round: 1,
        compat: false,
        privacy: None,
        privacy_state: State::default(),
        noise: Seed::from(1),
    }
}

/// The replies come from nodes 1, 2, 3 ..., with these weights.
async fn merge(begin: RoundInput, replies: &[(Model, f64)]) -> Result<RoundResult, AggregateError> {
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
async fn replies_are_folded_or_stored() {
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

/// Without noise, privacy only clips updates and equalises weights.
#[tokio::test]
async fn privacy_clips_updates_with_every_strategy() {
    let privacy = Privacy::ServerFixed { noise_multiplier: 0.0, clipping_norm: 1.0, num_sampled: 3 };
    let replies = [(floats(&[0.5]), 1.0), (floats(&[10.0]), 1000.0), (floats(&[-8.0]), 1.0)];
    for (strategy, expected) in [(Strategy::FedAvg, 0.5 / 3.0), (Strategy::FedMedian, 0.5)] {
        let name = strategy.name();
        let begin = RoundInput { privacy: Some(privacy.clone()), ..begin(strategy, floats(&[0.0])) };
        let merged = merge(begin, &replies).await.unwrap();
        let got = numbers(&merged.model)[0];
        assert!((got - expected).abs() < 1e-6, "{name}: {got}");
    }
}

#[tokio::test]
async fn an_adaptive_clipping_norm_is_stored() {
    let privacy = Privacy::ServerAdaptive {
        noise_multiplier: 0.0,
        num_sampled: 2,
        initial_clipping_norm: 1.0,
        target_clipped_quantile: 0.5,
        clip_norm_lr: 0.2,
        clipped_count_stddev: Some(0.0),
    };
    let begin = RoundInput { privacy: Some(privacy.clone()), ..begin(Strategy::FedAvg, floats(&[0.0])) };
    let merged = merge(begin, &[(floats(&[5.0]), 1.0), (floats(&[6.0]), 1.0)]).await.unwrap();
    assert!(privacy.clipping_norm(&merged.privacy_state) > 1.0, "all were clipped, so the limit grows");
    assert!(merged.state.numbers.is_empty(), "the strategy has nothing to remember");
}

#[tokio::test]
async fn errors_of_replies_are_returned() {
    let error = merge(begin(Strategy::FedAvg, floats(&[0.0])), &[(floats(&[1.0]), 0.0)]).await.err();
    assert!(matches!(error, Some(AggregateError::NoWeight)), "{error:?}");
    let error = merge(begin(Strategy::FedAvg, floats(&[0.0])), &[]).await.err();
    assert!(matches!(error, Some(AggregateError::NoReplies)), "{error:?}");
    let error =
        merge(begin(Strategy::Bulyan { num_malicious: 1 }, floats(&[0.0])), &[(floats(&[1.0]), 1.0)]).await.err();
    assert!(matches!(error, Some(AggregateError::TooFew { .. })), "{error:?}");
}

#[tokio::test]
async fn trees_are_aggregated_as_bytes() {
    let text = |text: &str| model(Dtype::U8, text.as_bytes().to_vec());
    let first = merge(begin(Strategy::FedXgbCyclic, text("old")), &[(text("new trees"), 1.0)]).await.unwrap();
    assert_eq!(&first.model.arrays[0][..], b"new trees");
    assert_eq!(first.model.layout.0[0].shape, [9]);
    let error = merge(begin(Strategy::FedXgbBagging, text("")), &[(floats(&[1.0]), 1.0)]).await.err();
    assert!(matches!(error, Some(AggregateError::Trees { .. })), "{error:?}");
    let error = merge(begin(Strategy::FedXgbBagging, text("{}")), &[(text("no JSON"), 1.0)]).await.err();
    assert!(matches!(error, Some(AggregateError::Bagging(_))), "{error:?}");
}

#[tokio::test]
async fn a_cancelled_round_ends_its_thread() {
    let begin = begin(Strategy::FedAvg, floats(&[0.0]));
    let server = Arc::clone(&begin.server);
    let aggregation = Aggregation::begin(begin);
    let reply = Reply { node: NodeId(1), weight: 1.0, loss: None };
    let contribution = Contribution { reply, numbers: spooled(&floats(&[1.0])), was_clipped: false };
    assert!(aggregation.fold(contribution).await);
    aggregation.abandon().await;
    assert_eq!(Arc::strong_count(&server), 1, "the thread has ended");
}
