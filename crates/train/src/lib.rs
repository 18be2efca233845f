//! The native ServerApp: rounds of training, from the first model to the last checkpoint.
