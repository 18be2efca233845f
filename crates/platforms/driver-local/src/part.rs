//! One part: its record, its programs, and what is known of them. What is to be done next follows from these; who does it
//! is the [`crate::keeper`].

use std::io;
use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, Notify};
use trellis_client::NearbyNode;
use trellis_clock::now_ms;
use trellis_plan::{Action, Desired, Millis, Order, Outcome, ResourceId, Verb};

use crate::home::Home;
use crate::process::Process;
use crate::recipe::{Probe, Recipe};
use crate::record::{Record, Wish};

pub struct Part {
    pub id: ResourceId,
    state: Mutex<State>,
    /// Something else is wanted than before.
    pub changed: Notify,
}

pub struct State {
    /// As it is on disk.
    pub record: Record,
    /// Programs that live, as far as is known; also of earlier instances.
    pub running: Vec<Running>,
    /// Why the present instance does not work, and will not by itself.
    pub failure: Option<Failure>,
    /// Of the present instance, once it is known.
    pub recipe: Option<Arc<Recipe>>,
    /// The present instance was ready.
    pub ready_ms: Option<Millis>,
    /// It was made just now: nothing can be left of an earlier instance.
    pub is_new: bool,
    /// Where the log of the present instance begins.
    pub log_from: u64,
    pub gone: bool,
}

#[derive(Debug, Clone)]
pub struct Running {
    pub instance: u64,
    /// `None`: it runs to its end, before or after the others.
    pub role: Option<usize>,
    pub process: Process,
}

#[derive(Debug, Clone)]
pub struct Failure {
    pub why: String,
    pub since_ms: Millis,
}

/// What is to be done next.
pub enum Step {
    /// These must end first.
    End(Vec<Process>),
    Launch,
    /// This instance runs, or is about to.
    Watch(u64),
    /// It failed, and waits for somebody to say what to do.
    Rest,
    Remove,
}

impl State {
    pub fn new(record: Record, running: Vec<Running>) -> State {
        State { record, running, failure: None, recipe: None, ready_ms: None, is_new: false, log_from: 0, gone: false }
    }

    pub fn next(&self) -> Step {
        let ends = self.record.wish == Wish::Gone || self.failure.is_some();
        let is_over = |running: &&Running| ends || running.instance != self.record.instance || running.role.is_none();
        let over: Vec<Process> = self.running.iter().filter(is_over).map(|running| running.process.clone()).collect();
        match self.record.wish {
            _ if !over.is_empty() => Step::End(over),
            Wish::Gone => Step::Remove,
            Wish::Running if self.failure.is_some() => Step::Rest,
            Wish::Running if !self.record.launched => Step::Launch,
            Wish::Running => Step::Watch(self.record.instance),
        }
    }

    /// It starts, or is about to: old programs have not ended yet, or the new ones were not started.
    pub fn is_turning(&self) -> bool {
        !self.record.launched || self.running.iter().any(|running| running.instance != self.record.instance)
    }

    /// Whether a program of the present instance lives.
    pub fn has(&self, role: usize) -> bool {
        let instance = self.record.instance;
        self.running.iter().any(|running| running.instance == instance && running.role == Some(role))
    }

    pub fn forget(&mut self, ended: &Process) {
        self.running.retain(|running| running.process.identity != ended.identity);
    }

    fn turn(&mut self, record: Record) {
        *self = State { ready_ms: None, failure: None, recipe: None, is_new: false, record, ..self.take() };
    }

    fn take(&mut self) -> State {
        let running = std::mem::take(&mut self.running);
        State::new(self.record.clone(), running)
    }
}

impl Part {
    pub fn new(id: ResourceId, state: State) -> Arc<Part> {
        Arc::new(Part { id, state: Mutex::new(state), changed: Notify::new() })
    }

    pub async fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().await
    }

    /// `None`: somebody is at it.
    pub fn peek(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// Takes an order for a part that is there. It is on disk before anything is done.
    pub async fn apply(&self, home: &Home, action: &Action) -> Outcome {
        let mut state = self.lock().await;
        if state.gone {
            return refused("it has just gone");
        }
        if let Some(refused) = action.order.too_late(&state.record.order) {
            return refused;
        }
        let done = match &action.verb {
            Verb::Create(desired) => self.create(home, &mut state, desired, action.order).await,
            Verb::Replace(desired) => self.replace(home, &mut state, desired, action.order).await,
            Verb::Restart { generation, instance, .. } => match &state.record {
                record if record.wish == Wish::Gone => Ok(refused("it still stops")),
                record if record.instance != *instance => self.nothing(home, &mut state, action.order).await,
                record if record.generation() != Some(*generation) => Ok(refused("another generation is there")),
                record => {
                    let record = Record { order: action.order, ..record.again(now_ms()) };
                    self.turn(home, &mut state, record).await
                }
            },
            Verb::Drain { .. } => self.drain(home, &mut state, action.order).await,
            Verb::Delete { .. } => {
                let since_ms = if state.record.wish == Wish::Gone { state.record.since_ms } else { now_ms() };
                let record = Record { wish: Wish::Gone, order: action.order, since_ms, ..state.record.clone() };
                self.note(home, &mut state, record).await.map(|()| Outcome::Started)
            }
        };
        done.unwrap_or_else(|error| Outcome::Failed { why: error.to_string() })
    }

    async fn create(&self, home: &Home, state: &mut State, desired: &Desired, order: Order) -> io::Result<Outcome> {
        match &state.record {
            record if record.wish == Wish::Gone => Ok(refused("it still stops")),
            record if record.generation() != Some(desired.generation) => Ok(refused("another generation is there")),
            _ => self.nothing(home, state, order).await,
        }
    }

    async fn replace(&self, home: &Home, state: &mut State, desired: &Desired, order: Order) -> io::Result<Outcome> {
        match &state.record {
            record if record.wish == Wish::Gone => Ok(refused("it still stops")),
            record if record.generation() == Some(desired.generation) => self.nothing(home, state, order).await,
            record => {
                let record = Record { desired: Some(desired.clone()), order, ..record.again(now_ms()) };
                self.turn(home, state, record).await
            }
        }
    }

    /// It is as it was asked to be, or on its way.
    async fn nothing(&self, home: &Home, state: &mut State, order: Order) -> io::Result<Outcome> {
        if order != state.record.order {
            let record = Record { order, ..state.record.clone() };
            write(home, &record).await?;
            state.record = record;
        }
        Ok(if state.record.launched { Outcome::Done } else { Outcome::Started })
    }

    async fn turn(&self, home: &Home, state: &mut State, record: Record) -> io::Result<Outcome> {
        write(home, &record).await?;
        state.turn(record);
        self.changed.notify_one();
        Ok(Outcome::Started)
    }

    async fn note(&self, home: &Home, state: &mut State, record: Record) -> io::Result<()> {
        write(home, &record).await?;
        state.record = record;
        self.changed.notify_one();
        Ok(())
    }

    async fn drain(&self, home: &Home, state: &mut State, order: Order) -> io::Result<Outcome> {
        let never = |why: &str| Ok(Outcome::Refused { why: why.to_owned(), retry: false });
        let probe = state.recipe.as_ref().map(|recipe| recipe.probe.clone());
        match probe {
            Some(Probe::SuperNode { socket }) => match NearbyNode::drain(&socket, true).await {
                Ok(()) => self.nothing(home, state, order).await,
                Err(error) => Ok(Outcome::Failed { why: format!("it could not be told: {error}") }),
            },
            Some(Probe::SuperLink { .. }) => never("a coordinator has no work of its own to finish"),
            Some(_) => never("it cannot be told to take no new work"),
            None => Ok(refused("it has not started yet")),
        }
    }
}

/// On disk when this returns. The disk may be slow: others go on meanwhile.
pub async fn write(home: &Home, record: &Record) -> io::Result<()> {
    let (path, record) = (home.record(&record.id), record.clone());
    blocking(move || record.write(&path)).await
}

/// Work with files, apart from those who wait for other things.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn refused(why: &str) -> Outcome {
    Outcome::Refused { why: why.to_owned(), retry: true }
}
