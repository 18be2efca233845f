//! The fleet port: the nodes that the SuperLink of a federation knows.

use std::sync::Arc;

use crate::driver::Call;
use crate::observed::LinkNode;
use crate::planner::Selection;

pub trait Fleet: Send + Sync {
    /// All nodes of the SuperLink at the last observation; `None` if there was none.
    fn nodes(&self) -> Option<Arc<[LinkNode]>>;

    /// Sets which nodes runs may select. Idempotent; a failed call is repeated by the next reconcile.
    fn select<'a>(&'a self, selection: &'a Selection) -> Call<'a, ()>;
}
