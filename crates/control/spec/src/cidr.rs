//! Networks in CIDR notation: an address and a prefix length, `10.10.11.0/24`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network. The bits after the prefix are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// `Err`: what is wrong.
    pub fn parse(text: &str) -> Result<Cidr, String> {
        let (address, prefix) = text.split_once('/').ok_or("the prefix length is missing, like /24")?;
        let address: IpAddr = address.parse().map_err(|_| format!("`{address}` is not an IP address"))?;
        let length: u8 = prefix
            .parse()
            .ok()
            .filter(|length: &u8| *length <= bits(address) && length.to_string() == prefix)
            .ok_or_else(|| format!("`{prefix}` is not a prefix length: expected 0 to {}", bits(address)))?;
        let network = Cidr { address: masked(address, length), prefix: length };
        match network.address == address {
            true => Ok(network),
            false => Err(format!("it is an address within the network {network}")),
        }
    }

    pub fn overlaps(&self, other: &Cidr) -> bool {
        let shorter = self.prefix.min(other.prefix);
        masked(self.address, shorter) == masked(other.address, shorter)
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// The address with this number in the network; `None` if it is outside, or the network or broadcast address.
    pub fn host(&self, number: u32) -> Option<IpAddr> {
        let room = bits(self.address) - self.prefix;
        let most = if room >= 32 { u32::MAX } else { (1u32 << room).saturating_sub(2) };
        if number == 0 || number > most {
            return None;
        }
        Some(match self.address {
            IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from(u32::from(address) | number)),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) | u128::from(number))),
        })
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_others_not() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "10.10.9.4/31", "192.168.1.7/32", "fd00::/64", "::/0"] {
            assert_eq!(Cidr::parse(text).map(|found| found.to_string()), Ok(text.to_owned()));
        }
        for text in [
            "10.0.0.0",
            "10.0.0.1/24",
            "10.0.0/8",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "fd00::/129",
            "a/8",
            "/8",
        ] {
            assert!(Cidr::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn overlap_is_a_shared_address() {
        for (one, other, expected) in [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.1.0.0/16", "10.0.0.0/8", true),
            ("10.1.0.0/16", "10.2.0.0/16", false),
            ("0.0.0.0/0", "192.168.0.0/24", true),
            ("0.0.0.0/0", "fd00::/64", false),
            ("fd00::/64", "fd00::1/128", true),
        ] {
            let read = |text| Cidr::parse(text).expect("a network");
            assert_eq!(read(one).overlaps(&read(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn addresses_are_counted() {
        let host = |text, number| Cidr::parse(text).expect("a network").host(number).map(|host| host.to_string());
        assert_eq!(host("10.66.0.0/24", 1).as_deref(), Some("10.66.0.1"));
        assert_eq!(host("10.66.0.0/24", 254).as_deref(), Some("10.66.0.254"));
        assert_eq!((host("10.66.0.0/24", 255), host("10.66.0.0/24", 0), host("10.66.0.0/32", 1)), (None, None, None));
        assert_eq!(host("fd00::/64", 258).as_deref(), Some("fd00::102"));
    }
}
