//! Creation of a VM from a template: disks, addresses, context.

use std::collections::BTreeMap;

use super::vm::Next;
use super::{Cloud, Holder, Id, ImageState, LcmState, Refused, Right, Vm, VmState, context, network, state_name};
use crate::template::{Attribute, Template};

/// Other attributes of a template go to the user template.
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
        self.note_right(uid, Right::Use, "TEMPLATE");
        if !self.permits(uid, &of.owned, Right::Use) {
            missing.push(format!("Not authorized to perform USE TEMPLATE [{template}]"));
        }
        let base = of.owned.name.clone();
        merged.merge(extra);
        for disk in merged.vectors("DISK") {
            self.note_right(uid, Right::Use, "IMAGE");
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
        self.check_create(uid, "VM")?;
        self.quota(uid, &given)?;
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
        if hold {
            template.set("SUBMIT_ON_HOLD", "YES");
        }
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

    /// Creates disks, NICs and context. Returns whether the VM waits for an image that is being copied.
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
}
