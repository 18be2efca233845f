//! What a context says about the machine itself: its network, its name, who may log in, and a script. Pure: values in, files
//! out. For images without OpenNebula's own context package, whose files for others (`one_env`) are the same here.
//!
//! What is wrong takes away its own line and nothing else: a machine that can be reached can be repaired.

mod network;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::context::Values;
use crate::problem::Problem;

/// Where programs look for the context.
pub const CONTEXT: &str = "run/one-context";
/// Where the agent finds what was on the disc, in quotes that can be trusted.
const DISC: &str = "run/trellis/context";
/// The files that systemd-networkd reads; gone with every stop, so they are always those of this context.
const NETWORK: &str = "run/systemd/network";
const MAX_HOSTNAME: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// From the root of the machine.
    pub path: String,
    pub mode: u32,
    pub content: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    pub files: Vec<File>,
    pub hostname: Option<String>,
    pub problems: Vec<Problem>,
}

/// `context` is the text of `context.sh`, as `values` read it; `token` that of `token.txt`.
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
            let what = "nobody logs in with a password here";
            machine.problems.push(Problem::new(refused, what, "give a key: SSH_PUBLIC_KEY"));
        }
    }
    machine
}

impl Machine {
    fn put(&mut self, path: String, mode: u32, content: Vec<u8>) {
        self.files.push(File { path, mode, content });
    }
}

/// As OpenNebula's package writes it: values are raw, and whoever reads it must parse it.
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

fn hostname(values: &Values, problems: &mut Vec<Problem>) -> Option<String> {
    let given = values.get("SET_HOSTNAME");
    let default = values.get("VMID").map(|id| format!("trellis-{id}"));
    let name = given.map(str::to_owned).or(default)?;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.len() <= MAX_HOSTNAME && name.bytes().all(letter) && !name.starts_with(['-', '.']) {
        return Some(name);
    }
    let what = format!("a machine's name has up to {MAX_HOSTNAME} letters, digits, hyphens and dots");
    problems.push(Problem::new("SET_HOSTNAME", what, "give another name").showing(&name));
    None
}

/// One key for each line; they let in as root, who is the only one to log in.
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
            let advice = "encode the script with base64, or give it as START_SCRIPT";
            machine.problems.push(Problem::new("START_SCRIPT_BASE64", "it is no base64", advice));
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
        let one_env = file(&machine, "run/one-context/one_env").expect("it is always there");
        assert!(one_env.starts_with("export TOKENTXT=\"abc\"\nexport ETH0_DNS=\"9.9.9.9 8.8.8.8\"\n"), "{one_env}");
    }

    #[test]
    fn what_is_written_for_others_is_read_as_it_was_said() {
        let machine = of("A='x\"y'\nB='$(reboot)`id`'\nVMID='3'\n");
        let mut read = Values::default();
        read.add_one_env(file(&machine, "run/one-context/one_env").expect("it is there").as_bytes());
        assert_eq!((read.get("A"), read.get("B")), (Some("x\"y"), Some("$(reboot)`id`")));
        assert_eq!((read.get("VMID"), read.get("TOKENTXT")), (Some("3"), Some("abc")));
    }

    #[test]
    fn all_that_is_wrong_is_told_and_the_rest_is_done() {
        let machine =
            of("NETWORK='YES'\nETH0_IP='10.0.0.300'\nETH0_MAC='zz'\nETH1_IP='10.1.0.5'\nETH1_MASK='255.0.255.0'\n\
             SET_HOSTNAME='a b'\nPASSWORD='x'\nSTART_SCRIPT_BASE64='*'\nSSH_PUBLIC_KEY='ssh-rsa A'\n");
        let variables: Vec<_> = machine.problems.iter().map(|problem| problem.variable.as_str()).collect();
        assert_eq!(variables, ["SET_HOSTNAME", "ETH0_MAC", "ETH0_IP", "ETH1_MASK", "START_SCRIPT_BASE64", "PASSWORD"]);
        assert!(file(&machine, "run/one-context/authorized_keys.root").is_some());
    }

    #[test]
    fn without_a_word_the_network_is_left_alone() {
        let machine = of("ETH0_IP='10.0.0.10'\n");
        assert!(!machine.files.iter().any(|file| file.path.contains("network")));
    }
}
