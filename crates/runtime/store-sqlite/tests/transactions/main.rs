//! What the core's transactions do to a real store, at times that the tests choose. Nothing here sleeps or looks at a
//! clock.

mod absent;
mod accounts;
mod audit;
mod claim;
mod clock;
mod ending;
mod enrolment;
mod identity;
mod native;
mod recovery;
mod regressions;
mod reply;
mod round;
mod run_over;
mod scene;
mod secrets;
mod trees;
