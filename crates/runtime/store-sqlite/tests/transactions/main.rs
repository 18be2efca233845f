//! The core's transactions on a real store. The tests choose all times; nothing sleeps or reads a clock.

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
