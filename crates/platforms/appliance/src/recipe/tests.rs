use std::path::Path;
use std::process::Command;
use std::time::Duration;

use trellis_flower::Isolation;
use trellis_flower::launch::{LogLevel, SuperLink, SuperNode};
use trellis_testing::launch::{User, undeclared};

use super::*;
use crate::settings::{
    Backoff, Certificates, Checkpoints, Framework, Gpu, Limit, SuperLinkSettings, SuperNodeSettings, Training,
};

pub fn common() -> Common {
    Common {
        generation: None,
        part: None,
        runtime: Runtime::Trellis,
        flower_version: None,
        isolation: Isolation::Subprocess,
        log_level: LogLevel::Info,
        json_logs: false,
        tls: true,
        keepalive: crate::settings::Keepalive { interval: Duration::from_secs(60), timeout: Duration::from_secs(20) },
        report_ready: true,
        defer_while_training: true,
        routes: Vec::new(),
        ready_script: None,
    }
}

fn superlink() -> Settings {
    let at = |text: &str| text.parse().expect("an address");
    let training = Training { config: BTreeMap::new(), said: Vec::new(), min_available: 2, checkpoints: None };
    let link = SuperLinkSettings {
        fleet: at("0.0.0.0:9092"),
        control: at("127.0.0.1:9093"),
        http: at("127.0.0.1:8000"),
        database: "state/state.db".into(),
        certificates: Certificates::Own { extra: Vec::new() },
        node_auth: false,
        admin_token: None,
        metrics_port: None,
        training,
        use_case: None,
        allowed_networks: Vec::new(),
        state_disk: None,
    };
    Settings { common: common(), role: RoleSettings::SuperLink(link) }
}

fn node() -> SuperNodeSettings {
    SuperNodeSettings {
        coordinator: None,
        trust: None,
        node_config: BTreeMap::new(),
        max_retries: Limit::Unlimited,
        max_wait: Limit::Unlimited,
        framework: Framework::None,
        use_case: None,
        gpu: None,
        dcgm: false,
        backoff: Backoff { exponential: true, max_interval: Duration::from_secs(300) },
        join_token: None,
        client_app: None,
    }
}

fn found() -> Surroundings {
    let coordinator = Coordinator {
        endpoint: "10.0.0.5:9092".into(),
        trust: Some("PEM".into()),
        version: None,
        http: None,
        shard: Some((1, 2)),
    };
    Surroundings { coordinator: Some(coordinator), ..Surroundings::default() }
}

fn place() -> Place {
    Place::new("/", "/usr/bin/trellis")
}

/// The command line as a user types it.
fn typed(program: &Program) -> String {
    format!("{} {}", program.path.display(), program.args.join(" "))
}

#[test]
fn our_superlink() {
    let around = Surroundings { advertised: "10.0.0.5".parse().ok(), ..Surroundings::default() };
    let mut settings = superlink();
    let RoleSettings::SuperLink(link) = &mut settings.role else { panic!("it is a SuperLink") };
    link.training.config = BTreeMap::from([("a".into(), 1.into()), ("strategy".into(), "FedAvg".into())]);
    link.training.said = vec!["a".into()];
    let recipe = recipe(&settings, &around, &place()).expect("a recipe");
    assert_eq!(
        typed(&recipe.programs[0]),
        "/usr/bin/trellis superlink --isolation subprocess --ssl-certfile /var/lib/trellis/tls/own/server.pem \
         --ssl-keyfile /var/lib/trellis/tls/own/server.key --ssl-ca-certfile /var/lib/trellis/tls/own/ca.crt \
         --host 127.0.0.1 --port 8000 --control-api-address 127.0.0.1:9093 --fleet-api-address 0.0.0.0:9092 \
         --serverappio-api-address 127.0.0.1:9091 --endpoint 10.0.0.5 --state-dir /var/lib/trellis/superlink --database \
         /var/lib/trellis/superlink/state/state.db --run-defaults /etc/trellis/run-defaults.toml --log-level info \
         --keepalive-interval 60s --keepalive-timeout 20s"
    );
    assert_eq!(recipe.files.values().collect::<Vec<_>>(), ["a = 1\n"], "unset variables are no defaults");
}

#[test]
fn our_node_retries_without_limit_and_has_its_shard() {
    let settings = Settings { common: common(), role: RoleSettings::SuperNode(node()) };
    let recipe = recipe(&settings, &found(), &place()).expect("a recipe");
    assert_eq!(
        typed(&recipe.programs[0]),
        "/usr/bin/trellis supernode --superlink 10.0.0.5:9092 --isolation subprocess --root-certificates \
         /var/lib/trellis/trust/ca.crt --state-dir /var/lib/trellis/supernode --log-level info --keepalive-interval 60s \
         --keepalive-timeout 20s --backoff exponential --backoff-max 300s --gpus none --node-config \
         /etc/trellis/node-config.toml"
    );
    let config = recipe.files.values().next().expect("a node config");
    assert_eq!(config, "partition-id = 1\nnum-partitions = 2\n");
}

#[test]
fn settings_of_a_node_become_arguments() {
    let gpu = Gpu { visible: Some(vec![0, 2]), memory_fraction: 0.5, fallback_to_cpu: false };
    let mut said = node();
    said.gpu = Some(gpu);
    said.max_retries = Limit::At(3);
    said.max_wait = Limit::At(60);
    said.client_app = Some("native:mlp".into());
    said.node_config = BTreeMap::from([("partition-id".into(), 7.into())]);
    let settings = Settings { common: Common { tls: false, ..common() }, role: RoleSettings::SuperNode(said) };
    let recipe = recipe(&settings, &found(), &place()).expect("a recipe");
    let line = typed(&recipe.programs[0]);
    for part in [
        "--insecure",
        "--client-app native:mlp",
        "--max-retries 3 --max-wait-time 60s",
        "--cuda-visible-devices 0,2 --gpu-missing refuse --gpu-memory-fraction 0.5",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(recipe.files.values().next().expect("a node config"), "partition-id = 7\n");
}

#[test]
fn official_programs_get_the_arguments_of_their_release() {
    let by = FlowerBy::Packages;
    for (version, link, exec) in [
        (
            "1.25.0",
            "--fleet-api-address 0.0.0.0:9092 --control-api-address 127.0.0.1:9093 --serverappio-api-address 127.0.0.1:9091 \
             --database /var/lib/trellis/superlink/state/state.db --storage-dir /var/lib/trellis/superlink/apps",
            "--plugin-type serverapp --appio-api-address 127.0.0.1:9091 --insecure",
        ),
        (
            "1.36.0",
            "--fleet-api-address 0.0.0.0:9092 --control-api-address 127.0.0.1:9093 --host 127.0.0.1 --port 9091",
            "--plugin-type serverapp --runtime-api-address 127.0.0.1:9091 --insecure",
        ),
        (
            "1.38.0",
            "--fleet-api-address 0.0.0.0:9092 --host 127.0.0.1 --port 9093",
            "--runtime-api-address 127.0.0.1:9093 --root-certificates",
        ),
        ("1.42.0", "--host 0.0.0.0 --port 9092", "--runtime-api-address 127.0.0.1:9092 --root-certificates"),
    ] {
        let mut settings = superlink();
        settings.common.runtime = Runtime::Flower { by };
        settings.common.flower_version = Some(version.into());
        settings.common.isolation = Isolation::Process;
        let recipe = recipe(&settings, &Surroundings::default(), &place()).expect("a recipe");
        let lines: Vec<String> = recipe.programs.iter().map(typed).collect();
        let program = format!("/opt/trellis/flower-{version}/bin/flower-superlink --isolation process");
        let served = "/var/lib/trellis/tls/own";
        let files = format!(
            "--ssl-certfile {served}/server.pem --ssl-keyfile {served}/server.key --ssl-ca-certfile {served}/ca.crt"
        );
        assert!(lines[0].starts_with(&format!("{program} {files} {link}")), "{lines:?}");
        assert!(lines[1].contains(exec), "{lines:?}");
    }
}

#[test]
fn containers_have_no_rights_and_see_only_what_they_need() {
    let runtime = Runtime::Flower { by: FlowerBy::Docker };
    let settings = Settings { common: Common { runtime, ..common() }, role: RoleSettings::SuperNode(node()) };
    let recipe = recipe(&settings, &found(), &place()).expect("a recipe");
    let line = typed(&recipe.programs[0]);
    assert!(line.starts_with("/usr/bin/docker run --rm --network host --cap-drop ALL"), "{line}");
    assert!(line.contains("--volume /var/lib/trellis/trust:/var/lib/trellis/trust:ro"), "{line}");
    assert!(line.contains("flwr/supernode:1.42.0 --superlink 10.0.0.5:9092"), "{line}");
    assert!(!line.contains("authority"), "{line}");
}

/// With process isolation, the SuperExec starts the apps of a node.
#[test]
fn a_superexec_sees_the_gpus_of_its_node() {
    let mut said = node();
    said.gpu = Some(Gpu { visible: Some(vec![1]), memory_fraction: 1.0, fallback_to_cpu: false });
    let runtime = Runtime::Flower { by: FlowerBy::Packages };
    let common = Common { runtime, isolation: Isolation::Process, ..common() };
    let settings = Settings { common, role: RoleSettings::SuperNode(said) };
    let recipe = recipe(&settings, &found(), &place()).expect("a recipe");
    assert_eq!(recipe.programs.len(), 2);
    for program in &recipe.programs {
        assert_eq!(program.env["CUDA_VISIBLE_DEVICES"], "1", "{}", program.name);
    }
}

/// Launch descriptions that differ from the default in everything that settings or the machine can change.
fn superlinks() -> Vec<SuperLink> {
    let mut all = Vec::new();
    let mut change = |change: &dyn Fn(&mut Common, &mut SuperLinkSettings, &mut Surroundings)| {
        let Settings { mut common, role: RoleSettings::SuperLink(mut link) } = superlink() else {
            panic!("it is a SuperLink")
        };
        let mut around = Surroundings::default();
        change(&mut common, &mut link, &mut around);
        all.push(superlink::describe(&common, &link, &around, &place()));
    };
    change(&|_, _, _| {});
    change(&|common, _, _| common.runtime = Runtime::Flower { by: FlowerBy::Packages });
    change(&|common, _, _| common.isolation = Isolation::Process);
    change(&|common, _, _| common.log_level = LogLevel::Error);
    change(&|common, _, _| common.json_logs = true);
    change(&|common, _, _| common.tls = false);
    change(&|common, _, _| common.keepalive.interval = Duration::from_secs(7));
    change(&|common, _, _| common.flower_version = Some("1.30.0".into()));
    change(&|_, link, _| link.fleet.set_port(1));
    change(&|_, link, _| link.control.set_port(2));
    change(&|_, link, _| link.http.set_port(3));
    change(&|_, link, _| link.database = "other.db".into());
    change(&|_, link, _| link.node_auth = true);
    change(&|_, link, _| link.admin_token = Some("t".into()));
    change(&|_, link, _| link.metrics_port = Some(9464));
    change(&|_, link, _| link.training.checkpoints = Some(Checkpoints { every_rounds: 1, directory: "m".into() }));
    change(&|_, link, _| {
        link.training.config = BTreeMap::from([("a".into(), 1.into())]);
        link.training.said = vec!["a".into()];
    });
    change(&|_, _, around| around.python = true);
    change(&|_, _, around| around.advertised = "10.0.0.5".parse().ok());
    change(&|_, _, around| around.apps_port = Some(5));
    all
}

fn supernodes() -> Vec<SuperNode> {
    let mut all = Vec::new();
    let mut change = |change: &dyn Fn(&mut Common, &mut SuperNodeSettings, &mut Surroundings)| {
        let (mut common, mut node, mut around) = (common(), node(), found());
        change(&mut common, &mut node, &mut around);
        all.push(supernode::describe(&common, &node, &around, &place()).expect("a SuperLink was found"));
    };
    let gpu = Gpu { visible: Some(vec![0]), memory_fraction: 0.5, fallback_to_cpu: false };
    change(&|_, _, _| {});
    change(&|common, _, _| common.isolation = Isolation::Process);
    change(&|common, _, _| common.tls = false);
    change(&|_, node, _| node.node_config = BTreeMap::from([("a".into(), 1.into())]));
    change(&|_, node, _| node.max_retries = Limit::At(1));
    change(&|_, node, _| node.max_wait = Limit::At(1));
    change(&|_, node, _| node.backoff.exponential = false);
    change(&|_, node, _| node.client_app = Some("native:mlp".into()));
    change(&|_, node, _| node.gpu = Some(gpu.clone()));
    change(&|_, _, around| around.node_key = Some("/k".into()));
    change(&|_, _, around| around.name = Some("a".into()));
    change(&|_, _, around| {
        let other = around.coordinator.clone().map(|found| Coordinator { endpoint: "b:1".into(), ..found });
        around.coordinator = other;
    });
    all
}

#[test]
fn every_field_of_a_launch_can_be_changed_or_is_declared() {
    let (links, nodes) = (superlinks(), supernodes());
    let common = links.iter().flat_map(|link| link.common.differences(&links[0].common)).collect();
    let link = links.iter().flat_map(|link| link.differences(&links[0])).collect();
    let node = nodes.iter().flat_map(|node| node.differences(&nodes[0])).collect();
    for (name, fields, changed) in [
        ("Common", launch::Common::FIELDS, common),
        ("SuperLink", SuperLink::FIELDS, link),
        ("SuperNode", SuperNode::FIELDS, node),
    ] {
        assert_eq!(undeclared(User::Appliance, name, fields, &changed), Vec::<String>::new());
    }
}

#[test]
fn no_value_adds_a_directive_to_a_unit() {
    let mut program = Program::new("supernode", "A node", "/usr/bin/trellis").arg("a b\"c\\ %n $HOME ${X} ;|&");
    program = program.env("A", "x \"y\" %h $z");
    let text = unit::render(&program, &Recipe::default(), &place()).expect("it can be said");
    assert!(text.contains(r#"ExecStart="/usr/bin/trellis" "a b\"c\\ %%n $$HOME $${X} ;|&""#), "{text}");
    assert!(text.contains(r#"Environment="A=x \"y\" %%h $z""#), "{text}");
    for bad in ["a\nExecStart=/bin/evil", "a\rb", "a\0b"] {
        let program = Program::new("supernode", "A node", "/usr/bin/trellis").arg(bad);
        assert!(unit::render(&program, &Recipe::default(), &place()).is_err(), "{bad:?}");
    }
}

#[test]
fn systemd_accepts_the_units() {
    let analyze = "/usr/bin/systemd-analyze";
    if !Path::new(analyze).exists() {
        eprintln!("skipped: there is no systemd-analyze on this machine");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = std::env::current_exe().expect("we are a program");
    let place = Place::new(directory.path(), program);
    let settings = Settings { common: common(), role: RoleSettings::SuperNode(node()) };
    let mut recipe = recipe(&settings, &found(), &place).expect("a recipe");
    recipe.programs[0] = recipe.programs[0].clone().arg("x\"y\\ %n $HOME").env("A", "b c%d");
    let mut units = unit::all(&recipe, &place).expect("units");
    units.push((place.units().join("trellis-agent.service"), unit::agent(&place)));
    units.push((place.units().join("trellis-appliance.service"), unit::appliance(&place)));
    std::fs::create_dir_all(place.units()).expect("a directory");
    for (path, text) in &units {
        std::fs::write(path, text).expect("written");
    }
    let paths = units.iter().map(|(path, _)| path);
    let judged = Command::new(analyze).arg("verify").arg("--man=no").args(paths).output().expect("it runs");
    let said = String::from_utf8_lossy(&judged.stderr);
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("trellis-")).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}
