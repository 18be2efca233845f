//! Flags of a program that does not exist, for the tests of those who read them.

use clap::Args;

use super::args::LogArgs;
use super::flags::{Flags, Program};

const PROGRAM: Program =
    Program { after_help: "", actions: &["check-state"], flower_variables: &[("FLWR_LOG_LEVEL", "log-level")] };

#[derive(Debug, Default, Args)]
pub struct Sample {
    #[arg(long)]
    pub insecure: bool,
    #[arg(long)]
    pub port: Option<String>,
    #[arg(long)]
    pub fleet_api_address: Option<String>,
    #[arg(long, value_delimiter = ',')]
    pub endpoint: Vec<String>,
    #[arg(long)]
    pub ssl_certfile: Option<String>,
    #[arg(long)]
    pub state_dir: Option<String>,
    #[arg(long)]
    pub database: Option<String>,
    #[arg(long)]
    pub object_cache_size: Option<String>,
    #[arg(long)]
    pub config: Option<String>,
    #[arg(long)]
    pub check_state: bool,
    #[arg(long, hide_short_help = true)]
    pub fleet_api_num_workers: Option<String>,
    #[arg(long, hide_short_help = true)]
    pub executor: Option<String>,
    #[command(flatten)]
    pub log: LogArgs,
}

pub fn flags() -> Flags {
    Flags::new::<Sample>("trellis superlink", &PROGRAM)
}
