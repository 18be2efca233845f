//! Errors of a round, and that they name the sender and the reason.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use trellis_strategy::mean::weighted_mean;
use trellis_strategy::{AggregateError, InMemory, Layout, Numbers, Options, Server, Strategy};
use trellis_wire::records::Dtype;

use crate::models::{of, replies_of, reply, round};

/// Reading its second half fails.
struct Truncated(InMemory);

impl Numbers for Truncated {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn part<'a>(&'a self, array: usize, bytes: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if bytes.end > self.0.layout().bytes() / 2 {
            return Err(io::Error::other("the disk failed"));
        }
        self.0.part(array, bytes, buffer)
    }
}

/// Returns one byte less than requested.
struct Short(InMemory);

impl Numbers for Short {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn part<'a>(&'a self, array: usize, bytes: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        self.0.part(array, bytes.start..bytes.end - 1, buffer)
    }
}

fn text(error: Result<impl Sized, AggregateError>) -> String {
    error.err().expect("a error").to_string()
}

#[test]
fn a_round_without_replies_has_no_model() {
    for &name in Strategy::NAMES {
        let strategy = Strategy::with_defaults(name).unwrap();
        assert!(matches!(round(&strategy, &of(Dtype::F32, &[0.0]), &[]), Err(AggregateError::NoReplies)), "{name}");
    }
    assert!(matches!(weighted_mean(&[], &Arc::default()), Err(AggregateError::NoReplies)));
}

#[test]
fn a_reply_that_does_not_match_leaves_the_round_unchanged() {
    let server = Server::new(Strategy::FedAvg, Options::default());
    let start = of(Dtype::F32, &[0.0, 0.0]);
    let mut open = server.begin(&start, 1);
    let fits = InMemory(of(Dtype::F32, &[1.0, 2.0]));
    open.fold(&reply(2, 1.0), &fits).unwrap();
    let error = open.fold(&reply(3, 1.0), &InMemory(of(Dtype::F64, &[1.0])));
    let difference = "array 'w' has shape [1], not [2]; array 'w' is float64, not float32";
    assert_eq!(text(error), format!("the arrays of node 3 do not match those of the model: {difference}"));
    for weight in [-1.0, f64::NAN, f64::INFINITY, 1e101] {
        assert!(matches!(open.fold(&reply(4, weight), &fits), Err(AggregateError::Weight { .. })), "{weight}");
    }
    assert_eq!(open.finish(&[]).unwrap().model, fits.0);
}

#[test]
fn weights_of_0_only_are_an_error() {
    let replies = [(reply(2, 0.0), of(Dtype::F32, &[1.0])), (reply(3, 0.0), of(Dtype::F32, &[1.0]))];
    assert!(matches!(round(&Strategy::FedAvg, &replies[0].1, &replies), Err(AggregateError::NoWeight)));
    let strategy = Strategy::MultiKrum { num_malicious: 0, num_nodes_to_select: 2 };
    assert!(matches!(round(&strategy, &replies[0].1, &replies), Err(AggregateError::NoWeight)));
}

#[test]
fn a_partially_read_reply_aborts_the_round() {
    let server = Server::new(Strategy::FedAvg, Options::default());
    let start = of(Dtype::F32, &vec![0.0; 200_000]);
    let mut open = server.begin(&start, 1);
    let error = open.fold(&reply(7, 1.0), &Truncated(InMemory(start.clone())));
    assert_eq!(text(error), "array 'w' of node 7 cannot be read");
    assert!(matches!(open.fold(&reply(8, 1.0), &InMemory(start.clone())), Err(AggregateError::Aborted)));
    assert!(matches!(open.finish(&[]), Err(AggregateError::Aborted)));
}

#[test]
fn read_errors_name_the_sender() {
    let start = of(Dtype::F32, &[0.0, 0.0]);
    let (fits, torn) = (InMemory(start.clone()), Truncated(InMemory(start.clone())));
    let kept: [(_, &dyn Numbers); 4] =
        [(reply(5, 1.0), &fits), (reply(6, 1.0), &fits), (reply(7, 1.0), &torn), (reply(8, 1.0), &fits)];
    for name in ["FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan"] {
        let server = Server::new(Strategy::with_defaults(name).unwrap(), Options::default());
        let error = server.begin(&start, 1).finish(&kept);
        assert_eq!(text(error), "array 'w' of node 7 cannot be read", "{name}");
    }
    let error = weighted_mean(&[(1.0, &fits), (1.0, &Short(InMemory(start.clone())))], &start.layout).unwrap_err();
    let AggregateError::Read { source, .. } = &error else { panic!("{error}") };
    assert_eq!(error.to_string(), "array 'w' of reply 1 cannot be read");
    assert_eq!(source.to_string(), "7 bytes were read instead of 8");
}

#[test]
fn bulyan_needs_enough_replies() {
    let rows = vec![vec![1.0]; 6];
    let error = round(&Strategy::Bulyan { num_malicious: 1 }, &of(Dtype::F64, &[0.0]), &replies_of(&rows));
    assert_eq!(text(error), "Bulyan needs 7 replies to tolerate the configured number of malicious nodes, and got 6");
}

#[test]
fn qfedavg_needs_losses() {
    let strategy = Strategy::QFedAvg { client_learning_rate: 0.1, q: 0.1 };
    let start = of(Dtype::F32, &[0.0]);
    let error = round(&strategy, &start, &[(reply(9, 1.0), start.clone())]);
    assert_eq!(text(error), "node 9 did not report its training loss, which QFedAvg needs");
    for loss in [-0.1, f64::NAN, f64::INFINITY] {
        let mut bad = reply(9, 1.0);
        bad.loss = Some(loss);
        assert!(
            matches!(round(&strategy, &start, &[(bad, start.clone())]), Err(AggregateError::Loss { .. })),
            "{loss}"
        );
    }
}
