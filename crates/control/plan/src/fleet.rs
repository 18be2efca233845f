//! The fleet port: the SuperLink of a federation, as far as the planner is concerned with its nodes.

use std::sync::Arc;

use crate::driver::Call;
use crate::observed::LinkNode;
use crate::planner::Selection;

pub trait Fleet: Send + Sync {
    /// All nodes that the SuperLink has, as last heard; `None`: it has not said.
    fn nodes(&self) -> Option<Arc<[LinkNode]>>;

    /// Tells the SuperLink which nodes runs may select. May be repeated; what was not heard is told again at the next pass.
    fn select<'a>(&'a self, selection: &'a Selection) -> Call<'a, ()>;
}
