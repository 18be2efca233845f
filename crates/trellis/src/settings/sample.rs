//! Settings of an example program, for tests of their readers.

use trellis_logging::LogSettings;

use super::flags::Flags;
use super::log::log_group;
use super::table::Role::{Action, OfFlower};
use super::table::{Program, group};

#[derive(Default)]
struct Sample {
    log: LogSettings,
}

static PROGRAM: Program<Sample> = Program {
    about: "",
    after_help: "",
    groups: &[
        group! { "";
            "insecure";
            "port" "PORT";
            "fleet-api-address" "ADDRESS";
            "endpoint" ["HOST"];
            "ssl-certfile" "FILE";
            "state-dir" "DIR";
            "database" "FILE";
            "object-cache-size" "SIZE";
            "config" "FILE";
            "check-state" (Action);
            "fleet-api-num-workers" (OfFlower) "N";
            "executor" (OfFlower) "NAME";
        },
        log_group!(),
    ],
    subcommands: |command| command,
};

pub fn flags() -> Flags {
    Flags::new("trellis superlink", &PROGRAM)
}
