//! An app that gives back the model it got: what a round costs without any learning.

use trellis_wire::records::{Record, Records};

use crate::app::{AppError, ClientApp, Context, Instruction, MessageKind};
use crate::exchange::{METRICS, metrics};
use crate::settings::Setting;

pub const SETTINGS: &[Setting] =
    &[Setting { name: "num-examples", default: "1", help: "how many examples it says it has" }];

#[derive(Debug)]
pub struct Echo {
    pub num_examples: usize,
}

impl ClientApp for Echo {
    fn handle(&self, instruction: Instruction<'_>, _: &mut Context) -> Result<Records, AppError> {
        let mut reply = Records::default();
        // Strategies want no model back from an evaluation.
        if instruction.kind != MessageKind::Evaluate {
            for (name, record) in instruction.records {
                if matches!(record, Record::Arrays(_)) {
                    reply.insert(name.as_str(), record.clone());
                }
            }
        }
        reply.insert(METRICS, metrics(&[], self.num_examples));
        Ok(reply)
    }
}
