//! A tunnel between two gateways on real interfaces in separate network namespaces, if the tools are available.

use std::process::{Command, Output};

use trellis_tunnel::{Config, Device, Draft, PeerDraft, PrivateKey, State, up};

const TOOLS: [&str; 4] = ["unshare", "ip", "wg", "sh"];

fn run(words: &[&str]) -> std::io::Result<Output> {
    Command::new(words[0]).args(&words[1..]).output()
}

fn is_there(tool: &str) -> bool {
    run(&["sh", "-c", &format!("command -v {tool}")]).is_ok_and(|output| output.status.success())
}

/// Why the test cannot run here.
fn hindrance() -> Option<String> {
    let missing: Vec<&str> = TOOLS.into_iter().filter(|tool| !is_there(tool)).collect();
    if !missing.is_empty() {
        return Some(format!("there is no {}", missing.join(", no ")));
    }
    let isolated = run(&["unshare", "--map-root-user", "--net", "ip", "link", "show"]);
    (!isolated.is_ok_and(|output| output.status.success())).then(|| "there are no network namespaces for us".to_owned())
}

fn words(command: &[String]) -> String {
    command.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_configuration_is_taken_by_a_device() {
    if let Some(why) = hindrance() {
        eprintln!("SKIPPED: a tunnel on real interfaces: {why}");
        return;
    }
    let (own, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let peer = PeerDraft {
        name: "lyon".to_owned(),
        public_key: other.public().to_string(),
        endpoint: Some("198.51.100.7:51820".to_owned()),
        allowed: vec!["10.66.0.2/32".to_owned(), "10.10.11.0/24".to_owned()],
        keepalive_s: Some(25),
    };
    let address = "10.66.0.1/24".to_owned();
    let draft = Draft { private_key: own.reveal(), address, listen_port: 51820, mtu: 1420, peers: vec![peer] };
    let config = Config::new(draft).unwrap();
    let file = std::env::temp_dir().join(format!("trellis-tunnel-{}.conf", std::process::id()));
    std::fs::write(&file, config.to_setconf()).unwrap();
    let file_name = file.to_str().unwrap();

    let devices = [Device::Kernel, Device::Program];
    let outputs: Vec<Output> = devices
        .into_iter()
        .map(|device| {
            let commands: Vec<String> = up("wg0", &config, device, file_name).iter().map(|each| words(each)).collect();
            let script = format!("set -e; {}; ip route show dev wg0 >&2; wg show wg0 dump", commands.join("; "));
            run(&["unshare", "--map-root-user", "--net", "sh", "-c", &script]).unwrap()
        })
        .collect();
    std::fs::remove_file(&file).unwrap();
    let Some(output) = outputs.iter().find(|output| output.status.success()) else {
        let told: Vec<String> =
            outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).collect();
        eprintln!("SKIPPED: a tunnel on real interfaces: neither the kernel nor wireguard-go makes one: {told:?}");
        return;
    };
    let state = State::parse(&String::from_utf8_lossy(&output.stdout)).expect("what wg tells");
    assert_eq!((state.public_key, state.listen_port), (own.public(), 51820));
    assert_eq!(state.peers[0].public_key, other.public());
    assert_eq!(state.peers[0].endpoint.as_deref(), Some("198.51.100.7:51820"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("10.10.11.0/24"));
}
