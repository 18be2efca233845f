//! FedXgbBagging and FedXgbCyclic: tree models in a round. `xgboost` has tests of joining trees.

use trellis_strategy::{AggregateError, Model, Options, Server, Strategy, xgboost};
use trellis_wire::records::Dtype;

use crate::models::{array, model, of, play, reply, round};

const ONE: &str = include_str!("../data/xgboost/one.json");
const OTHER: &str = include_str!("../data/xgboost/other.json");

fn trees(text: &str) -> Model {
    let bytes: Vec<f64> = text.bytes().map(f64::from).collect();
    model([array("0", Dtype::U8, &bytes)])
}

fn text(model: &Model) -> String {
    String::from_utf8(model.arrays[0].to_vec()).unwrap()
}

#[test]
fn bagging_adds_the_trees_of_all_replies() {
    for compat in [false, true] {
        let join = if compat { xgboost::bagging_compat } else { xgboost::bagging };
        let server = Server::new(Strategy::FedXgbBagging, Options { compat });
        let replies = [(reply(2, 1.0), trees(ONE)), (reply(3, 1.0), trees(OTHER))];
        let first = play(&server, 1, &trees(""), &replies).unwrap().model;
        let second = play(&server, 2, &first, &replies).unwrap().model;
        let sent = [ONE, OTHER].map(|text| text.as_bytes().to_vec());
        let expected = join(&first.arrays[0], &sent).unwrap();
        assert_eq!(text(&second), String::from_utf8(expected).unwrap());
        assert!(second.arrays[0].len() > first.arrays[0].len());
        assert_eq!(second.layout.0[0].shape, [second.arrays[0].len()]);
        assert_eq!(second.layout.0[0].name, "0");
    }
}

#[test]
fn with_cyclic_the_reply_is_the_model() {
    let given = round(&Strategy::FedXgbCyclic, &trees(OTHER), &[(reply(2, 1.0), trees(ONE))]).unwrap();
    assert_eq!(given.model, trees(ONE));
}

#[test]
fn invalid_trees_are_refused_with_their_sender() {
    let refused = |sent: Model| {
        let replies = [(reply(2, 1.0), trees(ONE)), (reply(3, 1.0), sent)];
        round(&Strategy::FedXgbBagging, &trees(OTHER), &replies).unwrap_err()
    };
    let prefix = "the trees of node 3 are not one array of uint8: ";
    let two = model([array("0", Dtype::U8, &[1.0]), array("1", Dtype::U8, &[1.0])]);
    assert_eq!(refused(two).to_string(), format!("{prefix}there are 2 arrays"));
    let floats = model([array("0", Dtype::F32, &[1.0])]);
    assert_eq!(refused(floats).to_string(), format!("{prefix}array '0' is float32"));
    assert_eq!(refused(of(Dtype::U8, &[1.0])).to_string(), format!("{prefix}array 'w' is not in the model"));
    assert!(matches!(refused(trees("no trees")), AggregateError::Bagging(_)));
}
