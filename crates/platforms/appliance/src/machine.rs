//! Configuration of the machine from its context: network, host name, SSH keys and a script. Converts values to files; pure.
//! It serves images without OpenNebula's own context package, and writes the same files for other programs (`one_env`).
//!
//! An invalid value only loses its own line, so that the machine stays reachable for repair.

mod network;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::context::Values;
use crate::problem::{Diagnostic, Place, problem};

/// Path where programs look for the context.
pub const CONTEXT: &str = "run/one-context";
/// Path where the agent finds the contents of the disc, with reliable quoting.
const DISC: &str = "run/trellis/context";
/// Files of systemd-networkd, below /run, so that they always belong to the current context.
const NETWORK: &str = "run/systemd/network";
const MAX_HOSTNAME: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Path below the root of the machine.
    pub path: String,
    pub mode: u32,
    pub content: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    pub files: Vec<File>,
    pub hostname: Option<String>,
    pub problems: Vec<Diagnostic>,
}

/// `context` is the text of `context.sh`; `values` is parsed from it. `token` is the text of `token.txt`.
pub fn machine(values: &Values, context: &[u8], token: Option<&[u8]>) -> Machine {
    let mut machine = Machine::default();
    machine.put(format!("{DISC}/context.sh"), 0o400, context.to_vec());
    machine.put(format!("{CONTEXT}/one_env"), 0o400, one_env(values, token));
    if let Some(token) = token {
        machine.put(format!("{DISC}/token.txt"), 0o400, token.to_vec());
    }
    machine.hostname = hostname(values, &mut machine.problems);
    if let Some(name) = machine.hostname.clone() {
        machine.put("etc/hostname".into(), 0o644, format!("{name}\n").into_bytes());
    }
    if values.get("NETWORK").is_some_and(|answer| answer.eq_ignore_ascii_case("yes")) {
        for interface in network::interfaces(values, &mut machine.problems) {
            machine.put(format!("{NETWORK}/10-{}.network", interface.name), 0o644, interface.render().into_bytes());
        }
    }
    keys(values, &mut machine);
    start_script(values, &mut machine);
    for refused in ["PASSWORD", "PASSWORD_BASE64", "CRYPTED_PASSWORD", "CRYPTED_PASSWORD_BASE64"] {
        if values.get(refused).is_some() {
            let what = "password logins are not supported";
            machine.problems.push(problem(refused, what, "set a key with SSH_PUBLIC_KEY"));
        }
    }
    machine
}

impl Machine {
    fn put(&mut self, path: String, mode: u32, content: Vec<u8>) {
        self.files.push(File { path, mode, content });
    }
}

/// Same format as OpenNebula's package: values are raw, so readers must parse it.
fn one_env(values: &Values, token: Option<&[u8]>) -> Vec<u8> {
    let mut text = Vec::new();
    let mut export = |name: &str, value: &[u8]| {
        text.extend(format!("export {name}=\"").into_bytes());
        text.extend(value);
        text.extend(b"\"\n");
    };
    export("TOKENTXT", token.unwrap_or_default().trim_ascii());
    for name in values.names() {
        if let Some(said) = values.all(name).next() {
            export(name, said.bytes);
        }
    }
    text
}

fn hostname(values: &Values, problems: &mut Vec<Diagnostic>) -> Option<String> {
    let given = values.get("SET_HOSTNAME");
    let default = values.get("VMID").map(|id| format!("trellis-{id}"));
    let name = given.map(str::to_owned).or(default)?;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.len() <= MAX_HOSTNAME && name.bytes().all(letter) && !name.starts_with(['-', '.']) {
        return Some(name);
    }
    let what = format!("a host name has up to {MAX_HOSTNAME} letters, digits, hyphens and dots");
    problems.push(problem(Place::showing("SET_HOSTNAME", &name), what, "give another name"));
    None
}

/// One key per line, for root, which is the only account.
fn keys(values: &Values, machine: &mut Machine) {
    let said: Vec<_> = ["SSH_PUBLIC_KEY", "EC2_PUBLIC_KEY"].into_iter().filter_map(|name| values.get(name)).collect();
    let lines: Vec<&str> =
        said.iter().flat_map(|keys| keys.lines()).map(str::trim).filter(|line| !line.is_empty()).collect();
    if !lines.is_empty() {
        machine.put(format!("{CONTEXT}/authorized_keys.root"), 0o600, (lines.join("\n") + "\n").into_bytes());
    }
}

fn start_script(values: &Values, machine: &mut Machine) {
    let encoded = values.get("START_SCRIPT_BASE64").map(|text| text.split_whitespace().collect::<String>());
    let script = match encoded.map(|text| STANDARD.decode(text)) {
        Some(Ok(script)) => script,
        Some(Err(_)) => {
            let advice = "encode the script with base64, or use START_SCRIPT";
            machine.problems.push(problem("START_SCRIPT_BASE64", "it is not base64", advice));
            return;
        }
        None => match values.get("START_SCRIPT") {
            Some(script) => script.as_bytes().to_vec(),
            None => return,
        },
    };
    let script = if script.starts_with(b"#!") { script } else { [b"#!/bin/sh\n".to_vec(), script].concat() };
    machine.put(format!("{CONTEXT}/start-script"), 0o700, script);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(context: &str) -> Machine {
        let mut values = Values::default();
        values.add_context_sh(context.as_bytes());
        machine(&values, context.as_bytes(), Some(b"abc\n"))
    }

    fn file(machine: &Machine, path: &str) -> Option<String> {
        let found = machine.files.iter().find(|file| file.path == path)?;
        Some(String::from_utf8(found.content.clone()).expect("text"))
    }

    #[test]
    fn a_context_becomes_the_files_of_a_machine() {
        let machine = of(
            "ETH0_IP='10.0.0.10'\nETH0_MASK='255.255.255.0'\nETH0_GATEWAY='10.0.0.1'\nETH0_DNS='9.9.9.9 8.8.8.8'\n\
             ETH0_MAC='02:00:0a:00:00:0a'\nNETWORK='YES'\nVMID='12'\nSSH_PUBLIC_KEY='ssh-ed25519 AAAA a\nssh-rsa BBBB b'\n\
             START_SCRIPT='echo \"$HOME\"'\n",
        );
        assert_eq!(machine.problems, []);
        assert_eq!(machine.hostname.as_deref(), Some("trellis-12"));
        assert_eq!(
            file(&machine, "run/systemd/network/10-eth0.network").expect("a network"),
            "[Match]\nMACAddress=02:00:0a:00:00:0a\n\n[Network]\nDHCP=no\nAddress=10.0.0.10/24\nGateway=10.0.0.1\n\
             DNS=9.9.9.9\nDNS=8.8.8.8\n"
        );
        let keys = file(&machine, "run/one-context/authorized_keys.root");
        assert_eq!(keys.as_deref(), Some("ssh-ed25519 AAAA a\nssh-rsa BBBB b\n"));
        let script = file(&machine, "run/one-context/start-script");
        assert_eq!(script.as_deref(), Some("#!/bin/sh\necho \"$HOME\""));
        let one_env = file(&machine, "run/one-context/one_env").expect("the file always exists");
        assert!(one_env.starts_with("export TOKENTXT=\"abc\"\nexport ETH0_DNS=\"9.9.9.9 8.8.8.8\"\n"), "{one_env}");
    }

    #[test]
    fn the_written_one_env_is_parsed_to_the_same_values() {
        let machine = of("A='x\"y'\nB='$(reboot)`id`'\nVMID='3'\n");
        let mut read = Values::default();
        read.add_one_env(file(&machine, "run/one-context/one_env").expect("it is there").as_bytes());
        assert_eq!((read.get("A"), read.get("B")), (Some("x\"y"), Some("$(reboot)`id`")));
        assert_eq!((read.get("VMID"), read.get("TOKENTXT")), (Some("3"), Some("abc")));
    }

    #[test]
    fn invalid_values_are_reported_and_the_rest_is_applied() {
        let machine =
            of("NETWORK='YES'\nETH0_IP='10.0.0.300'\nETH0_MAC='zz'\nETH1_IP='10.1.0.5'\nETH1_MASK='255.0.255.0'\n\
             SET_HOSTNAME='a b'\nPASSWORD='x'\nSTART_SCRIPT_BASE64='*'\nSSH_PUBLIC_KEY='ssh-rsa A'\n");
        let variables: Vec<_> = machine.problems.iter().map(|problem| problem.place.variable.as_str()).collect();
        assert_eq!(variables, ["SET_HOSTNAME", "ETH0_MAC", "ETH0_IP", "ETH1_MASK", "START_SCRIPT_BASE64", "PASSWORD"]);
        assert!(file(&machine, "run/one-context/authorized_keys.root").is_some());
    }

    #[test]
    fn the_network_is_unchanged_without_variables() {
        let machine = of("ETH0_IP='10.0.0.10'\n");
        assert!(!machine.files.iter().any(|file| file.path.contains("network")));
    }
}
