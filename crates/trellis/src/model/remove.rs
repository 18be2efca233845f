//! `trellis model rm`

use serde::Serialize;

use super::shelf::Shelves;
use super::{PlaceArgs, run_and_round, trouble};
use crate::remote::{Listing, OutputArgs, Trouble, print};

#[derive(Debug, Serialize)]
struct Removed {
    federation: String,
    run_id: String,
    rounds: Vec<u64>,
}

pub(super) fn run(which: &[String], place: &PlaceArgs, output: &OutputArgs) -> Result<(), Trouble> {
    // All are found before anything is removed.
    let mut found = Vec::new();
    for which in which {
        let (run, round) = run_and_round(which)?;
        let (shelf, run) = Shelves::at(place)?.find(run)?;
        if let Some(round) = round {
            // Says which rounds there are.
            shelf.store.present(&run, round).map_err(trouble)?;
        }
        found.push((shelf, run, round));
    }
    let mut removed = Vec::new();
    for (shelf, run_id, round) in found {
        let rounds = match round {
            Some(round) => shelf.store.remove(&run_id, round).map(|()| vec![round]),
            None => shelf.store.remove_run(&run_id),
        };
        removed.push(Removed { federation: shelf.federation, run_id, rounds: rounds.map_err(trouble)? });
    }
    output.print(&Listing { items: &removed }, || {
        for Removed { run_id, rounds, .. } in &removed {
            rounds.iter().for_each(|round| print(&format!("{run_id}@{round} removed\n")));
        }
    });
    Ok(())
}
