//! Kinds of variables: a description, and the type of a template's input. The parsers are elsewhere.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// YES or NO.
    Switch,
    Choice(&'static [&'static str]),
    /// Minimum, maximum.
    Integer(u64, u64),
    Number(Bounds),
    /// One word of printable ASCII.
    Word,
    /// A certificate or a key: PEM, or base64 of PEM.
    Pem,
    Version,
    /// `IP:PORT` to listen at.
    Listen,
    /// `HOST:PORT` to call.
    Authority,
    /// Path below the state directory.
    RelativePath,
    /// Path in the VM.
    AbsolutePath,
    /// `IP:10.0.0.1,DNS:fl.example.org`
    Names,
    /// `10.0.0.0/24,fd00::/64`
    Networks,
    /// `10.66.0.0/24 via 10.0.0.5`
    Routes,
    /// `key=value key="two words"`
    NodeConfig,
    /// `all`, or numbers.
    Devices,
    /// 32 bytes in base64.
    WireGuardKey,
    /// `10.66.0.2/24`
    Interface,
    /// Not validated.
    Any,
}

/// Range of numbers. All of them are finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    pub low: f64,
    pub high: f64,
    /// Whether the limits themselves are valid.
    pub with_low: bool,
    pub with_high: bool,
}

impl Bounds {
    pub fn contains(self, number: f64) -> bool {
        let above = number > self.low || self.with_low && number == self.low;
        let below = number < self.high || self.with_high && number == self.high;
        number.is_finite() && above && below
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number {} {}", if self.with_low { "from" } else { "above" }, self.low)?;
        if self.high.is_finite() {
            write!(f, " {} {}", if self.with_high { "to" } else { "below" }, self.high)?;
        }
        Ok(())
    }
}

impl Kind {
    /// Type of a user input of OpenNebula.
    pub fn input_type(self) -> &'static str {
        match self {
            Kind::Switch => "boolean",
            Kind::Choice(_) => "list",
            Kind::Integer(..) => "number",
            Kind::Number(_) => "number-float",
            Kind::Pem => "text64",
            _ => "text",
        }
    }
}

/// Description of the valid values.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Switch => f.write_str("YES or NO"),
            Kind::Choice(names) => write!(f, "one of {}", names.join(", ")),
            Kind::Integer(least, u64::MAX) => write!(f, "a whole number from {least}"),
            Kind::Integer(least, most) => write!(f, "a whole number from {least} to {most}"),
            Kind::Number(bounds) => bounds.fmt(f),
            Kind::Word => f.write_str("one word of printable ASCII"),
            Kind::Pem => f.write_str("PEM in base64 (base64 -w0 FILE)"),
            Kind::Version => f.write_str("a version like 1.40.0"),
            Kind::Listen => f.write_str("IP:PORT like 0.0.0.0:9092 or [::]:9092"),
            Kind::Authority => f.write_str("HOST:PORT like fl.example.org:9092 or [fd00::1]:9092"),
            Kind::RelativePath => f.write_str("a relative path of letters, digits and ._-/ without .."),
            Kind::AbsolutePath => f.write_str("an absolute path"),
            Kind::Names => f.write_str("names like IP:203.0.113.5,IP:2001:db8::5,DNS:fl.example.org"),
            Kind::Networks => f.write_str("networks like 10.0.0.0/24,fd00::/64"),
            Kind::Routes => f.write_str("routes like 10.66.0.0/24 via 10.0.0.5, 10.67.0.0/24 via 10.0.0.5"),
            Kind::NodeConfig => f.write_str("key=value pairs with spaces between, like partition-id=0 data=/data"),
            Kind::Devices => f.write_str("all, or numbers of devices like 0,1"),
            Kind::WireGuardKey => f.write_str("a key of WireGuard: 32 bytes in base64"),
            Kind::Interface => f.write_str("an address with its network like 10.66.0.2/24"),
            Kind::Any => f.write_str("anything"),
        }
    }
}
