//! Strategies through their public interface: replies in, a model out.

mod byzantine;
mod coordinates;
mod errors;
mod means;
mod models;
mod rounds;
mod trees;
