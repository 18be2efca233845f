//! `trellis version`.

use std::process::ExitCode;

use trellis_flower::Release;
use trellis_terminal::OutputArgs;

pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (serves Flower 1.25 to 1.42, over gRPC and HTTP)");

pub fn run(output: &OutputArgs) -> ExitCode {
    let flower = serde_json::json!({"oldest": Release::OLDEST.series(), "newest": Release::NEWEST.series()});
    let result = serde_json::json!({"version": env!("CARGO_PKG_VERSION"), "flower": flower});
    output.print(&result, || trellis_terminal::print(&format!("trellis {VERSION}\n")));
    ExitCode::SUCCESS
}
