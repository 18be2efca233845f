//! The stored state of a part, in an annotation of its StatefulSet. A driver that is opened later reads from it what was started
//! and by which order.

use serde::{Deserialize, Serialize};
use trellis_plan::{Action, Desired, Generation, Millis, Order, Outcome, ResourceId, Verb};

/// Format version. A part whose record has a later version is reported as unknown.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub desired: Desired,
    /// The last order that was executed.
    pub order: Order,
    /// Different for each start.
    pub instance: u64,
    pub since_ms: Millis,
    pub draining: bool,
    /// The coordinator's state is in a volume claim. Decided when the part is created.
    pub claim: bool,
}

/// Effect of an order on a part.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// The part is as desired or on its way. Only the record changes.
    Recorded(Record),
    /// The pod must be replaced.
    Restarted(Record),
    Deleted,
}

impl Record {
    pub fn new(desired: Desired, order: Order, claim: bool, now_ms: Millis) -> Record {
        Record { version: VERSION, desired, order, instance: now_ms, since_ms: now_ms, draining: false, claim }
    }

    pub fn read(text: &str) -> Result<Record, String> {
        #[derive(Deserialize)]
        struct Form {
            version: u32,
        }
        let damaged = |error: serde_json::Error| format!("its record cannot be read: {error}");
        let Form { version } = serde_json::from_str(text).map_err(damaged)?;
        if version != VERSION {
            return Err(format!("its record has version {version}; this program reads version {VERSION}"));
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

    /// Applies an order to an existing part. `Err`: the order is refused, and nothing changes.
    pub fn apply(&self, action: &Action, is_stopping: bool, now_ms: Millis) -> Result<Transition, Outcome> {
        if let Some(refused) = action.order.too_late(&self.order) {
            return Err(refused);
        }
        let recorded = || Transition::Recorded(Record { order: action.order, ..self.clone() });
        match &action.verb {
            Verb::Delete { .. } => Ok(Transition::Deleted),
            _ if is_stopping => Err(refused("it is still stopping")),
            Verb::Create(desired) if self.generation() != desired.generation => {
                Err(refused("it exists with another generation"))
            }
            Verb::Create(_) => Ok(recorded()),
            Verb::Replace(desired) if self.generation() == desired.generation => Ok(recorded()),
            Verb::Replace(desired) => {
                Ok(Transition::Restarted(Record { desired: desired.clone(), ..self.next_instance(action, now_ms) }))
            }
            Verb::Restart { instance, .. } if self.instance != *instance => Ok(recorded()),
            Verb::Restart { generation, .. } if self.generation() != *generation => {
                Err(refused("it exists with another generation"))
            }
            Verb::Restart { .. } => Ok(Transition::Restarted(self.next_instance(action, now_ms))),
            Verb::Drain { .. } if self.id().node_key().is_none() => {
                Err(Outcome::Refused { why: "a coordinator cannot be drained".to_owned(), retry: false })
            }
            Verb::Drain { .. } => {
                Ok(Transition::Recorded(Record { order: action.order, draining: true, ..self.clone() }))
            }
        }
    }

    fn next_instance(&self, action: &Action, now_ms: Millis) -> Record {
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
    fn a_record_round_trips_and_later_versions_are_refused() {
        assert_eq!(Record::read(&record().text()), Ok(record()));
        let later = record().text().replacen("\"version\":1", "\"version\":2", 1);
        assert!(Record::read(&later).is_err_and(|why| why.contains("version 2")));
        assert!(Record::read("{").is_err());
    }

    #[test]
    fn a_repeated_order_has_no_further_effect() {
        let (record, id) = (record(), record().id().clone());
        let restart = |instance| Verb::Restart { id: id.clone(), generation: record.generation(), instance };
        let Ok(Transition::Restarted(again)) = record.apply(&order(6, restart(1000)), false, 1000) else {
            panic!("a restart")
        };
        assert_eq!((again.instance, again.order.serial), (1001, 6), "a new instance, even within the same millisecond");
        assert!(
            matches!(again.apply(&order(6, restart(1000)), false, 2000), Ok(Transition::Recorded(_))),
            "it was executed before"
        );
        assert!(matches!(record.apply(&order(4, restart(1000)), false, 2000), Err(Outcome::Refused { .. })));
        assert!(matches!(
            record.apply(&order(6, restart(1000)), true, 2000),
            Err(Outcome::Refused { retry: true, .. })
        ));
        assert_eq!(record.apply(&order(6, Verb::Delete { id: id.clone() }), true, 2000), Ok(Transition::Deleted));
        let Ok(Transition::Recorded(drains)) = record.apply(&order(6, Verb::Drain { id: id.clone() }), false, 2000)
        else {
            panic!("it drains")
        };
        let Ok(Transition::Restarted(back)) = drains.apply(&order(7, restart(1000)), false, 2000) else {
            panic!("a restart")
        };
        assert!(drains.draining && !back.draining);
    }
}
