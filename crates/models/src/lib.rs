//! Models on disk: checkpoints that a run goes on from, and what is exported from them.
