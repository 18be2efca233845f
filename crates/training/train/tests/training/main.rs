//! Whole trainings, through the sockets of a SuperLink: what comes out, and what happens when something goes wrong.

mod nodes;
mod outcome;
mod resume;
mod scene;
mod trouble;
