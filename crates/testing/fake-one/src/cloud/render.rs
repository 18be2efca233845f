//! XML of oned's objects, with the elements of recorded ones.

use serde_json::{Map, Value, json};

use super::image::DATASTORES;
use super::{Cloud, Document, Holder, Id, Image, Network, Owned, Service, User, Vm, VmState, VmTemplate, network};
use crate::element::Element;

const RIGHTS: [&str; 9] =
    ["OWNER_U", "OWNER_M", "OWNER_A", "GROUP_U", "GROUP_M", "GROUP_A", "OTHER_U", "OTHER_M", "OTHER_A"];

fn plain(name: &str, text: impl ToString) -> Element {
    Element::plain(name, text)
}

fn free(name: &str, text: impl ToString) -> Element {
    Element::free(name, text)
}

fn ids(name: &str, ids: impl IntoIterator<Item = Id>) -> Element {
    Element::of(name, ids.into_iter().map(|id| plain("ID", id)).collect())
}

fn empty(name: &str) -> Element {
    Element::of(name, Vec::new())
}

impl Cloud {
    fn head(&self, owned: &Owned) -> Vec<Element> {
        vec![
            plain("ID", owned.id),
            plain("UID", owned.uid),
            plain("GID", owned.gid),
            plain("UNAME", self.user_name(owned.uid)),
            plain("GNAME", Cloud::group_name(owned.gid)),
            plain("NAME", &owned.name),
        ]
    }

    pub fn vm_element(&self, vm: &Vm) -> Element {
        let mut parts = self.head(&vm.owned);
        parts.push(permissions(&vm.owned));
        parts.extend(times(vm, true));
        parts.push(Element::of("MONITORING", vm.monitoring.elements()));
        parts.push(empty("SCHED_ACTIONS"));
        parts.push(Element::of("TEMPLATE", vm.template.elements()));
        parts.push(Element::of("USER_TEMPLATE", vm.user_template.elements()));
        parts.push(history(vm));
        parts.push(Element::of("BACKUPS", vec![empty("BACKUP_CONFIG"), empty("BACKUP_IDS")]));
        Element::of("VM", parts)
    }

    pub fn image_element(&self, image: &Image) -> Element {
        let mut parts = self.head(&image.owned);
        parts.push(permissions(&image.owned));
        parts.extend(lock(&image.owned));
        parts.extend([
            plain("TYPE", image.kind),
            plain("DISK_TYPE", 0),
            plain("PERSISTENT", u8::from(image.persistent)),
            plain("REGTIME", image.registered),
            plain("MODTIME", image.registered),
            free("SOURCE", "dummy_path"),
            free("PATH", &image.path),
            free("FORMAT", "dummy_format"),
            free("FS", ""),
            plain("SIZE", image.size_mb),
            plain("STATE", image.state as i64),
            plain("PREV_STATE", image.state as i64),
            plain("RUNNING_VMS", image.vms.len()),
            plain("CLONING_OPS", 0),
            plain("CLONING_ID", -1),
            plain("TARGET_SNAPSHOT", -1),
            plain("DATASTORE_ID", image.datastore),
            plain(
                "DATASTORE",
                DATASTORES.iter().find(|(id, ..)| *id == image.datastore).map_or("", |(_, name, _)| *name),
            ),
            ids("VMS", image.vms.iter().copied()),
            empty("CLONES"),
            empty("APP_CLONES"),
            Element::of("TEMPLATE", image.template.elements()),
            Element::of(
                "SNAPSHOTS",
                vec![free("ALLOW_ORPHANS", "NO"), free("CURRENT_BASE", -1), free("NEXT_SNAPSHOT", 0)],
            ),
            empty("BACKUP_INCREMENTS"),
            empty("BACKUP_DISK_IDS"),
        ]);
        Element::of("IMAGE", parts)
    }

    pub fn template_element(&self, template: &VmTemplate) -> Element {
        let mut parts = self.head(&template.owned);
        parts.push(permissions(&template.owned));
        parts.extend(lock(&template.owned));
        parts.push(plain("REGTIME", template.registered));
        parts.push(Element::of("TEMPLATE", template.template.elements()));
        Element::of("VMTEMPLATE", parts)
    }

    /// Pools contain no leases.
    pub fn network_element(&self, known: &Network, whole: bool) -> Element {
        let of = |key: &str| known.template.get(key).unwrap_or_default().to_owned();
        let used: usize = known.ranges.iter().map(|range| range.leases.len()).sum();
        let vms = known.ranges.iter().flat_map(|range| range.leases.values()).filter_map(|holder| match holder {
            Holder::Vm(id) => Some(*id),
            _ => None,
        });
        let mut parts = self.head(&known.owned);
        parts.push(permissions(&known.owned));
        parts.extend([
            ids("CLUSTERS", [0]),
            free("BRIDGE", of("BRIDGE")),
            free("BRIDGE_TYPE", of("BRIDGE_TYPE")),
            free("STATE", 1),
            free("PREV_STATE", 1),
            plain("PARENT_NETWORK_ID", known.parent.map(|id| id.to_string()).unwrap_or_default()),
            plain("TEMPLATE_ID", ""),
            free("VN_MAD", of("VN_MAD")),
            plain("PHYDEV", of("PHYDEV")),
            plain("VLAN_ID", of("VLAN_ID")),
            plain("OUTER_VLAN_ID", of("OUTER_VLAN_ID")),
            plain("VLAN_ID_AUTOMATIC", 0),
            plain("OUTER_VLAN_ID_AUTOMATIC", 0),
            plain("USED_LEASES", used),
            empty("VROUTERS"),
            ids("UPDATED_VMS", vms),
            empty("OUTDATED_VMS"),
            empty("UPDATING_VMS"),
            empty("ERROR_VMS"),
            Element::of("TEMPLATE", known.template.elements()),
            Element::of("AR_POOL", known.ranges.iter().map(|range| range_element(range, whole)).collect()),
        ]);
        Element::of("VNET", parts)
    }

    pub fn user_element(&self, user: &User) -> Element {
        let mut parts = vec![
            plain("ID", user.id),
            plain("GID", user.gid),
            ids("GROUPS", [user.gid]),
            plain("GNAME", Cloud::group_name(user.gid)),
            plain("NAME", &user.name),
            free("PASSWORD", trellis_digest::sha256_hex(user.password.as_bytes())),
            free("AUTH_DRIVER", "core"),
            plain("ENABLED", 1),
        ];
        parts.extend(user.tokens.iter().map(|token| {
            let expiry = plain("EXPIRATION_TIME", self.now_s() + 3600);
            Element::of("LOGIN_TOKEN", vec![plain("TOKEN", token), expiry, plain("EGID", -1)])
        }));
        parts.push(Element::of("TEMPLATE", user.template.elements()));
        Element::of("USER", parts)
    }

    /// A user with quota usage.
    pub fn quota_elements(&self, user: &User) -> Vec<Element> {
        let limits = user.vm_quota.iter().flat_map(|(metric, limit)| {
            let used = self.used(user.id, metric);
            [free(metric, limit.to_string()), free(&format!("{metric}_USED"), used.to_string())]
        });
        let limits: Vec<Element> = limits.collect();
        let vms = if limits.is_empty() { Vec::new() } else { vec![Element::of("VM", limits)] };
        vec![empty("DATASTORE_QUOTA"), empty("NETWORK_QUOTA"), Element::of("VM_QUOTA", vms), empty("IMAGE_QUOTA")]
    }

    pub fn document_head(&self, owned: &Owned, kind: i64) -> Vec<Element> {
        let mut parts = self.head(owned);
        parts.push(plain("TYPE", kind));
        parts.push(permissions(owned));
        parts.extend(lock(owned));
        parts
    }

    /// OneFlow's form: all values are text, but the body is JSON.
    pub fn document_json(&self, owned: &Owned, kind: i64, body: Map<String, Value>) -> Value {
        let mut shown = Element::of("DOCUMENT", self.document_head(owned, kind)).to_json();
        shown["TEMPLATE"] = json!({"BODY": body});
        shown
    }

    pub fn service_json(&self, service: &Service) -> Value {
        self.document_json(&service.owned, super::document::SERVICE, service.body_json())
    }
}

pub fn document_element(cloud: &Cloud, document: &Document) -> Element {
    let mut parts = cloud.document_head(&document.owned, document.kind);
    let mut template = document.template.clone();
    if let Some(body) = &document.body {
        template.set("BODY", Value::Object(body.clone()));
    }
    parts.push(Element::of("TEMPLATE", template.elements()));
    Element::of("DOCUMENT", parts)
}

fn permissions(owned: &Owned) -> Element {
    let rights = RIGHTS.iter().zip(owned.permissions);
    Element::of("PERMISSIONS", rights.map(|(name, given)| plain(name, u8::from(given))).collect())
}

fn lock(owned: &Owned) -> Option<Element> {
    let lock = owned.lock.as_ref()?;
    let parts =
        vec![plain("LOCKED", lock.level), plain("OWNER", lock.owner), plain("TIME", lock.time), plain("REQ_ID", 0)];
    Some(Element::of("LOCK", parts))
}

fn times(vm: &Vm, whole: bool) -> Vec<Element> {
    let (state, lcm) = (vm.state as i64, vm.lcm as i64);
    let mut parts = vec![plain("LAST_POLL", vm.last_poll), plain("STATE", state), plain("LCM_STATE", lcm)];
    if whole {
        parts.extend([plain("PREV_STATE", state), plain("PREV_LCM_STATE", lcm)]);
    }
    let deployed = plain("DEPLOY_ID", &vm.deploy_id);
    parts.extend([plain("RESCHED", 0), plain("STIME", vm.started), plain("ETIME", vm.ended), deployed]);
    parts
}

fn host_name(host: Id) -> &'static str {
    if host == 0 { "dummy-a" } else { "dummy-b" }
}

fn history(vm: &Vm) -> Element {
    let records = vm.history.iter().enumerate().map(|(at, record)| {
        let parts = vec![
            plain("OID", vm.owned.id),
            plain("SEQ", at),
            plain("HOSTNAME", host_name(record.host)),
            plain("HID", record.host),
            plain("CID", 0),
            plain("STIME", record.started),
            plain("ETIME", record.ended),
            free("VM_MAD", "dummy"),
            free("TM_MAD", "dummy"),
            plain("DS_ID", 0),
            plain("PLAN_ID", -1),
            plain("ACTION_ID", 0),
            plain("PSTIME", record.started),
            plain("PETIME", record.started),
            plain("RSTIME", record.started),
            plain("RETIME", record.ended),
            plain("ESTIME", 0),
            plain("EETIME", 0),
            plain("ACTION", record.action),
            plain("UID", -1),
            plain("GID", -1),
            plain("REQUEST_ID", -1),
        ];
        Element::of("HISTORY", parts)
    });
    Element::of("HISTORY_RECORDS", records.collect())
}

/// As in `one.vmpool.info`: no permissions, no context, an empty user template.
pub fn vm_short_element(cloud: &Cloud, vm: &Vm) -> Element {
    let some = |of: &str, wanted: &[&str]| -> Vec<Element> {
        let each = vm.template.vectors(of).map(|vector| {
            let parts = wanted.iter().filter_map(|key| vector.get(*key).map(|value| free(key, value)));
            Element::of(of, parts.collect())
        });
        each.collect()
    };
    let mut template: Vec<Element> = ["CPU", "MEMORY", "VCPU"]
        .iter()
        .filter_map(|key| vm.template.get(key).map(|value| plain(key, value)))
        .collect();
    template.extend(some("DISK", &DISK_SHORT));
    template.extend(some("NIC", &["IP", "MAC", "NETWORK", "NETWORK_ID", "NIC_ID", "SECURITY_GROUPS"]));
    template.extend(some("GRAPHICS", &["LISTEN", "PORT", "TYPE"]));
    let mut parts = cloud.head(&vm.owned);
    parts.extend(times(vm, false));
    parts.push(Element::of("TEMPLATE", template));
    parts.push(empty("MONITORING"));
    parts.push(empty("USER_TEMPLATE"));
    let last = vm.history.iter().enumerate().next_back().map(|(at, record)| {
        let parts = vec![
            plain("OID", vm.owned.id),
            plain("SEQ", at),
            free("HOSTNAME", host_name(record.host)),
            plain("HID", record.host),
            plain("CID", 0),
            plain("DS_ID", 0),
            free("VM_MAD", "dummy"),
            free("TM_MAD", "dummy"),
            free("ACTION", record.action),
        ];
        Element::of("HISTORY", parts)
    });
    parts.push(Element::of("HISTORY_RECORDS", last.into_iter().collect()));
    Element::of("VM", parts)
}

const DISK_SHORT: [&str; 11] = [
    "DISK_ID",
    "DATASTORE",
    "DATASTORE_ID",
    "IMAGE",
    "IMAGE_ID",
    "SIZE",
    "TYPE",
    "CLONE",
    "CLONE_TARGET",
    "LN_TARGET",
    "DISK_SNAPSHOT_TOTAL_SIZE",
];

fn range_element(range: &super::AddressRange, whole: bool) -> Element {
    let mut parts = vec![
        free("AR_ID", range.id),
        free("IP", range.first),
        free("MAC", network::mac(range.first)),
        free("NEXT_INDEX", range.next_index()),
        free("SHARED", "NO"),
        free("SIZE", range.size),
        free("TYPE", "IP4"),
    ];
    if whole {
        let leases = range.leases.iter().map(|(ip, holder)| {
            let mut parts = vec![free("IP", ip), free("MAC", network::mac(*ip))];
            parts.push(match holder {
                Holder::Vm(id) => free("VM", id),
                Holder::Network(id) => free("VNET", id),
                Holder::Held => free("VM", -1),
            });
            Element::of("LEASE", parts)
        });
        parts.extend([
            free("MAC_END", network::mac(range.last())),
            free("IP_END", range.last()),
            plain("USED_LEASES", range.leases.len()),
            Element::of("LEASES", leases.collect()),
        ]);
    }
    Element::of("AR", parts)
}

/// -2 any, -1 any but DONE, otherwise this state.
pub fn state_fits(vm: &Vm, asked: i64) -> bool {
    match asked {
        -2 => true,
        -1 => vm.state != VmState::Done,
        state => vm.state as i64 == state,
    }
}
