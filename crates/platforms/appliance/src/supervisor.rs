//! Who keeps the programs running: systemd in a virtual machine, or this process itself, in containers and on machines that
//! are not ours. Neither decides what is to run.

mod direct;
mod systemd;

use crate::place::Place;
use crate::recipe::Recipe;
use crate::trouble::Trouble;

pub use direct::Direct;
pub use systemd::{Systemd, run, systemctl};

pub enum Supervisor {
    Direct(Direct),
    Systemd(Systemd),
}

/// What would have to be done so that a recipe is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Nothing,
    Start,
    /// Something runs that is not what it shall be.
    Restart,
}

/// How the first program of a recipe is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    /// Another for each start; `None`: it does not run.
    pub instance: Option<String>,
    /// It ends again and again: how, last.
    pub failing: Option<String>,
}

impl Supervisor {
    pub async fn change(&self, recipe: &Recipe, place: &Place) -> Change {
        match self {
            Supervisor::Direct(direct) => direct.change(recipe),
            Supervisor::Systemd(systemd) => systemd.change(recipe, place).await,
        }
    }

    /// Makes it so. Its files are there already.
    pub async fn apply(&mut self, recipe: &Recipe, place: &Place) -> Result<(), Trouble> {
        match self {
            Supervisor::Direct(direct) => direct.apply(recipe, place).await,
            Supervisor::Systemd(systemd) => systemd.apply(recipe, place).await,
        }
    }

    /// Ends everything and starts it again.
    pub async fn restart(&mut self, recipe: &Recipe, place: &Place) -> Result<(), Trouble> {
        match self {
            Supervisor::Direct(direct) => {
                direct.stop().await;
                direct.apply(recipe, place).await
            }
            Supervisor::Systemd(systemd) => systemd.restart(recipe).await,
        }
    }

    pub async fn sight(&self, recipe: &Recipe) -> Sight {
        match self {
            Supervisor::Direct(direct) => direct.sight(),
            Supervisor::Systemd(systemd) => systemd.sight(recipe).await,
        }
    }

    /// Resolves when a program ended: of systemd's, the first.
    pub async fn ended(&self) {
        match self {
            Supervisor::Direct(direct) => direct.ended().await,
            Supervisor::Systemd(systemd) => systemd.ended().await,
        }
    }

    /// When we end. What systemd keeps goes on.
    pub async fn leave(&mut self) {
        if let Supervisor::Direct(direct) = self {
            direct.stop().await;
        }
    }
}
