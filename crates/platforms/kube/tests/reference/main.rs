//! The tests of the operator that this one replaces, reworded: reference R1 to R48 and N1 to N4, as far as they are about objects,
//! including their order (O9).

mod arguments;
mod gpus;
mod pods;
mod scene;
mod services;
mod workloads;
