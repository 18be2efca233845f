//! How many nodes a pool should have, by what its SuperLink tells.
