//! Runs a program for each VM, in its own process group, with its context in a directory.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Gone, Hypervisor, Machine};
use crate::cloud::Id;

/// Time for a program to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// Queue length of orders for a machine.
const ORDERS: usize = 16;

pub struct Programs {
    command: Vec<String>,
    directory: PathBuf,
    gone: Gone,
    running: Mutex<BTreeMap<Id, Kept>>,
}

/// Order queue and task of a machine.
type Kept = (mpsc::Sender<Order>, JoinHandle<()>);

enum Order {
    Stop { hard: bool },
    Again(Machine),
}

impl Programs {
    /// The program and its arguments; `directory` contains a directory for each VM, `vm-7`.
    pub fn new(command: Vec<String>, directory: PathBuf, gone: Gone) -> Programs {
        Programs { command, directory, gone, running: Mutex::new(BTreeMap::new()) }
    }

    fn order(&self, vm: Id, order: Order) -> bool {
        let running = self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        running.get(&vm).is_some_and(|(orders, _)| orders.try_send(order).is_ok())
    }
}

impl Hypervisor for Programs {
    fn start(&self, machine: Machine) {
        let (orders, received) = mpsc::channel(ORDERS);
        let id = machine.id;
        let place = self.directory.join(format!("vm-{id}"));
        let task = tokio::spawn(keep(self.command.clone(), place, machine, received, Arc::clone(&self.gone)));
        self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(id, (orders, task));
    }

    fn stop(&self, vm: Id, hard: bool) {
        if !self.order(vm, Order::Stop { hard }) {
            (self.gone)(vm);
        }
    }

    fn reboot(&self, machine: Machine) {
        self.order(machine.id, Order::Again(machine));
    }

    fn end(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        Box::pin(async move {
            for (orders, _) in running.values() {
                // The machine is gone.
                let _ = orders.try_send(Order::Stop { hard: false });
            }
            for (_, task) in running.into_values() {
                let _ = task.await;
            }
        })
    }
}

async fn keep(
    command: Vec<String>,
    place: PathBuf,
    mut machine: Machine,
    mut orders: mpsc::Receiver<Order>,
    gone: Gone,
) {
    let id = machine.id;
    loop {
        let mut child = match launch(&command, &place, &machine) {
            Ok(child) => child,
            Err(error) => {
                tracing::error!(vm = id, %error, "the program of the VM cannot be started");
                break gone(id);
            }
        };
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let order = tokio::select! {
            status = child.wait() => {
                tracing::info!(vm = id, ?status, "the program of the VM has ended");
                None
            }
            order = orders.recv() => order.or(Some(Order::Stop { hard: true })),
        };
        match order {
            None => {
                kill(group, Signal::KILL);
                break gone(id);
            }
            Some(order) => {
                finish(&mut child, group, matches!(order, Order::Stop { hard: true })).await;
                match order {
                    Order::Stop { .. } => break gone(id),
                    Order::Again(new) => machine = new,
                }
            }
        }
    }
}

fn launch(command: &[String], place: &std::path::Path, machine: &Machine) -> std::io::Result<Child> {
    machine.write(place)?;
    let log = std::fs::File::options().create(true).append(true).open(place.join("log"))?;
    let (program, arguments) =
        command.split_first().ok_or_else(|| std::io::Error::other("no program is set for VMs"))?;
    Command::new(program)
        .args(arguments)
        .env("FAKE_ONE_VM_DIR", place)
        .env("FAKE_ONE_VM_ID", machine.id.to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn finish(child: &mut Child, group: Option<Pid>, hard: bool) {
    if !hard {
        kill(group, Signal::TERM);
        if tokio::time::timeout(GRACE, child.wait()).await.is_ok() {
            // Also kills children that the program left behind.
            return kill(group, Signal::KILL);
        }
    }
    kill(group, Signal::KILL);
    // SIGKILL cannot be ignored.
    let _ = child.wait().await;
}

fn kill(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // The group is already gone.
        let _ = kill_process_group(group, signal);
    }
}
