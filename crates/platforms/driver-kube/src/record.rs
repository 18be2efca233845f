//! What is kept of a part, as an annotation of its StatefulSet: whoever opens the driver next knows what was begun, and by which
//! order.

use serde::{Deserialize, Serialize};
use trellis_plan::{Action, Desired, Generation, Millis, Order, Outcome, ResourceId, Verb};

/// Of the form of a record. A later one is not understood, and its part is unknown.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub desired: Desired,
    /// The latest that was carried out.
    pub order: Order,
    /// Another number for each time that it was to be started.
    pub instance: u64,
    pub since_ms: Millis,
    pub draining: bool,
    /// The coordinator's state is in a claim of its own: decided when it was first made.
    pub claim: bool,
}

/// What an order makes of a part.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// It is so, or on its way; only the order is noted.
    Noted(Record),
    /// Its pod is to be another.
    Renewed(Record),
    /// It is to go.
    Ends,
}

impl Record {
    pub fn new(desired: Desired, order: Order, claim: bool, now_ms: Millis) -> Record {
        Record { version: VERSION, desired, order, instance: now_ms, since_ms: now_ms, draining: false, claim }
    }

    /// `Err`: nobody knows what it is.
    pub fn read(text: &str) -> Result<Record, String> {
        #[derive(Deserialize)]
        struct Form {
            version: u32,
        }
        let damaged = |error: serde_json::Error| format!("what is kept of it cannot be read: {error}");
        let Form { version } = serde_json::from_str(text).map_err(damaged)?;
        if version != VERSION {
            return Err(format!("what is kept of it has form {version}, and this program knows {VERSION}"));
        }
        serde_json::from_str(text).map_err(damaged)
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a record has only text keys, so it always has a JSON form")
    }

    pub fn id(&self) -> &ResourceId {
        &self.desired.id
    }

    pub fn generation(&self) -> Generation {
        self.desired.generation
    }

    /// Takes an order for a part that is there. `Err`: it is refused, and nothing changes.
    pub fn apply(&self, action: &Action, stops: bool, now_ms: Millis) -> Result<Turn, Outcome> {
        if let Some(refused) = action.order.too_late(&self.order) {
            return Err(refused);
        }
        let noted = || Turn::Noted(Record { order: action.order, ..self.clone() });
        match &action.verb {
            Verb::Delete { .. } => Ok(Turn::Ends),
            _ if stops => Err(refused("it still stops")),
            Verb::Create(desired) if self.generation() != desired.generation => {
                Err(refused("another generation is there"))
            }
            Verb::Create(_) => Ok(noted()),
            Verb::Replace(desired) if self.generation() == desired.generation => Ok(noted()),
            Verb::Replace(desired) => {
                Ok(Turn::Renewed(Record { desired: desired.clone(), ..self.again(action, now_ms) }))
            }
            Verb::Restart { instance, .. } if self.instance != *instance => Ok(noted()),
            Verb::Restart { generation, .. } if self.generation() != *generation => {
                Err(refused("another generation is there"))
            }
            Verb::Restart { .. } => Ok(Turn::Renewed(self.again(action, now_ms))),
            Verb::Drain { .. } if self.id().node_key().is_none() => {
                Err(Outcome::Refused { why: "a coordinator has no work of its own to finish".to_owned(), retry: false })
            }
            Verb::Drain { .. } => Ok(Turn::Noted(Record { order: action.order, draining: true, ..self.clone() })),
        }
    }

    fn again(&self, action: &Action, now_ms: Millis) -> Record {
        let instance = now_ms.max(self.instance + 1);
        Record { order: action.order, instance, since_ms: now_ms, draining: false, ..self.clone() }
    }
}

fn refused(why: &str) -> Outcome {
    Outcome::Refused { why: why.to_owned(), retry: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn record() -> Record {
        Record::new(testing::desired("f/lab/node/cpu-0"), Order { fence: 1, serial: 5 }, false, 1000)
    }

    fn order(serial: u64, verb: Verb) -> Action {
        Action { order: Order { fence: 1, serial }, verb }
    }

    #[test]
    fn a_record_is_its_text_and_a_later_form_is_not_understood() {
        assert_eq!(Record::read(&record().text()), Ok(record()));
        let later = record().text().replacen("\"version\":1", "\"version\":2", 1);
        assert!(Record::read(&later).is_err_and(|why| why.contains("form 2")));
        assert!(Record::read("{").is_err());
    }

    #[test]
    fn orders_turn_a_record_once() {
        let (record, id) = (record(), record().id().clone());
        let restart = |instance| Verb::Restart { id: id.clone(), generation: record.generation(), instance };
        let Ok(Turn::Renewed(again)) = record.apply(&order(6, restart(1000)), false, 1000) else { panic!("a restart") };
        assert_eq!((again.instance, again.order.serial), (1001, 6), "another number, also within a millisecond");
        assert!(matches!(again.apply(&order(6, restart(1000)), false, 2000), Ok(Turn::Noted(_))), "it is done");
        assert!(matches!(record.apply(&order(4, restart(1000)), false, 2000), Err(Outcome::Refused { .. })));
        assert!(matches!(
            record.apply(&order(6, restart(1000)), true, 2000),
            Err(Outcome::Refused { retry: true, .. })
        ));
        assert_eq!(record.apply(&order(6, Verb::Delete { id: id.clone() }), true, 2000), Ok(Turn::Ends));
        let Ok(Turn::Noted(drains)) = record.apply(&order(6, Verb::Drain { id: id.clone() }), false, 2000) else {
            panic!("it drains")
        };
        let Ok(Turn::Renewed(back)) = drains.apply(&order(7, restart(1000)), false, 2000) else { panic!("a restart") };
        assert!(drains.draining && !back.draining);
    }
}
