//! Strategies for tree models: XGBoost's serialised model in one byte array of variable length. [`crate::xgboost`] reads its
//! content.

use std::sync::Arc;

use bytes::Bytes;
use trellis_wire::records::Dtype;

use crate::error::{AggregateError, Sender};
use crate::model::{Layout, Model, Slot, State};
use crate::numbers::Numbers;
use crate::server::{Aggregated, Reply, Server};
use crate::strategy::Strategy;
use crate::xgboost;

/// There is at least one reply.
pub(crate) fn aggregate(
    server: &Server,
    model: &Model,
    kept: &[(Reply, &dyn Numbers)],
) -> Result<Aggregated, AggregateError> {
    let expected = model.layout.0.first().map(|slot| slot.name.as_str());
    let (name, next) = match server.strategy() {
        // One node at a time: its reply is the next model.
        Strategy::FedXgbCyclic => read(&kept[0], expected)?,
        _ => {
            let mut replies = Vec::with_capacity(kept.len());
            let mut name = "";
            for reply in kept {
                let trees = read(reply, expected)?;
                name = trees.0;
                replies.push(trees.1);
            }
            let global = model.arrays.first().map_or(&[][..], |bytes| bytes);
            let bagging = if server.compat() { xgboost::bagging_compat } else { xgboost::bagging };
            (name, bagging(global, &replies).map_err(AggregateError::Bagging)?)
        }
    };
    let slot = Slot { name: name.to_owned(), dtype: Dtype::U8, shape: vec![next.len()] };
    let model = Model { layout: Arc::new(Layout(vec![slot])), arrays: vec![Bytes::from(next)] };
    Ok(Aggregated { model, state: State::default(), chosen: None })
}

/// The only array of a reply: its name, which must be that of the model if it has one, and its bytes.
fn read<'a>(
    (reply, numbers): &(Reply, &'a dyn Numbers),
    expected: Option<&str>,
) -> Result<(&'a str, Vec<u8>), AggregateError> {
    let sender = Sender::Node(reply.node);
    let difference = match &numbers.layout().0[..] {
        [slot] if expected.is_some_and(|name| name != slot.name) => {
            format!("array '{}' is not in the model", slot.name)
        }
        [slot] if slot.dtype != Dtype::U8 => format!("array '{}' is {}", slot.name, slot.dtype.name()),
        [slot] => {
            let mut buffer = Vec::new();
            let read_error = |source| AggregateError::Read { sender, array: slot.name.clone(), source };
            return Ok((&slot.name, numbers.part(0, 0..slot.bytes(), &mut buffer).map_err(read_error)?.to_vec()));
        }
        slots => format!("there are {} arrays", slots.len()),
    };
    Err(AggregateError::Trees { sender, difference })
}
