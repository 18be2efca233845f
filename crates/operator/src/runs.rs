//! Submits runs that `FederationRun`s ask for, and tells what became of them.
