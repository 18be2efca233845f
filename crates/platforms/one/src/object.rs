//! Objects of OpenNebula, parsed from the XML of oned. Fields that a shorter listing omits are empty.

use crate::state::{DatastoreKind, DatastoreState, HostState, ImageKind, ImageState, LcmState, NetworkState, VmState};
use crate::template::{Template, pair};
use crate::xml::{self, Element};

/// Owner of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    pub uid: i32,
    pub gid: i32,
    pub uname: String,
    pub gname: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    pub id: i32,
    pub name: String,
    pub owner: Owner,
    pub state: VmState,
    pub lcm_state: LcmState,
    /// Creation and end in seconds since 1970 (0 if the VM has not ended).
    pub stime: u64,
    pub etime: u64,
    pub deploy_id: String,
    pub template: Template,
    pub user_template: Template,
    pub nics: Vec<Nic>,
    pub history: Vec<History>,
}

impl Vm {
    /// Attribute of the USER_TEMPLATE. Empty values count as absent.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.user_template.text(key).filter(|text| !text.is_empty())
    }

    /// ACTIVE and RUNNING.
    pub fn runs(&self) -> bool {
        (self.state, self.lcm_state) == (VmState::Active, LcmState::Running)
    }

    /// The VM needs an administrator to recover it.
    pub fn failed(&self) -> bool {
        self.state == VmState::CloningFailure || (self.state == VmState::Active && self.lcm_state.is_failure())
    }

    /// State for messages: `RUNNING`, `POWEROFF`.
    pub fn condition(&self) -> String {
        match self.state {
            VmState::Active => self.lcm_state.to_string(),
            state => state.to_string(),
        }
    }

    /// Attributes that OneFlow sets.
    pub fn service_id(&self) -> Option<i32> {
        self.attribute("SERVICE_ID")?.parse().ok()
    }

    pub fn role_name(&self) -> Option<&str> {
        self.attribute("ROLE_NAME")
    }
}

/// A network interface. Empty values count as absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nic {
    pub nic_id: Option<i32>,
    pub network: Option<String>,
    pub network_id: Option<i32>,
    pub ip: Option<String>,
    pub ip6_global: Option<String>,
    pub ip6_ula: Option<String>,
    pub mac: Option<String>,
    pub external_ip: Option<String>,
    /// The interface is an alias of another one.
    pub is_alias: bool,
}

/// A period on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    pub seq: i32,
    pub host: String,
    pub host_id: i32,
    pub datastore_id: i32,
    pub stime: u64,
    pub etime: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub id: i32,
    pub name: String,
    pub owner: Owner,
    pub kind: ImageKind,
    pub state: ImageState,
    pub persistent: bool,
    pub size_mb: u64,
    pub running_vms: u32,
    pub datastore_id: i32,
    pub datastore: String,
    pub format: String,
    pub template: Template,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmTemplate {
    pub id: i32,
    pub name: String,
    pub owner: Owner,
    pub template: Template,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualNetwork {
    pub id: i32,
    pub name: String,
    pub owner: Owner,
    pub state: NetworkState,
    pub bridge: String,
    pub used_leases: u32,
    pub template: Template,
    pub ranges: Vec<AddressRange>,
}

impl VirtualNetwork {
    /// Number of free addresses; `None` if the counts are inconsistent.
    pub fn free_leases(&self) -> Option<u64> {
        let all: u64 = self.ranges.iter().map(|range| range.size).sum();
        all.checked_sub(u64::from(self.used_leases))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressRange {
    pub id: i32,
    /// `IP4`, `IP6`, `ETHER` ...
    pub kind: String,
    pub ip: Option<String>,
    pub mac: Option<String>,
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datastore {
    pub id: i32,
    pub name: String,
    pub owner: Owner,
    pub kind: DatastoreKind,
    pub state: DatastoreState,
    pub total_mb: u64,
    pub free_mb: u64,
    pub used_mb: u64,
    pub template: Template,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub id: i32,
    pub name: String,
    pub state: HostState,
    pub cluster: String,
    /// In hundredths of a core, and KiB.
    pub max_cpu: u64,
    pub cpu_usage: u64,
    pub max_mem: u64,
    pub mem_usage: u64,
    pub running_vms: u32,
    pub pci: Vec<Pci>,
    pub template: Template,
}

/// A device for PCI passthrough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pci {
    pub address: String,
    pub class: String,
    pub vendor: String,
    pub vendor_name: String,
    pub device_name: String,
    /// `None` if it is free.
    pub vm_id: Option<i32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct User {
    pub id: i32,
    pub gid: i32,
    pub name: String,
    pub group: String,
    pub auth_driver: String,
    pub template: Template,
    /// The user's own VM quotas, if any.
    pub vm_quotas: Vec<Quota>,
}

/// A limit and its usage.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    /// `VMS`, `CPU`, `MEMORY`, `RUNNING_VMS` ...
    pub metric: String,
    pub limit: f64,
    pub used: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub id: i32,
    pub name: String,
    pub endpoint: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub id: i32,
    pub name: String,
    pub owner: Owner,
    /// 100: an OneFlow service, 101: a service template.
    pub kind: u32,
    pub template: Template,
}

/// Parser for the XML element of an object.
pub trait XmlObject: Sized {
    /// Name of the element, and of the element of a pool.
    const ELEMENT: &'static str;

    #[doc(hidden)]
    fn from_xml(object: Object<'_>) -> Result<Self, String>;
}

/// Parses an object.
pub fn parse<T: XmlObject>(text: &str) -> Result<T, String> {
    let root = xml::parse(text)?;
    match root.name == T::ELEMENT {
        true => T::from_xml(Object(&root)),
        false => Err(format!("expected {1}, found {0}", root.name, T::ELEMENT)),
    }
}

/// Parses all objects of a pool, in order.
pub fn parse_pool<T: XmlObject>(text: &str) -> Result<Vec<T>, String> {
    let root = xml::parse(text)?;
    let wanted = format!("{}_POOL", T::ELEMENT);
    if root.name != wanted {
        return Err(format!("expected {wanted}, found {}", root.name));
    }
    root.all(T::ELEMENT).map(|element| T::from_xml(Object(element))).collect()
}

/// The XML element of an object.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Object<'a>(&'a Element);

impl Object<'_> {
    fn id(&self) -> Result<i32, String> {
        let text = self.0.text_of("ID");
        text.trim().parse().map_err(|_| format!("{} has the ID {text:?} instead of a number", self.0.name))
    }

    fn text(&self, key: &str) -> String {
        self.0.text_of(key).to_owned()
    }

    /// 0 if the element is missing, as in a shorter listing.
    fn number<N: std::str::FromStr + Default>(&self, key: &str) -> Result<N, String> {
        match self.0.text_of(key).trim() {
            "" => Ok(N::default()),
            text => text.parse().map_err(|_| format!("{} of a {} is {text:?} instead of a number", key, self.0.name)),
        }
    }

    /// A mandatory number: without a state, the object would be misinterpreted.
    fn state(&self, key: &str) -> Result<u32, String> {
        match self.0.child(key) {
            Some(_) => self.number(key),
            None => Err(format!("a {} has no {key}", self.0.name)),
        }
    }

    fn template(&self, key: &str) -> Template {
        self.0.child(key).map(Template::from_element).unwrap_or_default()
    }

    fn owner(&self) -> Result<Owner, String> {
        Ok(Owner {
            uid: self.number("UID")?,
            gid: self.number("GID")?,
            uname: self.text("UNAME"),
            gname: self.text("GNAME"),
        })
    }

    fn inner<'b>(&'b self, list: &str, item: &'b str) -> impl Iterator<Item = Object<'b>> {
        self.0.child(list).into_iter().flat_map(move |list| list.all(item)).map(Object)
    }
}

impl XmlObject for Vm {
    const ELEMENT: &'static str = "VM";

    fn from_xml(object: Object<'_>) -> Result<Vm, String> {
        let template = object.template("TEMPLATE");
        let nics = template.vectors("NIC").map(|pairs| nic(pairs, false));
        let nics = nics.chain(template.vectors("NIC_ALIAS").map(|pairs| nic(pairs, true))).collect();
        Ok(Vm {
            id: object.id()?,
            name: object.text("NAME"),
            owner: object.owner()?,
            state: VmState::from_number(object.state("STATE")?),
            lcm_state: LcmState::from_number(object.state("LCM_STATE")?),
            stime: object.number("STIME")?,
            etime: object.number("ETIME")?,
            deploy_id: object.text("DEPLOY_ID"),
            nics,
            user_template: object.template("USER_TEMPLATE"),
            history: object.inner("HISTORY_RECORDS", "HISTORY").map(history).collect::<Result<_, _>>()?,
            template,
        })
    }
}

fn nic(pairs: &[(String, String)], is_alias: bool) -> Nic {
    let said = |key: &str| pair(pairs, key).filter(|text| !text.is_empty()).map(str::to_owned);
    let number = |key: &str| pair(pairs, key).and_then(|text| text.parse().ok());
    Nic {
        nic_id: number("NIC_ID"),
        network: said("NETWORK"),
        network_id: number("NETWORK_ID"),
        ip: said("IP"),
        ip6_global: said("IP6_GLOBAL"),
        ip6_ula: said("IP6_ULA"),
        mac: said("MAC"),
        external_ip: said("EXTERNAL_IP"),
        is_alias,
    }
}

fn history(object: Object<'_>) -> Result<History, String> {
    Ok(History {
        seq: object.number("SEQ")?,
        host: object.text("HOSTNAME"),
        host_id: object.number("HID")?,
        datastore_id: object.number("DS_ID")?,
        stime: object.number("STIME")?,
        etime: object.number("ETIME")?,
    })
}

impl XmlObject for Image {
    const ELEMENT: &'static str = "IMAGE";

    fn from_xml(object: Object<'_>) -> Result<Image, String> {
        Ok(Image {
            id: object.id()?,
            name: object.text("NAME"),
            owner: object.owner()?,
            kind: ImageKind::from_number(object.number("TYPE")?),
            state: ImageState::from_number(object.state("STATE")?),
            persistent: object.text("PERSISTENT") == "1",
            size_mb: object.number("SIZE")?,
            running_vms: object.number("RUNNING_VMS")?,
            datastore_id: object.number("DATASTORE_ID")?,
            datastore: object.text("DATASTORE"),
            format: object.text("FORMAT"),
            template: object.template("TEMPLATE"),
        })
    }
}

impl XmlObject for VmTemplate {
    const ELEMENT: &'static str = "VMTEMPLATE";

    fn from_xml(object: Object<'_>) -> Result<VmTemplate, String> {
        Ok(VmTemplate {
            id: object.id()?,
            name: object.text("NAME"),
            owner: object.owner()?,
            template: object.template("TEMPLATE"),
        })
    }
}

impl XmlObject for VirtualNetwork {
    const ELEMENT: &'static str = "VNET";

    fn from_xml(object: Object<'_>) -> Result<VirtualNetwork, String> {
        Ok(VirtualNetwork {
            id: object.id()?,
            name: object.text("NAME"),
            owner: object.owner()?,
            // Before version 6.0 networks had no state and were always usable.
            state: NetworkState::from_number(object.state("STATE").unwrap_or(NetworkState::Ready.number())),
            bridge: object.text("BRIDGE"),
            used_leases: object.number("USED_LEASES")?,
            template: object.template("TEMPLATE"),
            ranges: object.inner("AR_POOL", "AR").map(address_range).collect::<Result<_, _>>()?,
        })
    }
}

fn address_range(object: Object<'_>) -> Result<AddressRange, String> {
    let said = |key: &str| Some(object.text(key)).filter(|text| !text.is_empty());
    Ok(AddressRange {
        id: object.number("AR_ID")?,
        kind: object.text("TYPE"),
        ip: said("IP"),
        mac: said("MAC"),
        size: object.number("SIZE")?,
    })
}

impl XmlObject for Datastore {
    const ELEMENT: &'static str = "DATASTORE";

    fn from_xml(object: Object<'_>) -> Result<Datastore, String> {
        Ok(Datastore {
            id: object.id()?,
            name: object.text("NAME"),
            owner: object.owner()?,
            kind: DatastoreKind::from_number(object.number("TYPE")?),
            state: DatastoreState::from_number(object.state("STATE")?),
            total_mb: object.number("TOTAL_MB")?,
            free_mb: object.number("FREE_MB")?,
            used_mb: object.number("USED_MB")?,
            template: object.template("TEMPLATE"),
        })
    }
}

impl XmlObject for Host {
    const ELEMENT: &'static str = "HOST";

    fn from_xml(object: Object<'_>) -> Result<Host, String> {
        let nothing = Element::default();
        let share = Object(object.0.child("HOST_SHARE").unwrap_or(&nothing));
        Ok(Host {
            id: object.id()?,
            name: object.text("NAME"),
            state: HostState::from_number(object.state("STATE")?),
            cluster: object.text("CLUSTER"),
            max_cpu: share.number("MAX_CPU")?,
            cpu_usage: share.number("CPU_USAGE")?,
            max_mem: share.number("MAX_MEM")?,
            mem_usage: share.number("MEM_USAGE")?,
            running_vms: share.number("RUNNING_VMS")?,
            pci: share.inner("PCI_DEVICES", "PCI").map(pci).collect::<Result<_, _>>()?,
            template: object.template("TEMPLATE"),
        })
    }
}

fn pci(object: Object<'_>) -> Result<Pci, String> {
    let vm_id: i32 = object.number("VMID")?;
    Ok(Pci {
        address: object.text("ADDRESS"),
        class: object.text("CLASS"),
        vendor: object.text("VENDOR"),
        vendor_name: object.text("VENDOR_NAME"),
        device_name: object.text("DEVICE_NAME"),
        vm_id: (vm_id >= 0).then_some(vm_id),
    })
}

impl XmlObject for User {
    const ELEMENT: &'static str = "USER";

    fn from_xml(object: Object<'_>) -> Result<User, String> {
        Ok(User {
            id: object.id()?,
            gid: object.number("GID")?,
            name: object.text("NAME"),
            group: object.text("GNAME"),
            auth_driver: object.text("AUTH_DRIVER"),
            template: object.template("TEMPLATE"),
            vm_quotas: quotas(object.0.child("VM_QUOTA").and_then(|quota| quota.child("VM"))),
        })
    }
}

/// Effective limits only: a negative value means the default or no limit.
fn quotas(quota: Option<&Element>) -> Vec<Quota> {
    let number = |quota: &Element, key: &str| quota.text_of(key).trim().parse::<f64>().ok();
    let limits = quota.into_iter().flat_map(|quota| {
        quota.children.iter().filter_map(move |limit| {
            let used = number(quota, &format!("{}_USED", limit.name))?;
            let limit_value = number(quota, &limit.name).filter(|limit| *limit >= 0.0)?;
            Some(Quota { metric: limit.name.clone(), limit: limit_value, used })
        })
    });
    limits.collect()
}

impl XmlObject for Zone {
    const ELEMENT: &'static str = "ZONE";

    fn from_xml(object: Object<'_>) -> Result<Zone, String> {
        let endpoint = object.template("TEMPLATE").text("ENDPOINT").unwrap_or_default().to_owned();
        Ok(Zone { id: object.id()?, name: object.text("NAME"), endpoint })
    }
}

impl XmlObject for Document {
    const ELEMENT: &'static str = "DOCUMENT";

    fn from_xml(object: Object<'_>) -> Result<Document, String> {
        Ok(Document {
            id: object.id()?,
            name: object.text("NAME"),
            owner: object.owner()?,
            kind: object.number("TYPE")?,
            template: object.template("TEMPLATE"),
        })
    }
}
