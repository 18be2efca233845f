//! Converts the responses of a machine to checks. Pure.

use std::time::Duration;

use serde::Serialize;

use crate::recipe::Role;

/// Units that every image starts.
pub const ENABLED: [&str; 5] = [
    "trellis-machine.service",
    "trellis-appliance.service",
    "trellis-ssh-keys.service",
    "ssh.service",
    "systemd-networkd.service",
];
/// A node is not ready without a SuperLink, so this unit may fail; all others must not.
const MAY_FAIL_ON_NODES: &str = "trellis-appliance.service";
const FLEET_PORT: &str = "9092";
const SSH_PORT: &str = "22";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub passed: bool,
    pub found: String,
}

/// `ended`: whether the machine powered off in time, and the emulator succeeded.
pub fn judge(role: Role, said: &str, ended: Option<bool>, limit: Duration) -> Vec<Check> {
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let of = |word: &str| {
        let tail = |line: &&str| line.strip_prefix(word)?.strip_prefix(' ').map(str::to_owned);
        lines.iter().filter_map(tail).collect::<Vec<String>>()
    };
    let check = |name, passed, found: String| Check { name, passed, found };
    let mut checks = vec![check("booted", lines.contains(&"begin"), first(&of("hostname"), "no response"))];
    let found = first(&of("role"), "none");
    checks.push(check("role", found == role.name(), found));

    let units = of("unit");
    let disabled = |unit: &&&str| !units.contains(&format!("{unit} enabled"));
    let missing: Vec<&str> = ENABLED.iter().filter(disabled).copied().collect();
    checks.push(check("units enabled", missing.is_empty(), listed(&missing, "all")));

    let failed = of("failed");
    let failed: Vec<&str> = failed
        .iter()
        .map(String::as_str)
        .filter(|unit| role == Role::Superlink || *unit != MAY_FAIL_ON_NODES)
        .collect();
    checks.push(check("no failed units", failed.is_empty() && lines.contains(&"end"), listed(&failed, "none")));

    let ports = of("port");
    let listens = |port: &str| ports.iter().any(|address| address.rsplit(':').next() == Some(port));
    let (wanted, unwanted): (&[&str], &[&str]) = match role {
        Role::Superlink => (&[SSH_PORT, FLEET_PORT], &[]),
        Role::Supernode => (&[SSH_PORT], &[FLEET_PORT]),
    };
    let right = wanted.iter().all(|port| listens(port)) && !unwanted.iter().any(|port| listens(port));
    checks.push(check("ports of the role", right, ports.join(", ")));

    let status = first(&of("status"), "");
    let readable = serde_json::from_str::<serde_json::Value>(&status).is_ok_and(|status| status.is_object());
    checks.push(check("agent answers", readable, status));
    let found = match ended {
        Some(true) => "powered off".to_owned(),
        Some(false) => "the emulator ended with an error".to_owned(),
        None => format!("still running after {} s", limit.as_secs()),
    };
    checks.push(check("clean shutdown", ended == Some(true), found));
    checks
}

fn first(found: &[String], otherwise: &str) -> String {
    found.first().cloned().unwrap_or_else(|| otherwise.to_owned())
}

fn listed(found: &[&str], otherwise: &str) -> String {
    if found.is_empty() { otherwise.to_owned() } else { found.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(9);

    fn well(role: &str) -> String {
        let units: String = ENABLED.iter().map(|unit| format!("unit {unit} enabled\n")).collect();
        format!("begin\r\nrole {role}\r\nhostname trellis-1\n{units}port 0.0.0.0:22\nstatus {{\"ready\":true}}\nend\n")
    }

    fn failing(role: Role, said: &str, ended: Option<bool>) -> Vec<&'static str> {
        judge(role, said, ended, LIMIT).into_iter().filter(|check| !check.passed).map(|check| check.name).collect()
    }

    #[test]
    fn stories_of_machines() {
        let link = well("superlink") + "port [::]:9092\n";
        let node = well("supernode");
        let none: &[&str] = &[];
        type Story<'a> = (&'a str, Role, String, Option<bool>, &'a [&'a str]);
        let cases: [Story; 8] = [
            ("a SuperLink", Role::Superlink, link.clone(), Some(true), none),
            ("a node", Role::Supernode, node.clone(), Some(true), none),
            ("a node alone", Role::Supernode, node.clone() + "failed trellis-appliance.service\n", Some(true), none),
            (
                "a SuperLink that is not ready",
                Role::Superlink,
                link.clone() + "failed trellis-appliance.service\n",
                Some(true),
                &["no failed units"],
            ),
            ("no Fleet API", Role::Superlink, well("superlink"), Some(true), &["ports of the role"]),
            ("a node that serves", Role::Supernode, node.clone() + "port *:9092\n", Some(true), &["ports of the role"]),
            ("it hangs at the end", Role::Supernode, node, None, &["clean shutdown"]),
            ("the other image", Role::Supernode, link, Some(true), &["role", "ports of the role"]),
        ];
        for (story, role, said, ended, expected) in cases {
            assert_eq!(failing(role, &said, ended), expected, "{story}");
        }
    }

    #[test]
    fn a_machine_without_output_fails_all_checks() {
        assert_eq!(failing(Role::Superlink, "", None).len(), 7);
    }
}
