//! Strategies as their users see them: replies in, a model out.

mod byzantine;
mod coordinates;
mod faults;
mod means;
mod models;
mod rounds;
mod trees;
