//! The `FederationRun` resource: a training of a federation, once or by a schedule.
