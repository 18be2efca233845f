//! Who may still give orders: the latest fence of a federation, and the last orders for resources that are gone. Every driver
//! keeps them where it keeps its own, on disk before an action is begun.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::action::{Order, Outcome};
use crate::resource::ResourceId;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    pub fence: u64,
    /// Of this fence: earlier ones are refused whatever they are about.
    pub gone: BTreeMap<ResourceId, Order>,
}

impl Orders {
    /// Another controller owns the federation from now on.
    pub fn advance(&mut self, fence: u64) -> bool {
        let later = fence > self.fence;
        if later {
            *self = Orders { fence, gone: BTreeMap::new() };
        }
        later
    }

    /// A later controller has given orders already.
    pub fn taken_over(&self, order: &Order) -> Option<Outcome> {
        let why = || "another controller has taken over".to_owned();
        (order.fence < self.fence).then(|| Outcome::Refused { why: why(), retry: false })
    }
}

impl Order {
    /// A later one was carried out already.
    pub fn too_late(&self, latest: &Order) -> Option<Outcome> {
        let why = || "a later order was carried out already".to_owned();
        (self < latest).then(|| Outcome::Refused { why: why(), retry: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_fence_forgets_what_is_gone_and_refuses_the_earlier() {
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
