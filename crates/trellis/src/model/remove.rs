//! `trellis model rm`

use serde::Serialize;
use trellis_terminal::{Listing, OutputArgs, print};

use super::shelf::Shelves;
use super::{PlaceArgs, failure, run_and_round};
use crate::remote::CommandError;

#[derive(Debug, Serialize)]
struct Removed {
    federation: String,
    run_id: String,
    rounds: Vec<u64>,
}

pub(super) fn run(which: &[String], place: &PlaceArgs, output: &OutputArgs) -> Result<(), CommandError> {
    // All are found before anything is removed.
    let mut found = Vec::new();
    for which in which {
        let (run, round) = run_and_round(which)?;
        let (shelf, run) = Shelves::at(place)?.find(run)?;
        if let Some(round) = round {
            // The error lists the rounds.
            shelf.store.present(&run, round).map_err(failure)?;
        }
        found.push((shelf, run, round));
    }
    let mut removed = Vec::new();
    for (shelf, run_id, round) in found {
        let rounds = match round {
            Some(round) => shelf.store.remove(&run_id, round).map(|()| vec![round]),
            None => shelf.store.remove_run(&run_id),
        };
        removed.push(Removed { federation: shelf.federation, run_id, rounds: rounds.map_err(failure)? });
    }
    output.print(&Listing { items: &removed }, || {
        for Removed { run_id, rounds, .. } in &removed {
            rounds.iter().for_each(|round| print(&format!("{run_id}@{round} removed\n")));
        }
    });
    Ok(())
}
