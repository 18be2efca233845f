//! An app that returns the received model, to measure the cost of a round without training.

use trellis_wire::records::{Array, Arrays, Record, Records, Tensor, Values};

use crate::app::{AppError, ClientApp, Context, Instruction, MessageKind};
use crate::exchange::{METRICS, metrics};
use crate::number::Number;
use crate::settings::Setting;

pub const SETTINGS: &[Setting] = &[
    Setting { name: "num-examples", default: "1", help: "number of examples that the reply reports" },
    Setting {
        name: "vary",
        default: "false",
        help: "add the node's partition-id to the first number of each float32 array; equal objects are sent only once",
    },
];

#[derive(Debug)]
pub struct Echo {
    pub num_examples: usize,
    pub vary: bool,
}

impl ClientApp for Echo {
    fn handle(&self, instruction: Instruction<'_>, context: &mut Context) -> Result<Records, AppError> {
        let mut reply = Records::default();
        let partition = context.node_config.get("partition-id").and_then(Number::from_scalar).map(Number::as_f64);
        // Strategies expect no model in the reply to an evaluation.
        if instruction.kind != MessageKind::Evaluate {
            for (name, record) in instruction.records {
                if let Record::Arrays(arrays) = record {
                    let arrays = if self.vary { varied(arrays, partition.unwrap_or(0.0)) } else { arrays.clone() };
                    reply.insert(name.as_str(), Record::Arrays(arrays));
                }
            }
        }
        reply.insert(METRICS, metrics(&[], self.num_examples));
        Ok(reply)
    }
}

fn varied(arrays: &Arrays, offset: f64) -> Arrays {
    let mut varied = Arrays::default();
    for (name, array) in arrays {
        varied.insert(name.as_str(), varied_array(array, offset as f32).unwrap_or_else(|| array.clone()));
    }
    varied
}

/// `None` unless the array is float32.
fn varied_array(array: &Array, offset: f32) -> Option<Array> {
    let tensor = array.tensor().ok()?;
    let shape = tensor.shape().to_vec();
    let Values::F32(mut values) = tensor.into_values() else { return None };
    *values.first_mut()? += offset;
    Some(Tensor::new(shape, values).ok()?.into())
}

#[cfg(test)]
mod tests {
    use trellis_wire::proto::{Scalar, scalar};

    use super::*;
    use crate::app::Stop;

    #[test]
    fn vary_changes_the_first_number_of_float_arrays() {
        let tensor = Tensor::new(vec![2], vec![1.0f32, 2.0]).unwrap();
        let steps = Tensor::new(vec![1], vec![7i64]).unwrap();
        let arrays = Arrays::default().with("w", Array::from(tensor)).with("steps", Array::from(steps));
        let records = Records::default().with("arrays", arrays);
        let stop = Stop::default();
        let instruction =
            Instruction { kind: MessageKind::Train, action: None, records: &records, round: Some(1), stop: &stop };
        let third = Scalar { scalar: Some(scalar::Scalar::Sint64(3)) };
        let mut context = Context { node_config: [("partition-id".to_owned(), third)].into(), ..Context::default() };
        for (vary, first) in [(false, 1.0f32), (true, 4.0)] {
            let reply = Echo { num_examples: 1, vary }.handle(instruction, &mut context).unwrap();
            let arrays = reply.arrays("arrays").unwrap();
            assert_eq!(arrays.get("w").unwrap().tensor().unwrap().values(), &Values::F32(vec![first, 2.0]));
            assert_eq!(arrays.get("steps"), records.arrays("arrays").unwrap().get("steps"));
        }
    }
}
