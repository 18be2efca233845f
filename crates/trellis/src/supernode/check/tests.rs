//! Tables of command lines (some with a file) and the result of the checks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trellis_client::{Security, Trust};
use trellis_diagnostic::Diagnostic;
use trellis_logging::LogFormat;
use trellis_node::config::{
    AppMode, Backoff, Gpus, Keepalive, Resources, Retry, Spare, TransportChoice, WarmSettings, WhenMissing,
};
use trellis_sandbox::{DataPath, Mode, Network};
use trellis_wire::proto::scalar::Scalar;

use super::{Checked, Machine, System, Zero, check};
use crate::settings::given::{Given, Outside, gather};
use crate::settings::scan::scan;
use crate::settings::{Flags, print};
use crate::supernode::table::{SUPERNODE, rows};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g";
/// An authority without a key.
const AUTHORITY: &str = include_str!("tests/authority.pem");

/// Words with spaces between them; those in «» are one.
fn words(line: &str) -> Vec<OsString> {
    let mut words = Vec::new();
    for (index, part) in line.split(['«', '»']).enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(OsString::from)),
            _ => words.push(part.into()),
        }
    }
    words
}

/// Arguments as they would be gathered; `file` is what `/etc/node.toml` holds.
fn raw(line: &str, file: &str) -> Given {
    let flags = Flags::new("trellis supernode", &SUPERNODE);
    let outside = Outside { environment: &BTreeMap::new(), read_file: &|_| Ok(file.to_owned()), base: None };
    gather(scan(&words(line), &flags), &flags, &outside)
}

fn read(path: &Path) -> io::Result<String> {
    match path.to_str() {
        Some("/here/node.toml") => Ok("[data]\nrows = 3".to_owned()),
        Some("/here/broken.toml") => Ok("a = ".to_owned()),
        Some("/here/trusted.yaml") => Ok(format!("ada: {KEY}")),
        Some("/here/untrusted.yaml") => Ok("ada: ssh-rsa AAAA\nbob: 7".to_owned()),
        _ => Err(io::Error::other("no such file")),
    }
}

/// A bundle of authorities, or a system that has none.
fn trust(bundle: Option<&Path>) -> Result<Trust, String> {
    match bundle {
        Some(path) if path.ends_with("ca.pem") => {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("ca.pem");
            std::fs::write(&file, AUTHORITY).unwrap();
            Ok(Trust::bundle(&file).unwrap())
        }
        Some(path) => Err(format!("{} cannot be read as PEM", path.display())),
        None => Err("the system has no certificates of authorities".to_owned()),
    }
}

fn check_as(zero: Zero, line: &str, file: &str) -> Result<Checked, Vec<Diagnostic>> {
    let system = System {
        current_dir: Path::new("/here"),
        home: Some(Path::new("/home/ada")),
        state_home: None,
        unreadable: &|path| path.to_string_lossy().contains("gone").then(|| "no such file".to_owned()),
        unwritable: &|_| None,
        read: &|_| Err("no such file".to_owned()),
    };
    let machine = Machine {
        system: &system,
        read: &read,
        trust: &trust,
        unusable_key: &|path| path.to_string_lossy().contains("gone").then(|| "it does not exist".to_owned()),
        native: &|name, _| match name {
            "mlp" => vec![],
            _ => vec![Diagnostic::error("app", "there is no such app", "use mlp")],
        },
        python: &|| Some("/venv/bin/python".into()),
    };
    check(&raw(line, file), zero, &machine)
}

fn checked(line: &str, file: &str) -> Result<Checked, Vec<Diagnostic>> {
    check_as(Zero::Unlimited, line, file)
}

/// What a command line means, with --insecure before it.
fn good(line: &str) -> Checked {
    checked(&format!("--insecure {line}"), "").unwrap_or_else(|problems| panic!("{line}: {problems:?}"))
}

#[test]
fn what_is_refused() {
    for (line, expected) in [
        ("--superlink nine", vec!["--superlink: \"nine\" is not an address: it has no port"]),
        (
            "--superlink http://h:1",
            vec!["--superlink: \"http://h:1\" is not an address: it must not start with a scheme"],
        ),
        ("--superlink h:0", vec!["--superlink: \"h:0\" is not an address: port 0 is not a port to connect to"]),
        ("--root-certificates ca.pem", vec!["--insecure contradicts --root-certificates"]),
        ("--insecure=false", vec!["--root-certificates: the system has no certificates of authorities"]),
        (
            "--insecure=false --root-certificates other.pem",
            vec!["--root-certificates: /here/other.pem cannot be read as PEM"],
        ),
        ("--transport tcp", vec!["--transport cannot be \"tcp\""]),
        ("--transport http --grpc-rere", vec!["--grpc-rere contradicts --transport http"]),
        ("--grpc-adapter", vec!["--grpc-adapter: no longer supported by Flower, nor by this SuperNode"]),
        ("--rest", vec!["--rest: no longer supported by Flower, nor by this SuperNode"]),
        ("--keepalive-interval 0s", vec!["--keepalive-interval: 0s is too short"]),
        (
            "--keepalive-interval 10s --keepalive-timeout 21s",
            vec![
                "--keepalive-interval 10s and --keepalive-timeout 21s do not fit: a dead connection would stay open \
                 through several pings",
            ],
        ),
        ("--max-retries -1", vec!["--max-retries: \"-1\" is not a limit"]),
        (
            "--max-retries often --max-wait-time -2",
            vec!["--max-retries: \"often\" is not a limit", "--max-wait-time: \"-2\" is not a limit"],
        ),
        ("--backoff random", vec!["--backoff cannot be \"random\""]),
        (
            "--backoff-first 20s --backoff-max 10s",
            vec!["--backoff-first 20s and --backoff-max 10s do not fit: the first pause would be the maximum"],
        ),
        ("--auth-supernode-private-key gone", vec!["--auth-supernode-private-key: it does not exist"]),
        (
            "--node-config «a=one b=2 c=[1]»",
            vec![
                "--node-config: the value of a, one, is neither true, false, a number nor a quoted text",
                "--node-config: the value of c is neither a text nor a number, but: array",
            ],
        ),
        ("--node-config none.toml", vec!["--node-config: /here/none.toml cannot be read: no such file"]),
        (
            "--trusted-entities untrusted.yaml",
            vec![
                "--trusted-entities: /here/untrusted.yaml: the key of \"ada\" is not Ed25519: it does not begin with \
                 ssh-ed25519",
                "--trusted-entities: /here/untrusted.yaml: the key of \"bob\" is no text",
            ],
        ),
        ("--trusted-entities none", vec!["--trusted-entities: /here/none: it cannot be read: no such file"]),
        ("--isolation docker", vec!["--isolation cannot be \"docker\""]),
        ("--app-lifecycle hot", vec!["--app-lifecycle cannot be \"hot\""]),
        ("--app-spare maybe", vec!["--app-spare cannot be \"maybe\""]),
        ("--sandbox maybe", vec!["--sandbox cannot be \"maybe\""]),
        ("--app-network some", vec!["--app-network cannot be \"some\""]),
        ("--app-data /", vec!["--app-data: \"/\" is the whole machine"]),
        ("--app-env A=1", vec!["--app-env: \"A=1\" is not the name of a variable"]),
        ("--max-concurrent-apps 0", vec!["--max-concurrent-apps: \"0\" is not a number from 1 to 1024"]),
        ("--app-timeout 31d", vec!["--app-timeout: 31d is too long"]),
        ("--app-idle-timeout 25h", vec!["--app-idle-timeout: 25h is too long"]),
        ("--app-recycle-memory 1MiB", vec!["--app-recycle-memory: 1MiB is too small"]),
        ("--python ./gone/python", vec!["--python: /here/gone/python cannot be read: no such file"]),
        ("--client-app mlp", vec!["--client-app: \"mlp\" is not a built-in app"]),
        ("--client-app native:", vec!["--client-app native:: app: there is no such app"]),
        ("--client-app native:mlpp", vec!["--client-app native:mlpp: app: there is no such app"]),
        (
            "--client-app native:mlp --isolation process",
            vec!["--client-app contradicts --isolation process: the app is built in"],
        ),
        (
            "--client-app native:mlp --client-app-setting rounds --client-app-setting lr=1,lr=2",
            vec!["--client-app-setting: \"rounds\" is no NAME=VALUE", "--client-app-setting: \"lr\" is set twice"],
        ),
        ("--gpus some", vec!["--gpus: \"some\" is no list of GPUs"]),
        ("--gpus 0", vec!["--gpus 0 could mean no GPU, or the first one"]),
        (
            "--gpus 1 --cuda-visible-devices 0",
            vec!["--gpus and --cuda-visible-devices have the same meaning and are both set"],
        ),
        ("--cuda-visible-devices 0,,1", vec!["--cuda-visible-devices: \"0,,1\" is no list of GPUs"]),
        ("--gpu-missing ignore", vec!["--gpu-missing cannot be \"ignore\""]),
        ("--gpu-memory-fraction 0", vec!["--gpu-memory-fraction: \"0\" is not a number above 0 and up to 1"]),
        ("--gpu-memory-fraction NaN", vec!["--gpu-memory-fraction: \"NaN\" is not a number above 0 and up to 1"]),
        (
            "--app-cpus 0 --app-memory 1KiB",
            vec!["--app-cpus: \"0\" is not a number of CPUs", "--app-memory: 1KiB is too small"],
        ),
        ("--disk-limit 1MiB", vec!["--disk-limit: 1MiB is too small"]),
        ("--bandwidth-limit fast", vec!["--bandwidth-limit: \"fast\" is not a size"]),
        ("--parallel-transfers 65", vec!["--parallel-transfers: \"65\" is not a number from 1 to 64"]),
        (
            "--metrics-address metrics.example.org:1",
            vec!["--metrics-address: metrics.example.org is a name, not an address to listen on"],
        ),
        (
            "--clientappio-api-address 127.0.0.1:1 --port 2",
            vec!["--clientappio-api-address, --host, --port have the same meaning and are all set"],
        ),
        (
            "--isolation process --metrics-address 0.0.0.0:9094",
            vec!["--clientappio-api-address 127.0.0.1:9094 and --metrics-address 0.0.0.0:9094 cannot be used at once"],
        ),
        (
            "--isolation process --superexec-auth-secret-file gone",
            vec!["--superexec-auth-secret-file: /here/gone cannot be read: no such file"],
        ),
        (
            "--isolation process --ssl-certfile c --appio-ssl-keyfile k",
            vec!["--ssl-certfile, --appio-ssl-keyfile: apps and SuperExecs are served without TLS"],
        ),
        ("--log-level loud", vec!["\"loud\" is not a log level"]),
        ("status", vec!["unexpected argument \"status\": there are only flags"]),
    ] {
        let found: Vec<String> = match checked(&format!("--insecure {line}"), "") {
            Ok(_) => Vec::new(),
            Err(problems) => {
                assert!(problems.iter().all(|problem| !problem.advice.is_empty()), "{line}");
                problems.into_iter().map(|problem| problem.what).collect()
            }
        };
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn all_problems_come_at_once_each_with_its_place() {
    let line = "--config /etc/node.toml --zzz --superlink nine --gpus some";
    let problems = checked(line, "max-retries = 'often'\nroot-certificates = 'x.pem'").expect_err("five mistakes");
    let found: Vec<_> = problems.iter().map(|p| (p.what.as_str(), p.place.as_str())).collect();
    assert_eq!(
        found,
        [
            ("unknown flag --zzz", "command line"),
            ("--superlink: \"nine\" is not an address: it has no port", "command line, --superlink"),
            ("--root-certificates: /etc/x.pem cannot be read as PEM", "/etc/node.toml line 2, root-certificates"),
            ("--max-retries: \"often\" is not a limit", "/etc/node.toml line 1, max-retries"),
            ("--gpus: \"some\" is no list of GPUs", "command line, --gpus"),
        ]
    );
}

#[test]
fn a_broken_file_is_not_blamed_for_what_it_may_set() {
    let problems = checked("--config /etc/node.toml", "insecure = ").expect_err("broken file");
    let found: Vec<_> = problems.iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(found, ["/etc/node.toml line 1"]);
}

#[test]
fn defaults() {
    let Checked { config, log, warnings, .. } = good("");
    assert_eq!((config.superlink.host.as_str(), config.superlink.port), ("127.0.0.1", 9092));
    assert!(matches!(config.superlink.security, Security::Plaintext) && config.superlink.token.is_none());
    assert_eq!(config.transport, TransportChoice::Auto);
    let [interval, timeout] = [30, 20].map(Duration::from_secs);
    assert_eq!(config.keepalive, Keepalive { interval: Some(interval), timeout });
    let backoff = Backoff::Exponential { first: Duration::from_secs(1), cap: Duration::from_secs(30) };
    assert_eq!(config.retry, Retry { max_retries: None, max_wait: None, backoff });
    assert_eq!(config.state_dir, Path::new("/home/ada/.local/state/trellis/supernode"));
    assert!(config.key.is_none() && config.node_config.is_empty() && config.trusted_entities.is_empty());
    let warm =
        WarmSettings { idle: Duration::from_secs(600), recycle_bytes: None, max_idle: 2, spare: Spare::EveryRun };
    assert_eq!(config.apps.mode, AppMode::Warm(warm));
    assert_eq!((config.apps.max_concurrent, config.apps.timeout), (1, None));
    assert_eq!(config.apps.address.to_string(), "127.0.0.1:0");
    assert_eq!(config.apps.python, Path::new("/venv/bin/python"));
    assert!(config.apps.flwr_home.is_none() && !config.apps.allow_dependency_installation);
    let resources = Resources {
        gpus: Gpus::Unset,
        gpu_missing: WhenMissing::Warn,
        gpu_memory_fraction: None,
        app_cpus: None,
        app_memory_bytes: None,
    };
    assert_eq!(config.resources, resources);
    assert_eq!((config.health_address, config.metrics_address), (None, None));
    assert_eq!(
        (config.limits.disk_bytes, config.limits.parallel_objects, config.limits.bandwidth),
        (20 << 30, 8, None)
    );
    assert_eq!((log.format, log.level.as_str(), log.file), (LogFormat::Text, "info", None));
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn what_zero_means_depends_on_the_name_of_the_program() {
    let (never, seconds) = (Some(Duration::ZERO), |s| Some(Duration::from_secs_f64(s)));
    for (line, ours, flowers) in [
        ("", (None, None), (None, None)),
        ("--max-retries 0", (None, None), (Some(0), None)),
        ("--max-wait-time 0", (None, None), (None, never)),
        ("--max-wait-time 0.0", (None, None), (None, never)),
        ("--max-retries 3 --max-wait-time 1.5", (Some(3), seconds(1.5)), (Some(3), seconds(1.5))),
        ("--max-retries unlimited --max-wait-time unlimited", (None, None), (None, None)),
        ("--max-retries never --max-wait-time never", (Some(0), never), (Some(0), never)),
        ("--max-wait-time 10m", (None, seconds(600.0)), (None, seconds(600.0))),
    ] {
        for (zero, expected) in [(Zero::Unlimited, ours), (Zero::Never, flowers)] {
            let Checked { config, warnings, .. } = check_as(zero, &format!("--insecure {line}"), "").expect(line);
            assert_eq!((config.retry.max_retries, config.retry.max_wait), expected, "{line} {zero:?}");
            let warned = warnings.iter().any(|warning| warning.contains("0 means here what it means in Flower"));
            assert_eq!(warned, zero == Zero::Never && line.contains(" 0"), "{line}: {warnings:?}");
        }
    }
}

#[test]
fn pauses() {
    let [one, two, forty] = [1, 2, 40].map(Duration::from_secs);
    let exponential = |first, cap| Backoff::Exponential { first, cap };
    for (line, expected) in [
        ("--backoff exponential --backoff-first 2s --backoff-max 40s", exponential(two, forty)),
        // The default of the maximum pause follows a long first one.
        ("--backoff-first 40s", exponential(forty, forty)),
        ("--backoff-max 1s", exponential(one, one)),
        ("--backoff fixed", Backoff::Fixed(one)),
        ("--backoff fixed --backoff-first 40s", Backoff::Fixed(forty)),
    ] {
        assert_eq!(good(line).config.retry.backoff, expected, "{line}");
    }
}

#[test]
fn the_way_to_the_superlink() {
    for (line, host, port) in [
        ("--superlink link.example.org:8000", "link.example.org", 8000),
        ("--superlink [2001:db8::7]:9092", "2001:db8::7", 9092),
        ("--superlink 0.0.0.0:9092", "127.0.0.1", 9092),
    ] {
        let target = good(line).config.superlink;
        assert_eq!((target.host.as_str(), target.port), (host, port), "{line}");
    }
    for (line, expected) in [
        ("--transport auto", TransportChoice::Auto),
        ("--transport http", TransportChoice::Http),
        ("--transport grpc", TransportChoice::Grpc),
        ("--grpc-rere", TransportChoice::Grpc),
        ("--grpc-rere --transport auto", TransportChoice::Auto),
    ] {
        assert_eq!(good(line).config.transport, expected, "{line}");
    }
    let Checked { config, root_certificates, .. } = checked("--root-certificates ca.pem", "").expect("TLS");
    assert!(matches!(config.superlink.security, Security::Tls(_)));
    assert_eq!(root_certificates.as_deref(), Some(Path::new("/here/ca.pem")));
}

#[test]
fn who_the_node_is() {
    let line = "--auth-supernode-private-key ~/node.key --state-dir nodes/1 --trusted-entities trusted.yaml";
    let Checked { config, .. } = good(&format!("{line} --node-config «partition-id=3 name=\"ward 7\"»"));
    assert_eq!(config.key.as_deref(), Some(Path::new("/home/ada/node.key")));
    assert_eq!(config.state_dir, Path::new("/here/nodes/1"));
    assert_eq!(config.trusted_entities, BTreeMap::from([("ada".to_owned(), KEY.to_owned())]));
    let value = |name: &str| config.node_config[name].scalar.clone().unwrap();
    assert_eq!((value("partition-id"), value("name")), (Scalar::Sint64(3), Scalar::String("ward 7".into())));
    let from_file = good("--node-config node.toml").config.node_config;
    assert_eq!(from_file["data.rows"].scalar, Some(Scalar::Sint64(3)));
}

#[test]
fn who_carries_out_instructions() {
    let warm = |idle, recycle_bytes, max_idle, spare| {
        AppMode::Warm(WarmSettings { idle: Duration::from_secs(idle), recycle_bytes, max_idle, spare })
    };
    let native = |name: &str, settings: &[(&str, &str)]| AppMode::Native {
        name: name.into(),
        settings: settings.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
    };
    for (line, expected) in [
        ("--isolation subprocess --app-lifecycle warm", warm(600, None, 2, Spare::EveryRun)),
        (
            "--app-idle-timeout 5s --app-recycle-memory 2GiB --max-idle-apps 1 --app-spare off",
            warm(5, Some(2 << 30), 1, Spare::None),
        ),
        ("--app-lifecycle per-message", AppMode::PerMessage),
        ("--isolation process", AppMode::Process),
        ("--client-app native:mlp", native("mlp", &[])),
        (
            "--client-app native:mlp --client-app-setting lr=0.1 --client-app-setting classes=0,1,2,hidden=64",
            native("mlp", &[("classes", "0,1,2"), ("hidden", "64"), ("lr", "0.1")]),
        ),
    ] {
        assert_eq!(good(line).config.apps.mode, expected, "{line}");
    }
    let apps = good("--flwr-dir ~/flwr --python python3.12 --app-timeout 1h --max-concurrent-apps 4").config.apps;
    assert_eq!(apps.flwr_home.as_deref(), Some(Path::new("/home/ada/flwr")));
    assert_eq!((apps.python, apps.max_concurrent), (PathBuf::from("python3.12"), 4));
    assert_eq!(apps.timeout, Some(Duration::from_secs(3600)));
    let apps = good("--isolation process --superexec-auth-secret-file s").config.apps;
    assert_eq!(apps.superexec_secret.as_deref(), Some(Path::new("/here/s")));
    assert_eq!(apps.python, Path::new("python3"), "the environment is not searched without need");
}

#[test]
fn what_apps_are_kept_from() {
    let usual = good("").config.apps.sandbox;
    assert_eq!((usual.mode, usual.network), (Mode::BestEffort, Network::All));
    let line = "--sandbox required --app-network none --app-data /data --app-data ~/out:rw --app-env HF_HOME,WARD";
    let chosen = good(line).config.apps.sandbox;
    assert_eq!((chosen.mode, chosen.network), (Mode::Required, Network::None));
    let data: Vec<String> = chosen.data.iter().map(DataPath::text).collect();
    assert_eq!(data, ["/data", "/home/ada/out:rw"]);
    assert_eq!(chosen.variables, ["HF_HOME", "WARD"]);
}

#[test]
fn where_apps_connect() {
    for (line, expected) in [
        ("--isolation process", "127.0.0.1:9094"),
        ("--isolation process --port 1", "127.0.0.1:1"),
        ("--isolation process --host 0.0.0.0", "0.0.0.0:9094"),
        ("--host ::1 --port 7", "[::1]:7"),
        ("--clientappio-api-address 0.0.0.0:9094", "0.0.0.0:9094"),
        ("--runtime-api-address localhost:5", "127.0.0.1:5"),
    ] {
        assert_eq!(good(line).config.apps.address.to_string(), expected, "{line}");
    }
}

#[test]
fn what_apps_may_use() {
    let these = |devices: &[&str]| Gpus::These(devices.iter().map(|device| (*device).to_owned()).collect());
    for (line, expected) in [
        ("--gpus none", Gpus::None),
        ("--gpus all", Gpus::All),
        ("--gpus 2", Gpus::Count(2)),
        ("--gpus 0,1", these(&["0", "1"])),
        ("--gpus GPU-8932f937", these(&["GPU-8932f937"])),
        ("--cuda-visible-devices 0", these(&["0"])),
        ("--cuda-visible-devices MIG-x,1", these(&["MIG-x", "1"])),
        ("--cuda-visible-devices -1", Gpus::None),
    ] {
        assert_eq!(good(line).config.resources.gpus, expected, "{line}");
    }
    let line = "--gpu-missing refuse --gpu-memory-fraction 0.5 --app-cpus 1.5 --app-memory 2GiB";
    let resources = good(line).config.resources;
    assert_eq!(resources.gpu_missing, WhenMissing::Refuse);
    assert_eq!((resources.gpu_memory_fraction, resources.app_cpus), (Some(0.5), Some(1.5)));
    assert_eq!(resources.app_memory_bytes, Some(2 << 30));
    let limits = good("--disk-limit 1GiB --bandwidth-limit 10MB --parallel-transfers 2").config.limits;
    assert_eq!((limits.disk_bytes, limits.bandwidth, limits.parallel_objects), (1 << 30, Some(10_000_000), 2));
}

#[test]
fn what_changes_nothing_or_is_not_safe_is_said() {
    for (line, expected) in [
        (
            "--superlink link.example.org:9092",
            "no TLS (--insecure) to link.example.org:9092, which is not on this machine",
        ),
        ("--superlink 0.0.0.0:9092", "--superlink 0.0.0.0:9092 is an address to listen on"),
        ("--auth-supernode-public-key k", "--auth-supernode-public-key is ignored"),
        ("--ssl-certfile c --ssl-keyfile k", "--ssl-certfile, --ssl-keyfile: not needed"),
        ("--backoff fixed --backoff-max 9s", "--backoff-max has no effect with --backoff fixed"),
        ("--node-config «word a=1»", "--node-config: \"word\" is ignored"),
        ("--app-lifecycle per-message --app-spare off", "--app-spare has no effect with --app-lifecycle per-message"),
        ("--isolation process --python python3", "--python has no effect with --isolation process"),
        ("--isolation process --gpus 1", "--gpus has no effect with --isolation process"),
        ("--client-app native:mlp --app-memory 1GiB", "--app-memory has no effect with --client-app"),
        ("--superexec-auth-secret-file s", "--superexec-auth-secret-file has no effect with --isolation subprocess"),
        ("--client-app-setting a=1", "--client-app-setting has no effect with --isolation subprocess"),
        ("--isolation process --host 0.0.0.0", "--host/--port 0.0.0.0:9094 has no TLS, and does not authenticate"),
        (
            "--isolation process --clientappio-api-address 0.0.0.0:1 --superexec-auth-secret-file s",
            "--clientappio-api-address 0.0.0.0:1 has no TLS: let only trusted machines reach it",
        ),
        ("--keepalive-interval 50s", "--keepalive-interval 50s and --keepalive-timeout 20s are 60 s or more together"),
        ("--log-rotation-backup-count 1", "--log-rotation-backup-count has no effect without --log-file"),
    ] {
        let warnings = good(line).warnings;
        assert!(warnings.iter().any(|warning| warning.starts_with(expected)), "{line}: {warnings:?}");
    }
}

#[test]
fn a_printed_configuration_means_the_same() {
    for (zero, line) in [
        (Zero::Unlimited, "--insecure"),
        (Zero::Never, "--insecure --max-retries 0 --max-wait-time 0"),
        (Zero::Unlimited, "--insecure --max-retries 3 --max-wait-time 1.5 --backoff fixed --backoff-first 2m"),
        (Zero::Unlimited, "--root-certificates ca.pem --superlink [::1]:1 --grpc-rere --keepalive-interval 90s"),
        (
            Zero::Unlimited,
            "--insecure --state-dir d --auth-supernode-private-key k --node-config «a=\"b c\" d='\"'» \
             --trusted-entities trusted.yaml --gpus 0,1 --gpu-memory-fraction 0.25 --app-cpus 2",
        ),
        (Zero::Unlimited, "--insecure --node-config node.toml --gpus 3 --gpu-missing refuse --app-memory 150MB"),
        (Zero::Unlimited, "--insecure --isolation process --superexec-auth-secret-file s --host :: --flwr-dir f"),
        (Zero::Unlimited, "--insecure --client-app native:mlp --client-app-setting partition=dirichlet:0.5,hidden=32"),
        (
            Zero::Unlimited,
            "--insecure --sandbox required --app-network none --app-data /data --app-data out:rw --app-env HF_HOME",
        ),
        (
            Zero::Unlimited,
            "--insecure --app-lifecycle per-message --allow-runtime-dependency-installation --no-app-logs",
        ),
        (
            Zero::Unlimited,
            "--insecure --app-recycle-memory 1GiB --app-spare off --app-timeout 90s --disk-limit 1TiB \
             --bandwidth-limit 1MB --metrics-address [::1]:1 --health-server-address 127.0.0.1:2 --log-format json \
             --log-file l --log-level DEBUG",
        ),
    ] {
        let printed = |checked: &Checked, given: &Given| print::config_file(&SUPERNODE, &rows(checked), given);
        let once = check_as(zero, line, "").unwrap_or_else(|problems| panic!("{line}: {problems:?}"));
        let first = printed(&once, &raw(line, ""));
        // Under any name of the program.
        for zero in [Zero::Unlimited, Zero::Never] {
            let again = check_as(zero, "--config /etc/node.toml", &first);
            let again = again.unwrap_or_else(|problems| panic!("{first}{problems:?}"));
            let values = |text: &str| -> Vec<String> {
                text.lines().map(|line| line.split("  # ").next().unwrap_or_default().trim().to_owned()).collect()
            };
            assert_eq!(values(&printed(&again, &Given::default())), values(&first), "{line}");
        }
    }
}
