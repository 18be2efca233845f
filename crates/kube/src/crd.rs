//! The definitions of our resources, as the API server takes them.
