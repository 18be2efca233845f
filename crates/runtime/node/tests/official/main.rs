//! Official apps, simulated on the wire: the calls in both dialects, calls that must be refused, and apps that die.

mod http;
mod launching;
mod refusals;
mod round;
mod scene;
