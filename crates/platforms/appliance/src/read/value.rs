//! Parsers of values. An error says what is wrong; the table knows what is valid.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use trellis_flower::Release;
use trellis_pki::pem;
use x509_parser::parse_x509_certificate;

use crate::settings::{Name, Route};
use crate::variables::Kind;

/// Limit of DNS.
const MAX_HOST_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;
/// Minimum length of a token that cannot be guessed.
const MIN_TOKEN_BYTES: usize = 32;
const MAX_WORD_BYTES: usize = 4096;
/// Maximum length of lists, which users write by hand.
const MAX_ITEMS: usize = 256;
const WIREGUARD_KEY_BYTES: usize = 32;

/// Why a value is invalid. Without a text, the table has the advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    pub what: Option<String>,
    pub advice: Option<String>,
}

impl Invalid {
    pub fn kind() -> Invalid {
        Invalid { what: None, advice: None }
    }

    pub fn because(what: impl Into<String>) -> Invalid {
        Invalid { what: Some(what.into()), advice: None }
    }

    fn with_advice(what: impl Into<String>, advice: impl Into<String>) -> Invalid {
        Invalid { what: Some(what.into()), advice: Some(advice.into()) }
    }
}

pub fn switch(text: &str) -> Result<bool, Invalid> {
    match text.to_ascii_uppercase().as_str() {
        "YES" | "TRUE" | "1" => Ok(true),
        "NO" | "FALSE" | "0" => Ok(false),
        _ => Err(Invalid::kind()),
    }
}

pub fn integer(text: &str, kind: Kind) -> Result<u64, Invalid> {
    let Kind::Integer(min, max) = kind else { return Err(Invalid::kind()) };
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Invalid::because("it is not an integer"));
    }
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        Ok(number) if number < min => Err(Invalid::because("it is too small")),
        _ => Err(Invalid::because("it is too large")),
    }
}

pub fn number(text: &str, kind: Kind) -> Result<f64, Invalid> {
    let Kind::Number(bounds) = kind else { return Err(Invalid::kind()) };
    match text.parse::<f64>() {
        Ok(number) if bounds.contains(number) => Ok(number),
        Ok(_) => Err(Invalid::because("it is out of range")),
        Err(_) => Err(Invalid::because("it is not a number")),
    }
}

pub fn choice(text: &str, kind: Kind) -> Result<&'static str, Invalid> {
    let Kind::Choice(names) = kind else { return Err(Invalid::kind()) };
    names
        .iter()
        .copied()
        .find(|name| name.eq_ignore_ascii_case(text))
        .ok_or(Invalid::because("it is not one of the known values"))
}

/// `/dev/vdb`
pub fn device(text: &str) -> Result<String, Invalid> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.:".contains(c);
    let sound = text.starts_with("/dev/") && text.chars().all(plain) && !text.contains("..");
    sound.then(|| text.to_owned()).ok_or(Invalid::kind())
}

pub fn word(text: &str) -> Result<String, Invalid> {
    match text {
        text if text.len() > MAX_WORD_BYTES => {
            Err(Invalid::because(format!("it is longer than {MAX_WORD_BYTES} bytes")))
        }
        text if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text.to_owned()),
        _ => Err(Invalid::kind()),
    }
}

/// Same rule as the SuperLink's at its start.
pub fn admin_token(text: &str) -> Result<String, Invalid> {
    let token = word(text)?;
    if token.len() >= MIN_TOKEN_BYTES {
        return Ok(token);
    }
    let what = format!("it has {} characters, and the minimum is {MIN_TOKEN_BYTES}", token.len());
    Err(Invalid::with_advice(what, "create one: head -c 32 /dev/urandom | base64 -w0 | tr '+/' '-_'"))
}

pub fn version(text: &str) -> Result<String, Invalid> {
    let parts: Vec<&str> = text.split('.').collect();
    let numbers: Option<Vec<u32>> =
        parts.iter().map(|part| part.parse().ok().filter(|number: &u32| number.to_string() == **part)).collect();
    let Some([major, minor, _]) = numbers.as_deref() else { return Err(Invalid::because("it is not a version")) };
    let is_supported = u16::try_from(*minor).is_ok_and(|minor| Release::of(minor).is_supported());
    if *major != 1 || !is_supported {
        let advice = format!("give {} to {}.x", Release::OLDEST, Release::NEWEST.series());
        return Err(Invalid::with_advice("apps of that version are not supported", advice));
    }
    Ok(text.to_owned())
}

pub fn listen(text: &str) -> Result<SocketAddr, Invalid> {
    let address: SocketAddr = text.parse().map_err(|_| Invalid::kind())?;
    match address.port() {
        0 => Err(Invalid::because("0 is not a port")),
        _ => Ok(address),
    }
}

/// `host:port`, with an IPv6 host in brackets.
pub fn authority(text: &str) -> Result<String, Invalid> {
    let (host, port) = text.rsplit_once(':').ok_or(Invalid::because("it has no port"))?;
    let port_good = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    if !port_good {
        return Err(Invalid::because("its port is not between 1 and 65535"));
    }
    let port = port.trim_start_matches('0');
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let ip: Ipv6Addr =
            inner.parse().map_err(|_| Invalid::because("the text in brackets is not an IPv6 address"))?;
        return Ok(format!("[{ip}]:{port}"));
    }
    if host.contains(':') {
        return Err(Invalid::because("an IPv6 address with a port needs brackets"));
    }
    host_name(host)?;
    Ok(format!("{host}:{port}"))
}

/// A DNS name or an IPv4 address.
fn host_name(host: &str) -> Result<(), Invalid> {
    let label = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.is_empty() || name.len() > MAX_HOST_BYTES || !name.split('.').all(label) {
        return Err(Invalid::because("its host is neither a name nor an address"));
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    match last.bytes().all(|byte| byte.is_ascii_digit()) && name.parse::<Ipv4Addr>().is_err() {
        true => Err(Invalid::because("its host is not an IPv4 address")),
        false => Ok(()),
    }
}

/// A relative path that stays below its directory.
pub fn relative_path(text: &str) -> Result<String, Invalid> {
    let good = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match text {
        text if text.starts_with('/') => Err(Invalid::because("it is not relative")),
        text if text.split('/').all(good) => Ok(text.to_owned()),
        _ => Err(Invalid::kind()),
    }
}

pub fn absolute_path(text: &str) -> Result<String, Invalid> {
    match text {
        text if !text.starts_with('/') => Err(Invalid::because("it is not absolute")),
        text if text.split('/').any(|part| part == "..") => Err(Invalid::because("it contains ..")),
        text => Ok(text.to_owned()),
    }
}

pub fn names(text: &str) -> Result<Vec<Name>, Invalid> {
    items(text, |item| {
        if let Some(ip) = strip_word(item, "IP:") {
            let ip = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip);
            return ip.parse().map(Name::Ip).map_err(|_| Invalid::because(format!("{ip} is not an IP address")));
        }
        let Some(name) = strip_word(item, "DNS:") else {
            return Err(Invalid::because(format!("{item} starts neither with IP: nor with DNS:")));
        };
        host_name(name.strip_prefix("*.").unwrap_or(name))
            .map_err(|_| Invalid::because(format!("{name} is not a name")))?;
        match name.parse::<IpAddr>() {
            Ok(_) => Err(Invalid::with_advice(format!("{name} is an address"), format!("write IP:{name}"))),
            Err(_) => Ok(Name::Dns(name.to_owned())),
        }
    })
}

fn strip_word<'a>(item: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = item.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then(|| rest.trim())
}

pub fn networks(text: &str) -> Result<Vec<String>, Invalid> {
    items(text, network)
}

/// `10.0.0.0/24`; an address without a prefix is a network of one.
fn network(text: &str) -> Result<String, Invalid> {
    let (ip, prefix) = with_prefix(text).ok_or_else(|| Invalid::because(format!("{text} is not a network")))?;
    let first = first_of(ip, prefix);
    match first == ip {
        true => Ok(format!("{ip}/{prefix}")),
        false => {
            Err(Invalid::with_advice(format!("{text} is an address, not a network"), format!("write {first}/{prefix}")))
        }
    }
}

fn with_prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, prefix) = text.split_once('/').map_or((text, None), |(ip, prefix)| (ip, Some(prefix)));
    let ip: IpAddr = ip.parse().ok()?;
    let max = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => max,
        Some(text) => text.parse().ok().filter(|prefix: &u8| *prefix <= max && prefix.to_string() == text)?,
    };
    Some((ip, prefix))
}

fn first_of(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
    }
}

/// An address with the prefix of its network.
pub fn interface(text: &str) -> Result<String, Invalid> {
    match with_prefix(text).filter(|_| text.contains('/')) {
        Some((ip, prefix)) => Ok(format!("{ip}/{prefix}")),
        None => Err(Invalid::kind()),
    }
}

pub fn routes(text: &str) -> Result<Vec<Route>, Invalid> {
    items(text, |item| {
        let words: Vec<&str> = item.split_ascii_whitespace().collect();
        let [destination, "via", via] = words.as_slice() else {
            return Err(Invalid::because(format!("{item} is not a route")));
        };
        let destination = network(destination)?;
        let via: IpAddr = via.parse().map_err(|_| Invalid::because(format!("{via} is not an IP address")))?;
        match destination.contains(':') == via.is_ipv6() {
            true => Ok(Route { destination, via }),
            false => Err(Invalid::because(format!("{item} mixes IPv4 and IPv6"))),
        }
    })
}

/// Comma-separated items without duplicates.
fn items<T: PartialEq>(text: &str, parse: impl Fn(&str) -> Result<T, Invalid>) -> Result<Vec<T>, Invalid> {
    let mut all = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let parsed = parse(item)?;
        if all.contains(&parsed) {
            return Err(Invalid::with_advice(format!("{item} occurs twice"), "keep one of them"));
        }
        all.push(parsed);
        if all.len() > MAX_ITEMS {
            return Err(Invalid::with_advice(format!("there are more than {MAX_ITEMS}"), "name fewer"));
        }
    }
    Ok(all)
}

/// `None` means all GPUs.
pub fn devices(text: &str) -> Result<Option<Vec<u32>>, Invalid> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(None);
    }
    let number =
        |item: &str| item.parse::<u32>().map_err(|_| Invalid::because(format!("{item} is not a device number")));
    match items(text, number)? {
        none if none.is_empty() => Err(Invalid::kind()),
        some => Ok(Some(some)),
    }
}

pub fn wireguard_key(text: &str) -> Result<String, Invalid> {
    let key = STANDARD.decode(text).map_err(|_| Invalid::because("it is not base64"))?;
    match key.len() {
        WIREGUARD_KEY_BYTES => Ok(text.to_owned()),
        length => Err(Invalid::because(format!("it has {length} bytes"))),
    }
}

/// At least one certificate.
pub fn certificates(text: &str) -> Result<String, Invalid> {
    let text = pem_text(text)?;
    let all = pem::certificates(text.as_bytes()).map_err(|error| Invalid::with_advice(error.what, error.advice))?;
    for (index, der) in all.iter().enumerate() {
        if parse_x509_certificate(der).is_err() {
            let what = format!("certificate {} is not an X.509 certificate", index + 1);
            return Err(Invalid::with_advice(what, "copy the file again"));
        }
    }
    Ok(text)
}

pub fn private_key(text: &str) -> Result<String, Invalid> {
    let text = pem_text(text)?;
    match pem::private_key(text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(error) => Err(Invalid::with_advice(error.what, error.advice)),
    }
}

/// PEM, or base64 of PEM with any line length.
fn pem_text(text: &str) -> Result<String, Invalid> {
    if text.starts_with("-----BEGIN ") {
        return Ok(text.to_owned());
    }
    let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(packed).map_err(|_| Invalid::because("it is neither base64 nor PEM"))?;
    String::from_utf8(bytes).map_err(|_| Invalid::because("its base64 contains no PEM"))
}

/// Flower's rules: a TOML number, boolean or string is parsed; anything else is text.
pub fn node_config(text: &str) -> Result<BTreeMap<String, toml::Value>, Invalid> {
    let mut config = BTreeMap::new();
    for pair in pairs(text)? {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Invalid::because(format!("{pair} is not key=value")));
        };
        let key_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if key.is_empty() || !key.bytes().all(key_good) {
            return Err(Invalid::because(format!("{key} is not a key: use letters, digits, - _ and .")));
        }
        if config.insert(key.to_owned(), typed(value)).is_some() {
            return Err(Invalid::with_advice(format!("{key} occurs twice"), "keep one of them"));
        }
        if config.len() > MAX_ITEMS {
            return Err(Invalid::with_advice(format!("there are more than {MAX_ITEMS} keys"), "name fewer"));
        }
    }
    Ok(config)
}

/// Splits at spaces outside of quotes.
fn pairs(text: &str) -> Result<Vec<String>, Invalid> {
    let mut all = Vec::new();
    let mut pair = String::new();
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for letter in text.chars() {
        match quote {
            None if letter.is_whitespace() => {
                all.extend(Some(std::mem::take(&mut pair)).filter(|pair| !pair.is_empty()));
                continue;
            }
            // A quote starts a quoted value only at its beginning: d=it's is text.
            None if (letter == '"' || letter == '\'') && pair.ends_with('=') => quote = Some(letter),
            Some('"') if escaped => escaped = false,
            Some('"') if letter == '\\' => escaped = true,
            Some(open) if letter == open => quote = None,
            _ => {}
        }
        pair.push(letter);
    }
    all.extend(Some(pair).filter(|pair| !pair.is_empty()));
    match quote {
        None => Ok(all),
        Some(_) => Err(Invalid::with_advice("a quote is not closed", "close it, or remove it")),
    }
}

fn typed(value: &str) -> toml::Value {
    let plain = || toml::Value::String(value.to_owned());
    // A # would start a comment.
    if value.contains('#') && !value.starts_with(['"', '\'']) {
        return plain();
    }
    let parsed = toml::from_str::<toml::Table>(&format!("v = {value}")).ok().and_then(|mut table| {
        let value = table.remove("v");
        value.filter(|_| table.is_empty())
    });
    match parsed {
        Some(value @ (toml::Value::Integer(_) | toml::Value::Boolean(_) | toml::Value::String(_))) => value,
        Some(toml::Value::Float(number)) if number.is_finite() => toml::Value::Float(number),
        _ => plain(),
    }
}
