//! Which orders a driver still accepts: the latest fence of a federation, and the last orders for deleted resources. Every driver
//! stores them durably before it starts an action.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::action::{Order, Outcome};
use crate::resource::ResourceId;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    pub fence: u64,
    /// Orders of this fence. Orders of earlier fences are always refused.
    pub gone: BTreeMap<ResourceId, Order>,
}

impl Orders {
    /// Sets a later fence: another controller owns the federation. Returns whether the fence is later.
    pub fn advance(&mut self, fence: u64) -> bool {
        let later = fence > self.fence;
        if later {
            *self = Orders { fence, gone: BTreeMap::new() };
        }
        later
    }

    /// Refuses an order of an earlier fence.
    pub fn taken_over(&self, order: &Order) -> Option<Outcome> {
        let why = || "another controller has taken over".to_owned();
        (order.fence < self.fence).then(|| Outcome::Refused { why: why(), retry: false })
    }
}

impl Order {
    /// Refuses this order if a later one was applied.
    pub fn too_late(&self, latest: &Order) -> Option<Outcome> {
        let why = || "a later order was applied already".to_owned();
        (self < latest).then(|| Outcome::Refused { why: why(), retry: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_fence_forgets_deleted_resources_and_refuses_earlier_fences() {
        let id = ResourceId::try_from("f/s/coordinator".to_owned()).expect("an id");
        let order = |fence, serial| Order { fence, serial };
        let mut orders = Orders { fence: 2, gone: BTreeMap::from([(id, order(2, 7))]) };
        assert!(!orders.advance(1) && !orders.advance(2));
        assert_eq!(orders.gone.len(), 1);
        assert!(orders.taken_over(&order(2, 0)).is_none());
        assert!(orders.advance(3) && orders.gone.is_empty());
        assert!(matches!(orders.taken_over(&order(2, 9)), Some(Outcome::Refused { retry: false, .. })));
        assert!(order(3, 1).too_late(&order(3, 1)).is_none());
        assert!(matches!(order(3, 0).too_late(&order(3, 1)), Some(Outcome::Refused { retry: true, .. })));
    }
}
