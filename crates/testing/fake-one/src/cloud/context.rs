//! Context of a VM with substituted variables, as written to the context disk.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::{Cloud, Id};
use crate::template::Template;

/// Every NIC has all of them; unset ones are empty.
const OF_A_NIC: [&str; 16] = [
    "EXTERNAL",
    "IP6",
    "IP6_GATEWAY",
    "IP6_METHOD",
    "IP6_METRIC",
    "IP6_PREFIX_LENGTH",
    "IP6_ULA",
    "METHOD",
    "METRIC",
    "MTU",
    "ROUTES",
    "SEARCH_DOMAIN",
    "VLAN_ID",
    "VROUTER_IP",
    "VROUTER_IP6",
    "VROUTER_MANAGEMENT",
];

/// `None` if the template requests no context.
pub(super) fn filled(
    cloud: &Cloud,
    id: Id,
    uid: Id,
    name: &str,
    template: &Template,
    user_template: &Template,
    disks: usize,
) -> Option<BTreeMap<String, String>> {
    let asked = template.vector("CONTEXT")?;
    let user = cloud.users.get(&uid).map(|user| &user.template);
    let look = |variable: &str| -> String {
        let known = match variable {
            "NAME" => Some(name.to_owned()),
            "VMID" => Some(id.to_string()),
            "UID" => Some(uid.to_string()),
            variable => user_template.get(variable).or(template.get(variable)).map(str::to_owned),
        };
        known.unwrap_or_default()
    };
    let user = |attribute: &str| user.and_then(|user| user.get(attribute)).unwrap_or_default().to_owned();
    let mut context: BTreeMap<String, String> =
        asked.iter().map(|(name, value)| (name.clone(), substituted(value, &look, &user))).collect();
    context.insert("DISK_ID".to_owned(), disks.to_string());
    context.insert("TARGET".to_owned(), "hda".to_owned());
    context.insert("VMID".to_owned(), id.to_string());
    let yes = |context: &BTreeMap<String, String>, name: &str| {
        context.get(name).is_some_and(|value| value.eq_ignore_ascii_case("yes"))
    };
    if yes(&context, "TOKEN") {
        context.insert("ONEGATE_ENDPOINT".to_owned(), cloud.gate_endpoint.clone());
    }
    if yes(&context, "NETWORK") {
        for (number, nic) in template.vectors("NIC").enumerate() {
            of_nic(cloud, number, nic, &mut context);
        }
    }
    Some(context)
}

fn of_nic(cloud: &Cloud, number: usize, nic: &BTreeMap<String, String>, context: &mut BTreeMap<String, String>) {
    let mut set = |key: &str, value: &str| {
        context.entry(format!("ETH{number}_{key}")).or_insert_with(|| value.to_owned());
    };
    let network = nic.get("NETWORK_ID").and_then(|id| id.parse().ok()).and_then(|id: Id| cloud.networks.get(&id));
    let of = |key: &str| network.and_then(|network| network.template.get(key)).unwrap_or_default();
    let mask = match of("NETWORK_MASK") {
        "" => "255.255.255.0",
        mask => mask,
    };
    let ip = nic.get("IP").map_or("", String::as_str);
    let address = match of("NETWORK_ADDRESS") {
        "" => masked(ip, mask),
        address => address.to_owned(),
    };
    set("IP", ip);
    set("MAC", nic.get("MAC").map_or("", String::as_str));
    set("MASK", mask);
    set("NETWORK", &address);
    set("GATEWAY", of("GATEWAY"));
    set("DNS", of("DNS"));
    OF_A_NIC.iter().for_each(|key| set(key, of(key)));
}

fn masked(ip: &str, mask: &str) -> String {
    match (ip.parse::<Ipv4Addr>(), mask.parse::<Ipv4Addr>()) {
        (Ok(ip), Ok(mask)) => (ip & mask).to_string(),
        _ => String::new(),
    }
}

/// Substitutes `$NAME`, `${NAME}` and `$USER[ATTRIBUTE]`, once; unknown ones become empty.
fn substituted(text: &str, look: &dyn Fn(&str) -> String, user: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let braced = rest.starts_with('{');
        let from = if braced { &rest[1..] } else { rest };
        let end = from.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(from.len());
        let variable = &from[..end];
        if variable.is_empty() || (braced && !from[end..].starts_with('}')) {
            out.push('$');
            continue;
        }
        rest = if braced { &from[end + 1..] } else { &from[end..] };
        match rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((attribute, after)) if variable == "USER" => {
                out.push_str(&user(attribute));
                rest = after;
            }
            _ => out.push_str(&look(variable)),
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_once() {
        let look = |name: &str| if name == "A" { "$B".to_owned() } else { String::new() };
        let user = |name: &str| format!("<{name}>");
        for (text, wanted) in [
            ("plain", "plain"),
            ("$A", "$B"),
            ("x${A}y", "x$By"),
            ("$NOPE.", "."),
            ("$USER[SSH_PUBLIC_KEY]!", "<SSH_PUBLIC_KEY>!"),
            ("cost: 5$ and $(reboot) ${", "cost: 5$ and $(reboot) ${"),
        ] {
            assert_eq!(substituted(text, &look, &user), wanted, "{text}");
        }
    }
}
