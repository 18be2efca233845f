//! Complete trainings through the sockets of a SuperLink: their results, and failures.

mod failures;
mod nodes;
mod outcome;
mod resume;
mod scene;
