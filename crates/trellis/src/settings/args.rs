//! Flags that every program which serves has.

use clap::Args;

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Log (on stderr, and in the file if one is given)")]
pub struct LogArgs {
    /// `text` (coloured on a terminal, unless NO_COLOR is set) or `json` [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,

    /// `error`, `warn`, `info`, `debug` or `trace` [default: info]
    ///
    /// FLWR_LOG_LEVEL is understood too. Finer: filters as in `warn,trellis=debug`.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// Write the log into this file too
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<String>,

    /// Put the log file aside every so many hours, 1 to 8760; 24: at midnight UTC [default: 24]
    #[arg(long, value_name = "HOURS")]
    pub log_rotation_interval_hours: Option<String>,

    /// How many log files that were put aside are kept, at least 1 [default: 7]
    #[arg(long, value_name = "N")]
    pub log_rotation_backup_count: Option<String>,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Configuration and inspection")]
pub struct ConfigArgs {
    /// Read settings from this TOML file; its keys are the flags without their dashes
    ///
    /// Relative paths in the file start from its directory.
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,

    /// Print the settings that would be used, as such a file, and exit
    #[arg(long)]
    pub print_config: bool,
}
