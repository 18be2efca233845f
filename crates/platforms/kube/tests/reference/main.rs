//! What the tests of the operator this one takes the place of hold, in our words: reference R1 to R48 and N1 to N4, as far as they
//! are about objects. Order is part of it (O9).

mod arguments;
mod gpus;
mod pods;
mod scene;
mod services;
mod workloads;
