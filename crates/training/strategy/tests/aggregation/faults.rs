//! What a round refuses, and that it says who and what.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use trellis_strategy::mean::weighted_mean;
use trellis_strategy::{Fault, InMemory, Layout, Numbers, Options, Server, Strategy};
use trellis_wire::records::Dtype;

use crate::models::{of, replies_of, reply, round};

/// Its second half is lost.
struct Torn(InMemory);

impl Numbers for Torn {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn part<'a>(&'a self, array: usize, bytes: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if bytes.end > self.0.layout().bytes() / 2 {
            return Err(io::Error::other("the disk is gone"));
        }
        self.0.part(array, bytes, buffer)
    }
}

/// Tells one byte less than it has.
struct Short(InMemory);

impl Numbers for Short {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn part<'a>(&'a self, array: usize, bytes: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        self.0.part(array, bytes.start..bytes.end - 1, buffer)
    }
}

fn told(fault: Result<impl Sized, Fault>) -> String {
    fault.err().expect("a fault").to_string()
}

#[test]
fn a_round_without_replies_has_no_model() {
    for &name in Strategy::NAMES {
        let strategy = Strategy::with_defaults(name).unwrap();
        assert!(matches!(round(&strategy, &of(Dtype::F32, &[0.0]), &[]), Err(Fault::NoReplies)), "{name}");
    }
    assert!(matches!(weighted_mean(&[], &Arc::default()), Err(Fault::NoReplies)));
}

#[test]
fn a_reply_that_does_not_fit_leaves_the_round_as_it_was() {
    let server = Server::new(Strategy::FedAvg, Options::default());
    let start = of(Dtype::F32, &[0.0, 0.0]);
    let mut open = server.begin(&start, 1);
    let fits = InMemory(of(Dtype::F32, &[1.0, 2.0]));
    open.fold(&reply(2, 1.0), &fits).unwrap();
    let fault = open.fold(&reply(3, 1.0), &InMemory(of(Dtype::F64, &[1.0])));
    let difference = "array 'w' has shape [1], not [2]; array 'w' is float64, not float32";
    assert_eq!(told(fault), format!("the arrays of node 3 are not those of the model: {difference}"));
    for weight in [-1.0, f64::NAN, f64::INFINITY, 1e101] {
        assert!(matches!(open.fold(&reply(4, weight), &fits), Err(Fault::Weight { .. })), "{weight}");
    }
    assert_eq!(open.finish(&[]).unwrap().model, fits.0);
}

#[test]
fn weights_of_0_alone_are_no_mean() {
    let replies = [(reply(2, 0.0), of(Dtype::F32, &[1.0])), (reply(3, 0.0), of(Dtype::F32, &[1.0]))];
    assert!(matches!(round(&Strategy::FedAvg, &replies[0].1, &replies), Err(Fault::NoWeight)));
    let strategy = Strategy::MultiKrum { num_malicious: 0, num_nodes_to_select: 2 };
    assert!(matches!(round(&strategy, &replies[0].1, &replies), Err(Fault::NoWeight)));
}

#[test]
fn a_reply_that_is_lost_halfway_spoils_the_round() {
    let server = Server::new(Strategy::FedAvg, Options::default());
    let start = of(Dtype::F32, &vec![0.0; 200_000]);
    let mut open = server.begin(&start, 1);
    let fault = open.fold(&reply(7, 1.0), &Torn(InMemory(start.clone())));
    assert_eq!(told(fault), "array 'w' of node 7 cannot be read");
    assert!(matches!(open.fold(&reply(8, 1.0), &InMemory(start.clone())), Err(Fault::Spoiled)));
    assert!(matches!(open.finish(&[]), Err(Fault::Spoiled)));
}

#[test]
fn who_cannot_be_read_is_told() {
    let start = of(Dtype::F32, &[0.0, 0.0]);
    let (fits, torn) = (InMemory(start.clone()), Torn(InMemory(start.clone())));
    let kept: [(_, &dyn Numbers); 4] =
        [(reply(5, 1.0), &fits), (reply(6, 1.0), &fits), (reply(7, 1.0), &torn), (reply(8, 1.0), &fits)];
    for name in ["FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan"] {
        let server = Server::new(Strategy::with_defaults(name).unwrap(), Options::default());
        let fault = server.begin(&start, 1).finish(&kept);
        assert_eq!(told(fault), "array 'w' of node 7 cannot be read", "{name}");
    }
    let fault = weighted_mean(&[(1.0, &fits), (1.0, &Short(InMemory(start.clone())))], &start.layout).unwrap_err();
    let Fault::Read { source, .. } = &fault else { panic!("{fault}") };
    assert_eq!(fault.to_string(), "array 'w' of reply 1 cannot be read");
    assert_eq!(source.to_string(), "7 bytes were read where 8 should be");
}

#[test]
fn bulyan_needs_enough_replies() {
    let rows = vec![vec![1.0]; 6];
    let fault = round(&Strategy::Bulyan { num_malicious: 1 }, &of(Dtype::F64, &[0.0]), &replies_of(&rows));
    assert_eq!(told(fault), "Bulyan needs 7 replies for the malicious nodes it shall withstand, and got 6");
}

#[test]
fn qfedavg_needs_losses() {
    let strategy = Strategy::QFedAvg { client_learning_rate: 0.1, q: 0.1 };
    let start = of(Dtype::F32, &[0.0]);
    let fault = round(&strategy, &start, &[(reply(9, 1.0), start.clone())]);
    assert_eq!(told(fault), "node 9 does not tell its training loss, which QFedAvg needs");
    for loss in [-0.1, f64::NAN, f64::INFINITY] {
        let mut bad = reply(9, 1.0);
        bad.loss = Some(loss);
        assert!(matches!(round(&strategy, &start, &[(bad, start.clone())]), Err(Fault::Loss { .. })), "{loss}");
    }
}
