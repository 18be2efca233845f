//! Supervisor of the programs: systemd in a virtual machine, or this process in containers and on machines of users. It does
//! not decide what runs.

mod direct;
mod systemd;

use crate::failure::Failure;
use crate::place::Place;
use crate::recipe::Recipe;

pub use direct::Direct;
pub use systemd::{Systemd, run, systemctl};

pub enum Supervisor {
    Direct(Direct),
    Systemd(Systemd),
}

/// Action that is necessary to put a recipe in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Nothing,
    Start,
    /// A program runs that differs from the recipe.
    Restart,
}

/// Observed state of the recipe's first program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramStatus {
    /// Differs for each start; `None` if the program does not run.
    pub instance: Option<String>,
    /// How the program ended last, if it ends repeatedly.
    pub failing: Option<String>,
}

impl Supervisor {
    pub async fn change(&self, recipe: &Recipe, place: &Place) -> Change {
        match self {
            Supervisor::Direct(direct) => direct.change(recipe),
            Supervisor::Systemd(systemd) => systemd.change(recipe, place).await,
        }
    }

    /// Applies the recipe. Its files are already written.
    pub async fn apply(&mut self, recipe: &Recipe, place: &Place) -> Result<(), Failure> {
        match self {
            Supervisor::Direct(direct) => direct.apply(recipe, place).await,
            Supervisor::Systemd(systemd) => systemd.apply(recipe, place).await,
        }
    }

    /// Stops all programs and starts them again.
    pub async fn restart(&mut self, recipe: &Recipe, place: &Place) -> Result<(), Failure> {
        match self {
            Supervisor::Direct(direct) => {
                direct.stop().await;
                direct.apply(recipe, place).await
            }
            Supervisor::Systemd(systemd) => systemd.restart(recipe).await,
        }
    }

    pub async fn status(&self, recipe: &Recipe) -> ProgramStatus {
        match self {
            Supervisor::Direct(direct) => direct.status(),
            Supervisor::Systemd(systemd) => systemd.status(recipe).await,
        }
    }

    /// Resolves when a program has ended; with systemd, only the first program is watched.
    pub async fn ended(&self) {
        match self {
            Supervisor::Direct(direct) => direct.ended().await,
            Supervisor::Systemd(systemd) => systemd.ended().await,
        }
    }

    /// Called when the agent ends. Programs under systemd continue.
    pub async fn leave(&mut self) {
        if let Supervisor::Direct(direct) = self {
            direct.stop().await;
        }
    }
}
