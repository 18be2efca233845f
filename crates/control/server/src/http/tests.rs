//! The API as its callers meet it, in front of a platform with simulated sites.

mod access;
mod calls;
mod desk;
mod federations;
mod models;
mod plans;
mod port;
mod repeats;
mod streams;
