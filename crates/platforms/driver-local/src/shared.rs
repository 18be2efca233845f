//! State shared by all parts: the home, the parts, their ports and GPUs, and the orders.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trellis_files::private;
use trellis_plan::{Orders, Part as Role, ResourceId, Spec, Wake};
use trellis_spec::{Gpu, GpuVendor, Name};

use crate::home::Home;
use crate::part::Part;
use crate::recipe::Ports;
use crate::{gpus, ports};

pub struct Shared {
    pub home: Home,
    /// Our own program.
    pub program: PathBuf,
    pub wake: Wake,
    parts: Mutex<BTreeMap<ResourceId, Arc<Part>>>,
    /// Ports and GPUs of all parts, running or not.
    claims: Mutex<BTreeMap<ResourceId, Claim>>,
    orders: Mutex<BTreeMap<Name, Arc<tokio::sync::Mutex<Orders>>>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    pub ports: Ports,
    pub gpus: Vec<u32>,
}

impl Shared {
    pub fn new(home: Home, program: PathBuf, wake: Wake) -> Shared {
        let (parts, claims, orders) = (Mutex::default(), Mutex::default(), Mutex::default());
        Shared { home, program, wake, parts, claims, orders }
    }

    pub fn part(&self, id: &ResourceId) -> Option<Arc<Part>> {
        locked(&self.parts).get(id).cloned()
    }

    pub fn insert(&self, part: &Arc<Part>, claim: Claim) {
        locked(&self.claims).insert(part.id.clone(), claim);
        locked(&self.parts).insert(part.id.clone(), Arc::clone(part));
    }

    pub fn remove(&self, id: &ResourceId) {
        locked(&self.claims).remove(id);
        locked(&self.parts).remove(id);
    }

    /// Whether the federation has no other part.
    pub fn is_last(&self, id: &ResourceId) -> bool {
        !locked(&self.parts).keys().any(|other| other.federation == id.federation && other != id)
    }

    pub fn parts(&self, is_wanted: impl Fn(&ResourceId) -> bool) -> Vec<Arc<Part>> {
        locked(&self.parts).iter().filter(|(id, _)| is_wanted(id)).map(|(_, part)| Arc::clone(part)).collect()
    }

    /// The coordinator of a federation, if it is on this machine.
    pub fn coordinator(&self, federation: &Name) -> Option<Arc<Part>> {
        let is_it = |id: &ResourceId| id.federation == *federation && id.part == Role::Coordinator;
        self.parts(is_it).into_iter().next()
    }

    /// Assigns ports and GPUs to a part. None of its programs may be running.
    pub fn claim(&self, id: &ResourceId, spec: &Spec, had: &Claim, listen: std::net::IpAddr) -> Result<Claim, String> {
        let mut claims = locked(&self.claims);
        let others = || claims.iter().filter(|(other, _)| *other != id).map(|(_, claim)| claim);
        let taken: BTreeSet<u16> = others().flat_map(|claim| ports::list(&claim.ports)).collect();
        let ports = ports::assign(&self.home.hash(), id, spec, had.ports, listen, &taken)
            .map_err(|problems| problems.join("; "))?;
        let taken: BTreeSet<u32> = others().flat_map(|claim| claim.gpus.iter().copied()).collect();
        let gpus = match gpu(spec) {
            None => Vec::new(),
            Some(gpu) => match gpus::assign(gpu.count, &had.gpus, &taken, gpus::count()) {
                Some(gpus) => gpus,
                None if gpu.fallback_to_cpu => Vec::new(),
                None => return Err(format!("the machine does not have {} free GPUs", gpu.count)),
            },
        };
        let claim = Claim { ports, gpus };
        claims.insert(id.clone(), claim.clone());
        Ok(claim)
    }

    /// The orders of a federation. Locked while a part is created or removed.
    pub fn orders(&self, federation: &Name) -> io::Result<Arc<tokio::sync::Mutex<Orders>>> {
        let mut all = locked(&self.orders);
        if let Some(known) = all.get(federation) {
            return Ok(Arc::clone(known));
        }
        let orders: Orders = private::read_json(&self.home.orders(federation))?.unwrap_or_default();
        let read = Arc::new(tokio::sync::Mutex::new(orders));
        all.insert(federation.clone(), Arc::clone(&read));
        Ok(read)
    }

    pub fn wake(&self, federation: &Name) {
        (self.wake)(federation);
    }
}

/// The GPUs of a spec that are assigned individually.
fn gpu(spec: &Spec) -> Option<&Gpu> {
    match spec {
        Spec::Coordinator(_) => None,
        Spec::Node(spec) => spec.gpu.as_ref().filter(|gpu| gpu.vendor == GpuVendor::Nvidia),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
