//! What is told about a federation in its resource.
