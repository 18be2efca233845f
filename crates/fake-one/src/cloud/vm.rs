//! VMs: how one is made of a template, and its way from pending to done.

use std::collections::BTreeMap;

use super::{
    Cloud, Holder, Id, ImageState, LcmState, Order, Owned, Refused, Right, VmState, context, network, state_name,
};
use crate::template::{Attribute, Template};

#[derive(Debug, Clone)]
pub struct Vm {
    pub owned: Owned,
    pub state: VmState,
    pub lcm: LcmState,
    pub started: u64,
    pub ended: u64,
    pub last_poll: u64,
    pub deploy_id: String,
    pub template: Template,
    pub user_template: Template,
    pub history: Vec<History>,
    /// Values of the last monitoring, for rules that look at them.
    pub monitoring: Template,
    /// Each start is another.
    pub boots: u64,
    pub(super) next: Option<(u64, Next)>,
    pub(super) aim: Option<Aim>,
}

#[derive(Debug, Clone)]
pub struct History {
    pub host: Id,
    pub started: u64,
    pub ended: u64,
    pub action: i64,
}

/// What time does to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Deploy,
    Boot(LcmState),
    Up,
    Settle,
}

/// Where it comes to rest once it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    Done,
    Poweroff,
    Undeployed,
    Stopped,
    Suspended,
    Again,
}

/// The rest of a template is the user's own.
const OF_THE_MACHINE: [&str; 24] = [
    "BACKUP_CONFIG",
    "CONTEXT",
    "CPU",
    "CPU_MODEL",
    "DISK",
    "EMULATOR",
    "FEATURES",
    "GRAPHICS",
    "INPUT",
    "MEMORY",
    "NIC",
    "NIC_ALIAS",
    "NIC_DEFAULT",
    "NUMA_NODE",
    "OS",
    "PCI",
    "RAW",
    "SCHED_ACTION",
    "SECURITY_GROUP_RULE",
    "SUBMIT_ON_HOLD",
    "TOPOLOGY",
    "VCPU",
    "VIDEO",
    "VMGROUP",
];
const HOSTS: i64 = 2;

impl Vm {
    pub fn is_done(&self) -> bool {
        self.state == VmState::Done
    }

    pub fn is_running(&self) -> bool {
        self.state == VmState::Active && self.lcm == LcmState::Running
    }

    pub fn is_failed(&self) -> bool {
        self.state == VmState::Active && self.lcm.is_failure()
    }

    pub fn address(&self) -> Option<&str> {
        self.template.vector("NIC")?.get("IP").map(String::as_str)
    }

    pub fn context(&self) -> BTreeMap<String, String> {
        self.template.vector("CONTEXT").cloned().unwrap_or_default()
    }

    pub fn service(&self) -> Option<Id> {
        self.user_template.get("SERVICE_ID")?.parse().ok()
    }

    pub fn role(&self) -> Option<&str> {
        self.user_template.get("ROLE_NAME")
    }
}

impl Cloud {
    pub fn instantiate(
        &mut self,
        uid: Id,
        template: Id,
        name: &str,
        hold: bool,
        extra: Template,
    ) -> Result<Id, Refused> {
        let of = self.template(template)?;
        let mut merged = of.template.clone();
        let mut missing = Vec::new();
        if !self.permits(uid, &of.owned, Right::Use) {
            missing.push(format!("Not authorized to perform USE TEMPLATE [{template}]"));
        }
        let base = of.owned.name.clone();
        merged.merge(extra);
        for disk in merged.vectors("DISK") {
            if let Some(image) =
                self.disk_image(uid, disk).filter(|image| !self.permits(uid, &self.images[image].owned, Right::Use))
            {
                missing.push(format!("Not authorized to perform USE IMAGE [{image}]"));
            }
        }
        if !missing.is_empty() {
            return Err(Refused::unauthorised(uid, &missing.join("; ")));
        }
        let name = match name {
            "" => None,
            name => Some(name.to_owned()),
        };
        let named = name.unwrap_or_else(|| format!("{base}-{}", self.vms.len()));
        self.create_vm(uid, &named, hold, merged, Some(template))
    }

    pub fn create_vm(
        &mut self,
        uid: Id,
        name: &str,
        hold: bool,
        given: Template,
        of: Option<Id>,
    ) -> Result<Id, Refused> {
        self.quota(uid)?;
        for (key, _) in [("CPU", ()), ("MEMORY", ())] {
            if given.get(key).is_none_or(str::is_empty) {
                let why = format!("{key} attribute must be a positive float or integer value.");
                return Err(Refused::allocate("virtual machine", &why));
            }
        }
        let id = self.fresh("vm");
        let mut template = Template::default();
        let mut user_template = Template::default();
        for (name, attributes) in given.0 {
            match OF_THE_MACHINE.contains(&name.as_str()) {
                true => template.0.insert(name, attributes),
                false if name == "NAME" || name == "TEMPLATE_ID" => None,
                false => user_template.0.insert(name, attributes),
            };
        }
        let made = self.fill(id, uid, name, &mut template, &user_template, of);
        let waits = match made {
            Ok(waits) => waits,
            Err(refused) => {
                self.release_leases(&Holder::Vm(id));
                self.images_left(id);
                return Err(refused);
            }
        };
        let state = match (waits, hold) {
            (true, _) => VmState::Cloning,
            (false, true) => VmState::Hold,
            (false, false) => VmState::Pending,
        };
        let next = (state == VmState::Pending).then(|| (self.now_ms + self.pace.schedule_ms, Next::Deploy));
        let vm = Vm {
            owned: self.owned(id, uid, name),
            state,
            lcm: LcmState::Init,
            started: self.now_s(),
            ended: 0,
            last_poll: 0,
            deploy_id: String::new(),
            template,
            user_template,
            history: Vec::new(),
            monitoring: Template::default(),
            boots: 0,
            next,
            aim: None,
        };
        self.vms.insert(id, vm);
        self.record(id, "VM_STATE", None, Some(state_name(state, LcmState::Init).to_owned()), "cloud");
        Ok(id)
    }

    /// Disks, NICs, context. Says whether the VM has to wait for an image that is still copied.
    fn fill(
        &mut self,
        id: Id,
        uid: Id,
        name: &str,
        template: &mut Template,
        user_template: &Template,
        of: Option<Id>,
    ) -> Result<bool, Refused> {
        let mut waits = false;
        let disks: Vec<_> = template.vectors("DISK").cloned().collect();
        let count = disks.len();
        template.erase("DISK");
        for (number, disk) in disks.into_iter().enumerate() {
            waits |= self.add_disk(id, uid, number, disk, template)?;
        }
        let nics: Vec<_> = template.vectors("NIC").cloned().collect();
        template.erase("NIC");
        for (number, nic) in nics.into_iter().enumerate() {
            self.add_nic(id, uid, number, nic, template)?;
        }
        for (key, value) in [
            ("AUTOMATIC_DS_REQUIREMENTS", "(\"CLUSTERS/ID\" @> 0)".to_owned()),
            ("AUTOMATIC_NIC_REQUIREMENTS", "(\"CLUSTERS/ID\" @> 0)".to_owned()),
            ("AUTOMATIC_REQUIREMENTS", "(CLUSTER_ID = 0) & !(PIN_POLICY = PINNED)".to_owned()),
            ("CREATED_BY", uid.to_string()),
            ("TM_MAD_SYSTEM", "dummy".to_owned()),
            ("VMID", id.to_string()),
        ] {
            template.set(key, value);
        }
        if let Some(of) = of {
            template.set("TEMPLATE_ID", of);
        }
        if template.get("VCPU").is_none() {
            template.set("VCPU", "1");
        }
        let mut graphics = template.vector("GRAPHICS").cloned().unwrap_or_default();
        if !graphics.is_empty() {
            graphics.insert("PORT".to_owned(), (5900 + id).to_string());
            template.set_vector("GRAPHICS", graphics);
        }
        let mut os = template.vector("OS").cloned().unwrap_or_default();
        let (high, low) = (self.random(), self.random());
        let uuid = format!(
            "{:08x}-{:04x}-4{:03x}-9{:03x}-{:012x}",
            high as u32,
            (high >> 32) as u16,
            high >> 52,
            low & 0xfff,
            low >> 16
        );
        os.insert("UUID".to_owned(), uuid);
        template.set_vector("OS", os);
        let context = context::filled(self, id, uid, name, template, user_template, count);
        if let Some(context) = context {
            template.set_vector("CONTEXT", context);
        }
        Ok(waits)
    }

    fn disk_image(&self, uid: Id, disk: &BTreeMap<String, String>) -> Option<Id> {
        if let Some(id) = disk.get("IMAGE_ID") {
            return id.parse().ok().filter(|id| self.images.contains_key(id));
        }
        let name = disk.get("IMAGE")?;
        let owner = match disk.get("IMAGE_UNAME") {
            Some(owner) => self.users.values().find(|user| user.name == *owner)?.id,
            None => uid,
        };
        self.images
            .values()
            .find(|image| image.owned.name == *name && image.owned.uid == owner)
            .map(|image| image.owned.id)
    }

    fn add_disk(
        &mut self,
        id: Id,
        uid: Id,
        number: usize,
        mut disk: BTreeMap<String, String>,
        template: &mut Template,
    ) -> Result<bool, Refused> {
        let mut set = |key: &str, value: String| disk.insert(key.to_owned(), value);
        set("DISK_ID", number.to_string());
        set("CLUSTER_ID", "0".to_owned());
        let mut waits = false;
        let volatile = !disk.contains_key("IMAGE") && !disk.contains_key("IMAGE_ID");
        if !volatile {
            let Some(image) = self.disk_image(uid, &disk) else {
                let wanted = disk.get("IMAGE").or(disk.get("IMAGE_ID")).cloned().unwrap_or_default();
                let why = format!("Cannot get IMAGE_ID for image {wanted}: it does not exist or you do not own it.");
                return Err(Refused::allocate("virtual machine", &why));
            };
            let found = self.images[&image].clone();
            if matches!(found.state, ImageState::Error | ImageState::Disabled | ImageState::UsedPersistent) {
                let why = format!("Cannot acquire image {image}, it is in state {:?}.", found.state);
                return Err(Refused::allocate("virtual machine", &why));
            }
            waits = found.state == ImageState::Locked;
            self.image_used(image, id);
            for (key, value) in [
                ("ALLOW_ORPHANS", "NO".to_owned()),
                ("CLONE", if found.persistent { "NO" } else { "YES" }.to_owned()),
                ("CLONE_TARGET", "SYSTEM".to_owned()),
                ("DATASTORE", "default".to_owned()),
                ("DATASTORE_ID", found.datastore.to_string()),
                ("DEV_PREFIX", found.template.get("DEV_PREFIX").unwrap_or("vd").to_owned()),
                ("DISK_SNAPSHOT_TOTAL_SIZE", "0".to_owned()),
                ("DISK_TYPE", "FILE".to_owned()),
                ("DRIVER", "dummy_format".to_owned()),
                ("FORMAT", "dummy_format".to_owned()),
                ("IMAGE", found.owned.name.clone()),
                ("IMAGE_ID", image.to_string()),
                ("IMAGE_STATE", "2".to_owned()),
                ("IMAGE_UNAME", self.user_name(found.owned.uid)),
                ("LN_TARGET", "NONE".to_owned()),
                ("ORIGINAL_SIZE", found.size_mb.to_string()),
                ("PERSISTENT_SNAPSHOTS", "YES".to_owned()),
                ("READONLY", "NO".to_owned()),
                ("SAVE", if found.persistent { "YES" } else { "NO" }.to_owned()),
                ("SOURCE", "dummy_path".to_owned()),
                ("TARGET", format!("vd{}", (b'a' + (number % 26) as u8) as char)),
                ("TM_MAD", "dummy".to_owned()),
                ("TYPE", "FILE".to_owned()),
            ] {
                disk.insert(key.to_owned(), value);
            }
            disk.entry("SIZE".to_owned()).or_insert_with(|| found.size_mb.to_string());
        }
        template.add("DISK", Attribute::Vector(disk));
        Ok(waits)
    }

    fn add_nic(
        &mut self,
        id: Id,
        uid: Id,
        number: usize,
        mut nic: BTreeMap<String, String>,
        template: &mut Template,
    ) -> Result<(), Refused> {
        let by_id = nic.get("NETWORK_ID").and_then(|id| id.parse::<Id>().ok());
        let found = match by_id {
            Some(id) => self.networks.get(&id),
            None => {
                nic.get("NETWORK").and_then(|name| self.networks.values().find(|network| network.owned.name == *name))
            }
        };
        let Some(found) = found.cloned() else {
            let wanted = nic.get("NETWORK_ID").or(nic.get("NETWORK")).cloned().unwrap_or_default();
            let why = format!("Cannot get NETWORK_ID for network {wanted}: it does not exist or you do not own it.");
            return Err(Refused::allocate("virtual machine", &why));
        };
        self.check(uid, &found.owned, Right::Use, "NET")?;
        let wanted = nic.get("IP").and_then(|ip| ip.parse().ok());
        let (ip, range) = self.lease(found.owned.id, wanted, &Holder::Vm(id))?;
        let of = |key: &str| found.template.get(key).unwrap_or_default().to_owned();
        for (key, value) in [
            ("AR_ID", range.to_string()),
            ("BRIDGE", of("BRIDGE")),
            ("BRIDGE_TYPE", of("BRIDGE_TYPE")),
            ("CLUSTER_ID", "0".to_owned()),
            ("IP", ip.to_string()),
            ("MAC", network::mac(ip)),
            ("NETWORK", found.owned.name.clone()),
            ("NETWORK_ID", found.owned.id.to_string()),
            ("NETWORK_UNAME", self.user_name(found.owned.uid)),
            ("NIC_ID", number.to_string()),
            ("SECURITY_GROUPS", of("SECURITY_GROUPS")),
            ("TARGET", format!("one-{id}-{number}")),
            ("VN_MAD", of("VN_MAD")),
        ] {
            nic.insert(key.to_owned(), value);
        }
        for key in ["DNS", "GATEWAY"] {
            if let Some(value) = found.template.get(key).filter(|value| !value.is_empty()) {
                nic.insert(key.to_owned(), value.to_owned());
            }
        }
        if let Some(parent) = found.parent {
            nic.insert("PARENT_NETWORK_ID".to_owned(), parent.to_string());
        }
        nic.entry("NAME".to_owned()).or_insert_with(|| format!("NIC{number}"));
        template.add("NIC", Attribute::Vector(nic));
        if template.vectors("SECURITY_GROUP_RULE").next().is_none() {
            for way in ["OUTBOUND", "INBOUND"] {
                let rule = [
                    ("PROTOCOL", "ALL"),
                    ("RULE_TYPE", way),
                    ("SECURITY_GROUP_ID", "0"),
                    ("SECURITY_GROUP_NAME", "default"),
                ];
                let rule = rule.map(|(key, value)| (key.to_owned(), value.to_owned()));
                template.add("SECURITY_GROUP_RULE", Attribute::Vector(rule.into()));
            }
        }
        Ok(())
    }

    pub fn turn(&mut self, id: Id, state: VmState, lcm: LcmState) {
        let now = self.now_s();
        let Some(vm) = self.vms.get_mut(&id) else { return };
        let old = state_name(vm.state, vm.lcm).to_owned();
        (vm.state, vm.lcm) = (state, lcm);
        let rests = state != VmState::Active;
        if rests && let Some(last) = vm.history.last_mut().filter(|last| last.ended == 0) {
            last.ended = now;
        }
        if state == VmState::Done {
            vm.ended = now;
        }
        self.record(id, "VM_STATE", Some(old), Some(state_name(state, lcm).to_owned()), "cloud");
        if state == VmState::Done {
            self.release_leases(&Holder::Vm(id));
            self.images_left(id);
        }
    }

    pub(super) fn advance_vms(&mut self) {
        let ids: Vec<Id> = self.vms.values().filter(|vm| !vm.is_done()).map(|vm| vm.owned.id).collect();
        for id in ids {
            let next = self.vms[&id].next;
            if self.vms[&id].state == VmState::Cloning && self.images_ready(id) {
                self.turn(id, VmState::Pending, LcmState::Init);
                self.after(id, self.pace.schedule_ms, Next::Deploy);
            } else if let Some((_, next)) = next.filter(|(at_ms, _)| *at_ms <= self.now_ms) {
                self.vms.get_mut(&id).expect("it is there").next = None;
                self.step(id, next);
            }
        }
    }

    fn images_ready(&mut self, id: Id) -> bool {
        let mut used = self.images.values_mut().filter(|image| image.vms.contains(&id));
        used.all(|image| {
            if image.state == ImageState::Ready {
                image.state = ImageState::Used;
            }
            image.state != ImageState::Locked && image.state != ImageState::Error
        })
    }

    pub(super) fn after(&mut self, id: Id, wait_ms: u64, next: Next) {
        let at_ms = self.now_ms + wait_ms;
        if let Some(vm) = self.vms.get_mut(&id) {
            vm.next = Some((at_ms, next));
        }
    }

    fn step(&mut self, id: Id, next: Next) {
        match next {
            Next::Deploy => {
                let (lcm, boot) = match self.vms[&id].boots {
                    0 => (LcmState::Prolog, LcmState::Boot),
                    _ => (LcmState::PrologUndeploy, LcmState::BootUndeploy),
                };
                self.turn(id, VmState::Active, lcm);
                let now = self.now_s();
                let vm = self.vms.get_mut(&id).expect("it is there");
                let host = id % HOSTS;
                vm.history.push(History { host, started: now, ended: 0, action: 0 });
                let machine = if host == 0 { "dummy-a" } else { "dummy-b" };
                vm.deploy_id = format!("{machine}:{}:dummy", vm.owned.name);
                self.after(id, self.pace.prolog_ms, Next::Boot(boot));
            }
            Next::Boot(lcm) => self.boot(id, lcm),
            Next::Up => {
                let now = self.now_s();
                let vm = self.vms.get_mut(&id).expect("it is there");
                vm.last_poll = now;
                self.turn(id, VmState::Active, LcmState::Running);
            }
            Next::Settle => self.settle(id),
        }
    }

    pub(super) fn boot(&mut self, id: Id, lcm: LcmState) {
        let name = self.vms[&id].owned.name.clone();
        self.turn(id, VmState::Active, lcm);
        if self.faults.takes_boot(&name) {
            self.turn(id, VmState::Active, LcmState::BootFailure);
            return;
        }
        let vm = self.vms.get_mut(&id).expect("it is there");
        vm.boots += 1;
        self.orders.push(Order::Start(id));
        self.after(id, self.pace.boot_ms, Next::Up);
    }

    /// The hypervisor says that the machine is gone.
    pub fn machine_gone(&mut self, id: Id) {
        let Some(vm) = self.vms.get(&id) else { return };
        match vm.aim {
            Some(aim) if vm.state == VmState::Active => {
                match aim {
                    Aim::Done => self.turn(id, VmState::Active, LcmState::Epilog),
                    Aim::Undeployed => self.turn(id, VmState::Active, LcmState::EpilogUndeploy),
                    Aim::Stopped => self.turn(id, VmState::Active, LcmState::EpilogStop),
                    Aim::Poweroff | Aim::Suspended | Aim::Again => {}
                }
                self.after(id, self.pace.shutdown_ms, Next::Settle);
            }
            None if vm.state == VmState::Active && !vm.lcm.is_failure() => {
                // It shut itself down.
                self.vms.get_mut(&id).expect("it is there").next = None;
                self.turn(id, VmState::Poweroff, LcmState::Init);
            }
            _ => {}
        }
    }

    fn settle(&mut self, id: Id) {
        let vm = self.vms.get_mut(&id).expect("it is there");
        let state = match vm.aim.take() {
            Some(Aim::Done) => VmState::Done,
            Some(Aim::Undeployed) => VmState::Undeployed,
            Some(Aim::Stopped) => VmState::Stopped,
            Some(Aim::Suspended) => VmState::Suspended,
            Some(Aim::Again) => VmState::Pending,
            Some(Aim::Poweroff) | None => VmState::Poweroff,
        };
        self.turn(id, state, LcmState::Init);
        if state == VmState::Pending {
            self.after(id, self.pace.schedule_ms, Next::Deploy);
        }
    }
}
