//! Texts as what they stand for. Each says only what is wrong; what would be right is known to the table.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use trellis_flower::Release;
use trellis_pki::pem;
use x509_parser::parse_x509_certificate;

use crate::settings::{Name, Route};
use crate::variables::Kind;

/// As in DNS.
const MAX_HOST_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;
/// More than any token is long.
/// Of a token that nobody guesses.
const LEAST_TOKEN: usize = 32;
const MAX_WORD_BYTES: usize = 4096;
/// Lists in variables are written by people.
const MAX_ITEMS: usize = 256;
const WIREGUARD_KEY_BYTES: usize = 32;

/// Why a text is not what is wanted. Where nothing is said, the table knows the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    pub what: Option<String>,
    pub advice: Option<String>,
}

impl Bad {
    pub fn kind() -> Bad {
        Bad { what: None, advice: None }
    }

    pub fn because(what: impl Into<String>) -> Bad {
        Bad { what: Some(what.into()), advice: None }
    }

    fn with_advice(what: impl Into<String>, advice: impl Into<String>) -> Bad {
        Bad { what: Some(what.into()), advice: Some(advice.into()) }
    }
}

pub fn switch(text: &str) -> Result<bool, Bad> {
    match text.to_ascii_uppercase().as_str() {
        "YES" | "TRUE" | "1" => Ok(true),
        "NO" | "FALSE" | "0" => Ok(false),
        _ => Err(Bad::kind()),
    }
}

pub fn whole(text: &str, kind: Kind) -> Result<u64, Bad> {
    let Kind::Whole(least, most) = kind else { return Err(Bad::kind()) };
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Bad::because("it is no whole number"));
    }
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(number) if number < least => Err(Bad::because("it is too small")),
        _ => Err(Bad::because("it is too large")),
    }
}

pub fn number(text: &str, kind: Kind) -> Result<f64, Bad> {
    let Kind::Number(bounds) = kind else { return Err(Bad::kind()) };
    match text.parse::<f64>() {
        Ok(number) if bounds.contains(number) => Ok(number),
        Ok(_) => Err(Bad::because("it is out of range")),
        Err(_) => Err(Bad::because("it is no number")),
    }
}

pub fn choice(text: &str, kind: Kind) -> Result<&'static str, Bad> {
    let Kind::Choice(names) = kind else { return Err(Bad::kind()) };
    names.iter().copied().find(|name| name.eq_ignore_ascii_case(text)).ok_or(Bad::because("it is none of those known"))
}

/// `/dev/vdb`
pub fn device(text: &str) -> Result<String, Bad> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.:".contains(c);
    let sound = text.starts_with("/dev/") && text.chars().all(plain) && !text.contains("..");
    sound.then(|| text.to_owned()).ok_or(Bad::kind())
}

pub fn word(text: &str) -> Result<String, Bad> {
    match text {
        text if text.len() > MAX_WORD_BYTES => Err(Bad::because(format!("it is longer than {MAX_WORD_BYTES} bytes"))),
        text if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text.to_owned()),
        _ => Err(Bad::kind()),
    }
}

/// As a SuperLink takes it at its start.
pub fn admin_token(text: &str) -> Result<String, Bad> {
    let token = word(text)?;
    if token.len() >= LEAST_TOKEN {
        return Ok(token);
    }
    let what = format!("it has {} characters, and {LEAST_TOKEN} are the fewest", token.len());
    Err(Bad::with_advice(what, "make one: head -c 32 /dev/urandom | base64 -w0 | tr '+/' '-_'"))
}

pub fn version(text: &str) -> Result<String, Bad> {
    let parts: Vec<&str> = text.split('.').collect();
    let numbers: Option<Vec<u32>> =
        parts.iter().map(|part| part.parse().ok().filter(|number: &u32| number.to_string() == **part)).collect();
    let Some([major, minor, _]) = numbers.as_deref() else { return Err(Bad::because("it is no version")) };
    let is_supported = u16::try_from(*minor).is_ok_and(|minor| Release::of(minor).is_supported());
    if *major != 1 || !is_supported {
        let advice = format!("give {} to {}.x", Release::OLDEST, Release::NEWEST.series());
        return Err(Bad::with_advice("apps of that version cannot be run", advice));
    }
    Ok(text.to_owned())
}

pub fn listen(text: &str) -> Result<SocketAddr, Bad> {
    let address: SocketAddr = text.parse().map_err(|_| Bad::kind())?;
    match address.port() {
        0 => Err(Bad::because("0 is no port")),
        _ => Ok(address),
    }
}

/// `host:port`, with an IPv6 host in brackets.
pub fn authority(text: &str) -> Result<String, Bad> {
    let (host, port) = text.rsplit_once(':').ok_or(Bad::because("it has no port"))?;
    let port_good = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    if !port_good {
        return Err(Bad::because("its port is none from 1 to 65535"));
    }
    let port = port.trim_start_matches('0');
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let ip: Ipv6Addr = inner.parse().map_err(|_| Bad::because("what is in brackets is no IPv6 address"))?;
        return Ok(format!("[{ip}]:{port}"));
    }
    if host.contains(':') {
        return Err(Bad::because("an IPv6 address must stand in brackets before its port"));
    }
    host_name(host)?;
    Ok(format!("{host}:{port}"))
}

/// A name, or an IPv4 address.
fn host_name(host: &str) -> Result<(), Bad> {
    let label = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.is_empty() || name.len() > MAX_HOST_BYTES || !name.split('.').all(label) {
        return Err(Bad::because("its host is no name and no address"));
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    match last.bytes().all(|byte| byte.is_ascii_digit()) && name.parse::<Ipv4Addr>().is_err() {
        true => Err(Bad::because("its host is no IPv4 address")),
        false => Ok(()),
    }
}

/// Below a directory, and nowhere else.
pub fn relative_path(text: &str) -> Result<String, Bad> {
    let good = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match text {
        text if text.starts_with('/') => Err(Bad::because("it is not relative")),
        text if text.split('/').all(good) => Ok(text.to_owned()),
        _ => Err(Bad::kind()),
    }
}

pub fn absolute_path(text: &str) -> Result<String, Bad> {
    match text {
        text if !text.starts_with('/') => Err(Bad::because("it is not absolute")),
        text if text.split('/').any(|part| part == "..") => Err(Bad::because("it has .. in it")),
        text => Ok(text.to_owned()),
    }
}

pub fn names(text: &str) -> Result<Vec<Name>, Bad> {
    items(text, |item| {
        if let Some(ip) = strip_word(item, "IP:") {
            let ip = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip);
            return ip.parse().map(Name::Ip).map_err(|_| Bad::because(format!("{ip} is no IP address")));
        }
        let Some(name) = strip_word(item, "DNS:") else {
            return Err(Bad::because(format!("{item} begins neither with IP: nor with DNS:")));
        };
        host_name(name.strip_prefix("*.").unwrap_or(name)).map_err(|_| Bad::because(format!("{name} is no name")))?;
        match name.parse::<IpAddr>() {
            Ok(_) => Err(Bad::with_advice(format!("{name} is an address"), format!("write IP:{name}"))),
            Err(_) => Ok(Name::Dns(name.to_owned())),
        }
    })
}

fn strip_word<'a>(item: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = item.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then(|| rest.trim())
}

pub fn networks(text: &str) -> Result<Vec<String>, Bad> {
    items(text, network)
}

/// `10.0.0.0/24`; an address alone is a network of one.
fn network(text: &str) -> Result<String, Bad> {
    let (ip, prefix) = with_prefix(text).ok_or_else(|| Bad::because(format!("{text} is no network")))?;
    let first = first_of(ip, prefix);
    match first == ip {
        true => Ok(format!("{ip}/{prefix}")),
        false => Err(Bad::with_advice(
            format!("{text} is an address in a network, and no network"),
            format!("write {first}/{prefix}"),
        )),
    }
}

fn with_prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, prefix) = text.split_once('/').map_or((text, None), |(ip, prefix)| (ip, Some(prefix)));
    let ip: IpAddr = ip.parse().ok()?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => longest,
        Some(text) => text.parse().ok().filter(|prefix: &u8| *prefix <= longest && prefix.to_string() == text)?,
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

/// An address together with its network.
pub fn interface(text: &str) -> Result<String, Bad> {
    match with_prefix(text).filter(|_| text.contains('/')) {
        Some((ip, prefix)) => Ok(format!("{ip}/{prefix}")),
        None => Err(Bad::kind()),
    }
}

pub fn routes(text: &str) -> Result<Vec<Route>, Bad> {
    items(text, |item| {
        let words: Vec<&str> = item.split_ascii_whitespace().collect();
        let [destination, "via", via] = words.as_slice() else {
            return Err(Bad::because(format!("{item} is no route")));
        };
        let destination = network(destination)?;
        let via: IpAddr = via.parse().map_err(|_| Bad::because(format!("{via} is no IP address")))?;
        match destination.contains(':') == via.is_ipv6() {
            true => Ok(Route { destination, via }),
            false => Err(Bad::because(format!("{item}: one is IPv4 and the other IPv6"))),
        }
    })
}

/// Things with commas between, none of them twice.
fn items<T: PartialEq>(text: &str, parse: impl Fn(&str) -> Result<T, Bad>) -> Result<Vec<T>, Bad> {
    let mut all = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let parsed = parse(item)?;
        if all.contains(&parsed) {
            return Err(Bad::with_advice(format!("{item} is there twice"), "keep one of them"));
        }
        all.push(parsed);
        if all.len() > MAX_ITEMS {
            return Err(Bad::with_advice(format!("there are more than {MAX_ITEMS}"), "name fewer"));
        }
    }
    Ok(all)
}

/// `None`: all.
pub fn devices(text: &str) -> Result<Option<Vec<u32>>, Bad> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(None);
    }
    let number = |item: &str| item.parse::<u32>().map_err(|_| Bad::because(format!("{item} is no number of a device")));
    match items(text, number)? {
        none if none.is_empty() => Err(Bad::kind()),
        some => Ok(Some(some)),
    }
}

pub fn wireguard_key(text: &str) -> Result<String, Bad> {
    let key = STANDARD.decode(text).map_err(|_| Bad::because("it is not base64"))?;
    match key.len() {
        WIREGUARD_KEY_BYTES => Ok(text.to_owned()),
        length => Err(Bad::because(format!("it has {length} bytes"))),
    }
}

/// One certificate or more.
pub fn certificates(text: &str) -> Result<String, Bad> {
    let text = pem_text(text)?;
    let all = pem::certificates(text.as_bytes()).map_err(|error| Bad::with_advice(error.what, error.advice))?;
    for (index, der) in all.iter().enumerate() {
        if parse_x509_certificate(der).is_err() {
            let what = format!("certificate {} of it is none by X.509", index + 1);
            return Err(Bad::with_advice(what, "copy the file again"));
        }
    }
    Ok(text)
}

pub fn private_key(text: &str) -> Result<String, Bad> {
    let text = pem_text(text)?;
    match pem::private_key(text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(error) => Err(Bad::with_advice(error.what, error.advice)),
    }
}

/// PEM as it is, or in base64 of any line length.
fn pem_text(text: &str) -> Result<String, Bad> {
    if text.starts_with("-----BEGIN ") {
        return Ok(text.to_owned());
    }
    let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(packed).map_err(|_| Bad::because("it is neither base64 nor PEM"))?;
    String::from_utf8(bytes).map_err(|_| Bad::because("its base64 holds no PEM"))
}

/// Flower's rules: what reads as a TOML number, boolean or string is one, anything else is text.
pub fn node_config(text: &str) -> Result<BTreeMap<String, toml::Value>, Bad> {
    let mut config = BTreeMap::new();
    for pair in pairs(text)? {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Bad::because(format!("{pair} is no key=value")));
        };
        let key_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if key.is_empty() || !key.bytes().all(key_good) {
            return Err(Bad::because(format!("{key} is no key: letters, digits, - _ and . make one")));
        }
        if config.insert(key.to_owned(), typed(value)).is_some() {
            return Err(Bad::with_advice(format!("{key} is there twice"), "keep one of them"));
        }
        if config.len() > MAX_ITEMS {
            return Err(Bad::with_advice(format!("there are more than {MAX_ITEMS} keys"), "name fewer"));
        }
    }
    Ok(config)
}

/// Split at spaces that are not in quotes.
fn pairs(text: &str) -> Result<Vec<String>, Bad> {
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
            // A quote opens a value only where one begins: d=it's is text.
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
        Some(_) => Err(Bad::with_advice("a quote in it is not closed", "close it, or leave it out")),
    }
}

fn typed(value: &str) -> toml::Value {
    let plain = || toml::Value::String(value.to_owned());
    // A # would begin a comment.
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
