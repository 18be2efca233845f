//! `trellis version`.

use std::process::ExitCode;

use crate::remote::{self, OutputArgs};

pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (serves Flower 1.25 to 1.42, over gRPC and HTTP)");

pub fn run(output: &OutputArgs) -> ExitCode {
    let told =
        serde_json::json!({"version": env!("CARGO_PKG_VERSION"), "flower": {"oldest": "1.25", "newest": "1.42"}});
    output.print(&told, || remote::print(&format!("trellis {VERSION}\n")));
    ExitCode::SUCCESS
}
