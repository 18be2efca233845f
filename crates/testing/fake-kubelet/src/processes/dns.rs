//! Answers DNS queries from the hosts file with names of services. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const HEADER_BYTES: usize = 12;
const ADDRESS: u16 = 1;
const TTL_S: u32 = 2;
/// Flags of an authoritative answer that offers recursion.
const ANSWERED: u16 = 0x8580;
const NO_SUCH_NAME: u16 = 3;
/// A pointer to the name of the question.
const SAME_NAME: u16 = 0xc000 | HEADER_BYTES as u16;

pub(super) type Table = BTreeMap<String, Vec<Ipv4Addr>>;

/// Parses lines of a hosts file.
pub(super) fn table(hosts: &str) -> Table {
    let mut table = Table::new();
    for line in hosts.lines() {
        let mut words = line.split_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse::<Ipv4Addr>) else { continue };
        for name in words {
            table.entry(name.to_owned()).or_default().push(address);
        }
    }
    table
}

/// `None`: not a query for one name.
pub(super) fn answer(query: &[u8], table: &Table) -> Option<Vec<u8>> {
    let (name, end) = name_of(query)?;
    let kind = u16::from_be_bytes([*query.get(end)?, *query.get(end + 1)?]);
    let question = query.get(HEADER_BYTES..end + 4)?;
    let known = table.get(&name);
    let addresses = known.filter(|_| kind == ADDRESS).map(Vec::as_slice).unwrap_or_default();
    let flags = if known.is_some() { ANSWERED } else { ANSWERED | NO_SUCH_NAME };
    let count = u16::try_from(addresses.len()).ok()?;
    let mut answer = query[..2].to_vec();
    for number in [flags, 1, count, 0, 0] {
        answer.extend(number.to_be_bytes());
    }
    answer.extend(question);
    for address in addresses {
        for number in [SAME_NAME, ADDRESS, 1] {
            answer.extend(number.to_be_bytes());
        }
        answer.extend(TTL_S.to_be_bytes());
        answer.extend(4_u16.to_be_bytes());
        answer.extend(address.octets());
    }
    Some(answer)
}

/// The name in lower case, and its end in the query.
fn name_of(query: &[u8]) -> Option<(String, usize)> {
    if query.get(4..6)? != 1_u16.to_be_bytes() {
        return None;
    }
    let (mut labels, mut at) = (Vec::new(), HEADER_BYTES);
    loop {
        let length = usize::from(*query.get(at)?);
        if length == 0 {
            return Some((labels.join("."), at + 1));
        }
        let label = query.get(at + 1..at + 1 + length)?;
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += 1 + length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut query = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(u8::try_from(label.len()).expect("short"));
            query.extend(label.bytes());
        }
        query.push(0);
        query.extend([kind.to_be_bytes(), 1_u16.to_be_bytes()].concat());
        query
    }

    #[test]
    fn a_name_has_its_addresses_and_what_is_not_known_does_not_exist() {
        let table = table("10.1.0.1 pool.a.svc pool\n10.1.0.2 pool.a.svc\n::1 localhost\n");
        let found = answer(&query("Pool.A.svc", ADDRESS), &table).expect("an answer");
        assert_eq!(found[..8], [7, 9, 0x85, 0x80, 0, 1, 0, 2]);
        assert_eq!(found[found.len() - 4..], [10, 1, 0, 2]);
        // The name exists without records of this type, so that clients search no further.
        let other = answer(&query("pool", 28), &table).expect("an answer");
        assert_eq!(other[2..8], [0x85, 0x80, 0, 1, 0, 0]);
        let none = answer(&query("pool.a.svc.cluster.local", ADDRESS), &table).expect("an answer");
        assert_eq!(none[2..8], [0x85, 0x83, 0, 1, 0, 0]);
        assert_eq!(answer(&[0; 5], &table), None);
        assert_eq!(answer(&query("pool", ADDRESS)[..14], &table), None);
    }
}
