//! One part: its record and its programs. Its next step follows from these, and the [`crate::reconciler`] executes it.

use std::io;
use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, Notify};
use trellis_client::NearbyNode;
use trellis_clock::now_ms;
use trellis_plan::{Action, Desired, Millis, Order, Outcome, ResourceId, Verb};

use crate::home::Home;
use crate::process::Process;
use crate::recipe::{Probe, Recipe};
use crate::record::{DesiredState, Record};

pub struct Part {
    pub id: ResourceId,
    state: Mutex<State>,
    /// Notified when the desired state changes.
    pub changed: Notify,
}

pub struct State {
    /// As stored on disk.
    pub record: Record,
    /// Programs that are alive, including those of earlier instances.
    pub running: Vec<Running>,
    /// Why the current instance failed.
    pub failure: Option<Failure>,
    /// Of the current instance; `None` before the launch.
    pub recipe: Option<Arc<Recipe>>,
    /// When the current instance became ready.
    pub ready_ms: Option<Millis>,
    /// Created by this driver: an earlier instance cannot have left processes.
    pub is_new: bool,
    /// Offset in the log at which the current instance begins.
    pub log_from: u64,
    pub removed: bool,
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

/// The next step of the reconciler.
pub enum Step {
    /// Terminate these processes, before any other step.
    Terminate(Vec<Process>),
    Launch,
    /// Wait for changes of this instance.
    Watch(u64),
    /// The part has failed: wait for an order.
    Wait,
    Remove,
}

impl State {
    pub fn new(record: Record, running: Vec<Running>) -> State {
        State {
            record,
            running,
            failure: None,
            recipe: None,
            ready_ms: None,
            is_new: false,
            log_from: 0,
            removed: false,
        }
    }

    pub fn next(&self) -> Step {
        let is_ending = self.record.desired_state == DesiredState::Deleted || self.failure.is_some();
        let is_obsolete =
            |running: &&Running| is_ending || running.instance != self.record.instance || running.role.is_none();
        let obsolete: Vec<Process> =
            self.running.iter().filter(is_obsolete).map(|running| running.process.clone()).collect();
        match self.record.desired_state {
            _ if !obsolete.is_empty() => Step::Terminate(obsolete),
            DesiredState::Deleted => Step::Remove,
            DesiredState::Running if self.failure.is_some() => Step::Wait,
            DesiredState::Running if !self.record.launched => Step::Launch,
            DesiredState::Running => Step::Watch(self.record.instance),
        }
    }

    /// Whether it is starting: programs of an earlier instance are still alive, or those of this instance are not started.
    pub fn is_starting(&self) -> bool {
        !self.record.launched || self.running.iter().any(|running| running.instance != self.record.instance)
    }

    /// Whether a program of the current instance is alive.
    pub fn is_alive(&self, role: usize) -> bool {
        let instance = self.record.instance;
        self.running.iter().any(|running| running.instance == instance && running.role == Some(role))
    }

    pub fn remove_running(&mut self, ended: &Process) {
        self.running.retain(|running| running.process.identity != ended.identity);
    }

    fn supersede(&mut self, record: Record) {
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

    /// `None`: another task holds the lock.
    pub fn peek(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// Applies an order to an existing part. The record is written before the step is executed.
    pub async fn apply(&self, home: &Home, action: &Action) -> Outcome {
        let mut state = self.lock().await;
        if state.removed {
            return refused("it was just removed");
        }
        if let Some(refused) = action.order.too_late(&state.record.order) {
            return refused;
        }
        let done = match &action.verb {
            Verb::Create(desired) => self.create(home, &mut state, desired, action.order).await,
            Verb::Replace(desired) => self.replace(home, &mut state, desired, action.order).await,
            Verb::Restart { generation, instance, .. } => match &state.record {
                record if record.desired_state == DesiredState::Deleted => Ok(refused("it is still stopping")),
                record if record.instance != *instance => self.acknowledge(home, &mut state, action.order).await,
                record if record.generation() != Some(*generation) => Ok(refused("it has another generation")),
                record => {
                    let record = Record { order: action.order, ..record.next_instance(now_ms()) };
                    self.supersede(home, &mut state, record).await
                }
            },
            Verb::Drain { .. } => self.drain(home, &mut state, action.order).await,
            Verb::Delete { .. } => {
                let since_ms =
                    if state.record.desired_state == DesiredState::Deleted { state.record.since_ms } else { now_ms() };
                let record = Record {
                    desired_state: DesiredState::Deleted,
                    order: action.order,
                    since_ms,
                    ..state.record.clone()
                };
                self.store(home, &mut state, record).await.map(|()| Outcome::Started)
            }
        };
        done.unwrap_or_else(|error| Outcome::Failed { why: error.to_string() })
    }

    async fn create(&self, home: &Home, state: &mut State, desired: &Desired, order: Order) -> io::Result<Outcome> {
        match &state.record {
            record if record.desired_state == DesiredState::Deleted => Ok(refused("it is still stopping")),
            record if record.generation() != Some(desired.generation) => Ok(refused("it has another generation")),
            _ => self.acknowledge(home, state, order).await,
        }
    }

    async fn replace(&self, home: &Home, state: &mut State, desired: &Desired, order: Order) -> io::Result<Outcome> {
        match &state.record {
            record if record.desired_state == DesiredState::Deleted => Ok(refused("it is still stopping")),
            record if record.generation() == Some(desired.generation) => self.acknowledge(home, state, order).await,
            record => {
                let record = Record { desired: Some(desired.clone()), order, ..record.next_instance(now_ms()) };
                self.supersede(home, state, record).await
            }
        }
    }

    /// The part is in the desired state or on its way to it: stores only the order.
    async fn acknowledge(&self, home: &Home, state: &mut State, order: Order) -> io::Result<Outcome> {
        if order != state.record.order {
            let record = Record { order, ..state.record.clone() };
            write(home, &record).await?;
            state.record = record;
        }
        Ok(if state.record.launched { Outcome::Done } else { Outcome::Started })
    }

    async fn supersede(&self, home: &Home, state: &mut State, record: Record) -> io::Result<Outcome> {
        write(home, &record).await?;
        state.supersede(record);
        self.changed.notify_one();
        Ok(Outcome::Started)
    }

    async fn store(&self, home: &Home, state: &mut State, record: Record) -> io::Result<()> {
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
                Ok(()) => self.acknowledge(home, state, order).await,
                Err(error) => Ok(Outcome::Failed { why: format!("cannot drain it: {error}") }),
            },
            Some(Probe::SuperLink { .. }) => never("a coordinator cannot be drained"),
            Some(_) => never("an official SuperNode cannot be drained"),
            None => Ok(refused("it has not started yet")),
        }
    }
}

/// Writes and fsyncs the record.
pub async fn write(home: &Home, record: &Record) -> io::Result<()> {
    let (path, record) = (home.record(&record.id), record.clone());
    blocking(move || record.write(&path)).await
}

/// Runs file operations on a thread of their own.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn refused(why: &str) -> Outcome {
    Outcome::Refused { why: why.to_owned(), retry: true }
}
