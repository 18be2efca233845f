//! Virtual networks and their leases.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::{Cloud, Id, Owned, Refused, single};
use crate::template::{Attribute, Template};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    Vm(Id),
    Network(Id),
    Held,
}

#[derive(Debug, Clone)]
pub struct AddressRange {
    pub id: Id,
    pub first: Ipv4Addr,
    pub size: u32,
    next: u32,
    pub leases: BTreeMap<Ipv4Addr, Holder>,
}

#[derive(Debug, Clone)]
pub struct Network {
    pub owned: Owned,
    pub parent: Option<Id>,
    pub ranges: Vec<AddressRange>,
    pub template: Template,
}

impl AddressRange {
    pub fn last(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.first) + self.size.saturating_sub(1))
    }

    pub fn next_index(&self) -> u32 {
        self.next
    }

    fn take(&mut self, wanted: Option<Ipv4Addr>, holder: &Holder) -> Option<Ipv4Addr> {
        let index = match wanted {
            Some(ip) => {
                let index = u32::from(ip).checked_sub(u32::from(self.first)).filter(|index| *index < self.size)?;
                (!self.leases.contains_key(&ip)).then_some(index)?
            }
            // Round-robin, so that an address is reused as late as possible.
            None => (0..self.size)
                .map(|step| (self.next + step) % self.size)
                .find(|index| !self.leases.contains_key(&Ipv4Addr::from(u32::from(self.first) + index)))?,
        };
        let ip = Ipv4Addr::from(u32::from(self.first) + index);
        self.leases.insert(ip, holder.clone());
        if wanted.is_none() {
            self.next = (index + 1) % self.size;
        }
        Some(ip)
    }
}

/// MAC address that OpenNebula derives from the address.
pub fn mac(ip: Ipv4Addr) -> String {
    let [a, b, c, d] = ip.octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

impl Cloud {
    pub fn add_network(&mut self, uid: Id, mut template: Template) -> Result<Id, Refused> {
        self.check_create(uid, "NET")?;
        let Some(name) = single(template.erase("NAME")) else {
            return Err(Refused::allocate("virtual network", "No NAME in template."));
        };
        let ranges = template.erase("AR").unwrap_or_default();
        for (key, value) in [("VLAN_ID", ""), ("OUTER_VLAN_ID", ""), ("PHYDEV", ""), ("SECURITY_GROUPS", "0")] {
            if template.get(key).is_none() {
                template.set(key, value);
            }
        }
        for (key, value) in [("VN_MAD", "dummy"), ("BRIDGE", "br0"), ("BRIDGE_TYPE", "linux")] {
            if template.get(key).is_none() {
                template.set(key, value);
            }
        }
        let id = self.fresh("network");
        let owned = self.owned(id, uid, &name);
        self.networks.insert(id, Network { owned, parent: None, ranges: Vec::new(), template });
        for range in ranges {
            if let Attribute::Vector(range) = range {
                self.add_range(id, &range)?;
            }
        }
        Ok(id)
    }

    pub fn network(&self, id: Id) -> Result<&Network, Refused> {
        self.networks.get(&id).ok_or_else(|| Refused::missing("virtual network", id))
    }

    pub fn add_range(&mut self, id: Id, range: &BTreeMap<String, String>) -> Result<(), Refused> {
        let network = self.networks.get_mut(&id).ok_or_else(|| Refused::missing("virtual network", id))?;
        let first = range.get("IP").and_then(|ip| ip.parse().ok());
        let size = range.get("SIZE").and_then(|size| size.parse().ok());
        let (Some(first), Some(size @ 1..)) = (first, size) else {
            return Err(Refused::new(super::INTERNAL, "Wrong AR: IP and SIZE are needed"));
        };
        let id = network.ranges.len() as Id;
        network.ranges.push(AddressRange { id, first, size, next: 0, leases: BTreeMap::new() });
        Ok(())
    }

    /// The address and its range.
    pub fn lease(&mut self, id: Id, wanted: Option<Ipv4Addr>, holder: &Holder) -> Result<(Ipv4Addr, Id), Refused> {
        let network = self.networks.get_mut(&id).ok_or_else(|| Refused::missing("virtual network", id))?;
        let found = network.ranges.iter_mut().find_map(|range| Some((range.take(wanted, holder)?, range.id)));
        let why = format!("Cannot get IP/MAC lease from virtual network {id}.");
        found.ok_or_else(|| Refused::allocate("virtual machine", &why))
    }

    pub fn release_leases(&mut self, gone: &Holder) {
        for range in self.networks.values_mut().flat_map(|network| &mut network.ranges) {
            range.leases.retain(|_, holder| holder != gone);
        }
    }

    /// A reservation of addresses of another network.
    pub fn reserve(&mut self, uid: Id, parent: Id, name: &str, size: u32) -> Result<Id, Refused> {
        let template = self.network(parent)?.template.clone();
        let id = self.fresh("network");
        let mut taken = Vec::new();
        for _ in 0..size {
            taken.push(self.lease(parent, None, &Holder::Network(id))?.0);
        }
        let Some(first) = taken.iter().min().copied() else {
            return Err(Refused::new(super::RPC_API, "Reservation SIZE must be a greater than 0"));
        };
        let owned = self.owned(id, uid, name);
        let range = AddressRange { id: 0, first, size, next: 0, leases: BTreeMap::new() };
        self.networks.insert(id, Network { owned, parent: Some(parent), ranges: vec![range], template });
        Ok(id)
    }

    pub fn delete_network(&mut self, id: Id) -> Result<(), Refused> {
        let used = self.network(id)?.ranges.iter().any(|range| !range.leases.is_empty());
        if used {
            let why = "Cannot delete virtual network. Can not remove a virtual network with leases in use";
            return Err(Refused::new(super::ACTION, why));
        }
        self.networks.remove(&id);
        self.release_leases(&Holder::Network(id));
        Ok(())
    }
}
