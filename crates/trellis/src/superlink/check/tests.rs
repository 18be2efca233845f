//! Tables: a command line (with environment and file where they matter), and what the checks make of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trellis_diagnostic::Diagnostic;
use trellis_link::config::{AppTrust, Isolation, Keepalive};
use trellis_logging::LogFileSettings;
use trellis_logging::LogFormat;
use trellis_terminal::size;

use super::{Checked, System, check};
use crate::settings::check::FileSeen;
use crate::settings::given::{Given, Outside, gather};
use crate::settings::scan::scan;
use crate::settings::{Flags, print};
use crate::superlink::StateLocation;
use crate::superlink::table::SUPERLINK;

const TLS: &str = "--ssl-certfile c.pem --ssl-keyfile k.pem --ssl-ca-certfile ca.pem";

/// Arguments as they would be gathered; `file` is what `/etc/link.toml` holds.
fn raw(line: &str, file: &str) -> Given {
    let flags = Flags::new("trellis superlink", &SUPERLINK);
    let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let outside = Outside { environment: &BTreeMap::new(), read_file: &|_| Ok(file.to_owned()), base: None };
    gather(scan(&arguments, &flags), &flags, &outside)
}

fn checked(line: &str, file: &str) -> Result<Checked, Vec<Diagnostic>> {
    let system = System {
        current_dir: Path::new("/here"),
        home: Some(Path::new("/home/ada")),
        state_home: None,
        unreadable: &|path| path.to_string_lossy().contains("gone").then(|| "no such file".to_owned()),
        unwritable: &|path| path.to_string_lossy().contains("locked").then(|| "no permission".to_owned()),
        read: &small_file,
    };
    check(&raw(line, file), &system)
}

/// Files by their names.
fn small_file(path: &Path) -> Result<FileSeen, String> {
    let token = "t".repeat(32);
    let (text, mode) = match path.file_name().and_then(|name| name.to_str()).unwrap_or_default() {
        "defaults.toml" => ("num-server-rounds = 7\nmine = 'x'", 0o644),
        "wrong.toml" => ("num-server-rounds = 0\nlist = []", 0o644),
        "admin.token" => (token.as_str(), 0o600),
        "open.token" => (token.as_str(), 0o644),
        "short.token" => ("t", 0o600),
        _ => return Err("no such file".to_owned()),
    };
    Ok(FileSeen { text: text.to_owned(), mode })
}

fn good(line: &str) -> Checked {
    checked(line, "").unwrap_or_else(|problems| panic!("{line}: {problems:?}"))
}

#[test]
fn what_is_refused() {
    let insecure = |rest: &str| format!("--insecure {rest}");
    for (line, expected) in [
        (String::new(), vec!["neither TLS files nor --insecure are given"]),
        (insecure(TLS), vec!["--insecure contradicts --ssl-certfile, --ssl-keyfile, --ssl-ca-certfile"]),
        (insecure("--ssl-keyfile k.pem"), vec!["--insecure contradicts --ssl-keyfile"]),
        ("--ssl-certfile c.pem".into(), vec!["TLS needs three files; missing: --ssl-keyfile, --ssl-ca-certfile"]),
        (
            "--ssl-certfile gone.pem --ssl-keyfile k.pem --ssl-ca-certfile gone-ca.pem".into(),
            vec![
                "--ssl-certfile: /here/gone.pem cannot be read: no such file",
                "--ssl-ca-certfile: /here/gone-ca.pem cannot be read: no such file",
            ],
        ),
        (insecure("--enable-supernode-auth"), vec!["--enable-supernode-auth needs TLS, and --insecure turns it off"]),
        (insecure("--isolation docker"), vec!["--isolation cannot be \"docker\""]),
        (insecure("--python ./gone/python"), vec!["--python: /here/gone/python cannot be read: no such file"]),
        (insecure("--fleet-api-address nine"), vec!["--fleet-api-address: \"nine\" is not an address: it has no port"]),
        (
            insecure("--fleet-api-address localhost:1 --control-api-address localhost:1"),
            vec!["--control-api-address localhost:1 and --fleet-api-address localhost:1 cannot be used at once"],
        ),
        (
            insecure("--health-server-address 127.0.0.1:9092"),
            vec![
                "--fleet-api-address 127.0.0.1:9092 and --health-server-address 127.0.0.1:9092 cannot be used at once",
            ],
        ),
        (
            insecure("--exec-api-address 127.0.0.1:9092"),
            vec!["--exec-api-address 127.0.0.1:9092 and --fleet-api-address 127.0.0.1:9092 cannot be used at once"],
        ),
        (
            insecure("--port 9092"),
            vec!["--host/--port 127.0.0.1:9092 and --fleet-api-address 127.0.0.1:9092 cannot be used at once"],
        ),
        (
            insecure("--metrics-address 0.0.0.0:8000"),
            vec!["--host/--port 127.0.0.1:8000 and --metrics-address 0.0.0.0:8000 cannot be used at once"],
        ),
        (
            insecure("--host localhost:80 --port x"),
            vec![
                "--host: \"localhost:80\" is not a host: it must be a host alone, without scheme and port",
                "--port: \"x\" is not a port",
            ],
        ),
        (insecure("--port 65536"), vec!["--port: \"65536\" is not a port"]),
        (
            format!("{TLS} --endpoint https://a --endpoint 0.0.0.0"),
            vec![
                "--endpoint: \"https://a\" is not what a client connects to: it must not start with a scheme",
                "--endpoint: \"0.0.0.0\" is not what a client connects to: this is an address to listen on, clients cannot \
                 connect to it",
            ],
        ),
        (
            insecure("--serverappio-api-address 127.0.0.1:1 --runtime-api-address 127.0.0.1:2"),
            vec!["--serverappio-api-address and --runtime-api-address mean the same and differ"],
        ),
        (
            insecure("--run-defaults gone.toml --admin-token-file gone.token"),
            vec![
                "--admin-token-file: /here/gone.token cannot be read: no such file",
                "--run-defaults: /here/gone.toml cannot be read: no such file",
            ],
        ),
        (
            insecure("--run-defaults wrong.toml"),
            vec![
                "--run-defaults: /here/wrong.toml: num-server-rounds is 0, and must be a whole number from 1",
                "--run-defaults: /here/wrong.toml: list is of type array, and must be a bool, int, float or string",
            ],
        ),
        (
            insecure("--admin-token-file open.token"),
            vec!["--admin-token-file: /here/open.token cannot be used: other users may access it (mode 0644)"],
        ),
        (
            insecure("--admin-token-file short.token"),
            vec!["--admin-token-file: /here/short.token cannot be used: its token has 1 characters, the minimum is 32"],
        ),
        (insecure("--account-auth maybe"), vec!["--account-auth cannot be \"maybe\""]),
        (
            insecure("--isolation process --superexec-auth-secret-file gone"),
            vec!["--superexec-auth-secret-file: /here/gone cannot be read: no such file"],
        ),
        (
            insecure("--allow-runtime-dependency-installation --disable-runtime-dependency-installation"),
            vec!["--allow-runtime-dependency-installation contradicts --disable-runtime-dependency-installation"],
        ),
        (insecure("--keepalive-interval 30"), vec!["--keepalive-interval: \"30\" is not a duration"]),
        (insecure("--keepalive-interval 0s"), vec!["--keepalive-interval: 0s is too short"]),
        (insecure("--keepalive-interval 61m"), vec!["--keepalive-interval: 61m is too long"]),
        (
            insecure("--keepalive-interval 10s --keepalive-timeout 21s"),
            vec![
                "--keepalive-interval 10s and --keepalive-timeout 21s do not fit: a dead connection would stay open \
                 through several pings",
            ],
        ),
        (insecure("--idle-timeout 25h"), vec!["--idle-timeout: 25h is too long"]),
        (insecure("--log-file locked/l.log"), vec!["--log-file: /here/locked/l.log cannot be written: no permission"]),
        (
            insecure("--log-file l.log --log-rotation-interval-hours 0 --log-rotation-backup-count many"),
            vec![
                "--log-rotation-interval-hours: \"0\" is not a number from 1 to 8760",
                "--log-rotation-backup-count: \"many\" is not a number from 1 to 10000",
            ],
        ),
        (
            insecure("--appio-ssl-certfile c --appio-ssl-keyfile k"),
            vec!["--appio-ssl-certfile, --appio-ssl-keyfile: the ServerAppIo API is served without TLS"],
        ),
        (
            insecure("--exec-api-address localhost:1 --control-api-address localhost:2"),
            vec!["--control-api-address and --exec-api-address mean the same and are both set"],
        ),
        (insecure("--fleet-api-type rest"), vec!["--fleet-api-type rest is not served"]),
        (insecure("--fleet-api-type grpc-adapter"), vec!["--fleet-api-type grpc-adapter is not served"]),
        (insecure("--fleet-api-type smtp"), vec!["--fleet-api-type cannot be \"smtp\""]),
        (insecure("--fleet-api-num-workers two"), vec!["--fleet-api-num-workers is not a number"]),
        (insecure("--auth-list-public-keys k.csv"), vec!["a list of public keys is no longer supported by Flower"]),
        (
            insecure("--executor x --executor-config y"),
            vec!["--executor, --executor-config: executors are no longer supported by Flower"],
        ),
        (insecure("--simulation"), vec!["--simulation: this SuperLink serves real SuperNodes, not simulations"]),
        (
            insecure("--simulationio-api-address h:1"),
            vec!["--simulationio-api-address: this SuperLink serves real SuperNodes, not simulations"],
        ),
        (insecure("--max-message-size 64M"), vec!["--max-message-size: \"64M\" is not a size"]),
        (insecure("--max-message-size 1KiB"), vec!["--max-message-size: 1KiB is too small"]),
        (insecure("--max-message-size 3GiB"), vec!["--max-message-size: 3GiB is too large"]),
        (insecure("--max-object-size 0"), vec!["--max-object-size: 0 is too small"]),
        (insecure("--log-format xml"), vec!["--log-format cannot be \"xml\""]),
        (insecure("--log-level loud"), vec!["\"loud\" is not a log level"]),
        (
            "--check-state --database :memory:".into(),
            vec!["a state in memory cannot be checked: it does not exist yet"],
        ),
    ] {
        let found: Vec<String> = match checked(&line, "") {
            Ok(_) => Vec::new(),
            Err(problems) => problems.into_iter().map(|problem| problem.what).collect(),
        };
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn all_problems_come_at_once_each_with_its_place_and_advice() {
    let line = "--config /etc/link.toml --insecure --zzz --isolation docker --log-level loud";
    let problems = checked(line, "ssl-certfile = 'gone.pem'\nfleet-api-address = 'nine'").expect_err("five mistakes");
    let found: Vec<_> = problems.iter().map(|p| (p.what.as_str(), p.place.as_str())).collect();
    assert_eq!(
        found,
        [
            ("unknown flag --zzz", "command line"),
            (
                "--fleet-api-address: \"nine\" is not an address: it has no port",
                "/etc/link.toml line 2, fleet-api-address"
            ),
            ("--insecure contradicts --ssl-certfile", "command line, --insecure; /etc/link.toml line 1, ssl-certfile"),
            ("--ssl-certfile: /etc/gone.pem cannot be read: no such file", "/etc/link.toml line 1, ssl-certfile"),
            ("--isolation cannot be \"docker\"", "command line, --isolation"),
            ("\"loud\" is not a log level", "command line, --log-level"),
        ]
    );
    assert!(problems.iter().all(|problem| !problem.advice.is_empty()));
}

#[test]
fn a_broken_file_is_not_blamed_for_what_it_may_set() {
    let problems = checked("--config /etc/link.toml", "insecure = ").expect_err("broken file");
    let found: Vec<_> = problems.iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(found, ["/etc/link.toml line 1"]);
}

#[test]
fn defaults() {
    let Checked { config, state, log, .. } = good("--insecure");
    assert_eq!(config.health_address, None);
    assert_eq!(config.metrics_address, None);
    assert_eq!(config.isolation, Isolation::Subprocess);
    assert_eq!((config.python, config.superexec_secret), (None, None));
    assert!(config.tls.is_none() && !config.supernode_auth && !config.accounts && !config.dependency_installation);
    assert_eq!(config.endpoints, [""; 0]);
    assert_eq!(config.keepalive, Keepalive::default());
    let directory = PathBuf::from("/home/ada/.local/state/trellis/superlink");
    assert_eq!(state, StateLocation::Directory { directory, database: None });
    assert_eq!((log.format, log.level.as_str(), log.file), (LogFormat::Text, "info", None));
}

#[test]
fn default_addresses_are_those_of_this_machine_unless_there_is_tls() {
    for (line, host) in [
        ("--insecure", "127.0.0.1"),
        ("--insecure --isolation process", "127.0.0.1"),
        ("--insecure --allow-insecure-network", "127.0.0.1"),
        (TLS, "0.0.0.0"),
    ] {
        let config = good(line).config;
        assert_eq!(config.http_address, format!("{host}:8000"), "{line}");
        assert_eq!(config.control_address, format!("{host}:9093"), "{line}");
        assert_eq!(config.fleet_address, format!("{host}:9092"), "{line}");
        assert_eq!(config.serverappio_address, "127.0.0.1:9091", "{line}");
    }
}

#[test]
fn host_and_port_give_the_address_of_the_http_api() {
    for (line, expected) in [
        ("--insecure --port 80", "127.0.0.1:80"),
        ("--insecure --host ::1", "[::1]:8000"),
        ("--insecure --host [::1] --port 0", "[::1]:0"),
        ("--insecure --host localhost", "localhost:8000"),
        (&format!("{TLS} --host Link.example.org --port 443"), "link.example.org:443"),
    ] {
        assert_eq!(good(line).config.http_address, expected, "{line}");
    }
}

#[test]
fn the_app_port_has_two_names() {
    for (line, expected) in [
        ("--serverappio-api-address 127.0.0.1:1", "127.0.0.1:1"),
        ("--runtime-api-address 127.0.0.1:2", "127.0.0.1:2"),
        ("--serverappio-api-address 127.0.0.1:3 --runtime-api-address 127.0.0.1:3", "127.0.0.1:3"),
    ] {
        assert_eq!(good(&format!("--insecure {line}")).config.serverappio_address, expected, "{line}");
    }
}

/// Whether a command line is refused because of `beginning`, and whether it is warned of with `warning`.
fn refused_and_warned(line: &str, beginning: &str, warning: &str) -> (bool, bool) {
    match checked(line, "") {
        Ok(checked) => (false, checked.warnings.iter().any(|text| text.starts_with(warning))),
        Err(problems) => {
            assert!(problems.iter().all(|problem| problem.what.starts_with(beginning)), "{line}: {problems:?}");
            (true, false)
        }
    }
}

#[test]
fn plaintext_leaves_this_machine_only_with_a_second_flag() {
    let refusal = "--insecure with an address that other machines reach";
    for (addresses, reachable) in [
        ("", false),
        ("--fleet-api-address 127.0.0.2:9092 --control-api-address [::1]:9093 --host localhost", false),
        ("--fleet-api-address 0.0.0.0:9092", true),
        ("--control-api-address [::]:9093", true),
        ("--host 0.0.0.0", true),
        ("--host ::", true),
        ("--exec-api-address 192.168.1.7:9093", true),
        // Names are not resolved: they may change.
        ("--fleet-api-address link.example.org:9092", true),
        // These are never encrypted.
        ("--health-server-address 0.0.0.0:1 --metrics-address 0.0.0.0:2", false),
    ] {
        let line = format!("--insecure {addresses}");
        let warning = "serving without TLS on the network";
        assert_eq!(refused_and_warned(&line, refusal, warning), (reachable, false), "{line}");
        let line = format!("{line} --allow-insecure-network");
        assert_eq!(refused_and_warned(&line, refusal, warning), (false, reachable), "{line}");
        let line = format!("{TLS} {addresses}");
        assert_eq!(refused_and_warned(&line, refusal, "serving without TLS"), (false, false), "{line}");
    }
}

#[test]
fn the_refusal_of_plaintext_says_why_and_what_to_do() {
    let problems = checked("--insecure --host 0.0.0.0 --fleet-api-address 0.0.0.0:1", "").expect_err("two addresses");
    let [Diagnostic { what, place, advice, .. }] = problems.as_slice() else { panic!("{problems:?}") };
    for part in ["(--host/--port 0.0.0.0:8000, --fleet-api-address 0.0.0.0:1)", "read and change models"] {
        assert!(what.contains(part), "{part}: {what}");
    }
    assert_eq!(
        place,
        "command line, --insecure; command line, --host; default of --port; command line, --fleet-api-address"
    );
    for part in ["trellis pki", "127.0.0.1", "--allow-insecure-network"] {
        assert!(advice.contains(part), "{part}: {advice}");
    }
}

#[test]
fn a_refusal_waits_for_what_a_broken_file_may_allow() {
    let line = "--config /etc/link.toml --insecure --host 0.0.0.0 --account-auth off";
    let problems = checked(line, "allow-insecure-network = ").expect_err("broken file");
    let found: Vec<_> = problems.iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(found, ["/etc/link.toml line 1"]);
    assert!(checked("--check-state --state-dir d --insecure --host 0.0.0.0 --account-auth off", "").is_ok());
}

#[test]
fn accounts_are_asked_for_where_others_can_reach_the_control_api() {
    for (line, auto) in [
        ("--insecure".to_owned(), false),
        (format!("{TLS} --host 127.0.0.1 --control-api-address localhost:9093"), false),
        (format!("{TLS} --host 127.0.0.1 --control-api-address localhost:9093 --fleet-api-address 0.0.0.0:1"), false),
        (TLS.to_owned(), true),
        (format!("{TLS} --host 127.0.0.1"), true),
        (format!("{TLS} --control-api-address 127.0.0.1:9093"), true),
        ("--insecure --allow-insecure-network --host 0.0.0.0".to_owned(), true),
    ] {
        assert_eq!(good(&line).config.accounts, auto, "{line}");
        assert_eq!(good(&format!("{line} --account-auth auto")).config.accounts, auto, "{line}");
        assert!(good(&format!("{line} --account-auth on")).config.accounts, "{line}");
    }
}

#[test]
fn accounts_are_off_on_a_network_only_with_a_second_flag() {
    let refusal = "--account-auth off with an address that other machines reach";
    for (line, reachable) in [
        ("--insecure --account-auth off".to_owned(), false),
        (format!("{TLS} --account-auth off"), true),
        (format!("{TLS} --account-auth off --host 127.0.0.1 --control-api-address 127.0.0.1:9093"), false),
        (format!("{TLS} --account-auth off --host 127.0.0.1"), true),
    ] {
        let warning = "accounts are off";
        assert_eq!(refused_and_warned(&line, refusal, warning), (reachable, false), "{line}");
        let line = format!("{line} --allow-insecure-network");
        assert_eq!(refused_and_warned(&line, refusal, warning), (false, reachable), "{line}");
        assert!(!good(&line).config.accounts, "{line}");
    }
}

#[test]
fn an_app_port_on_the_network_is_warned_of() {
    let secret = "--isolation process --superexec-auth-secret-file s";
    for (line, expected) in [
        ("--isolation process".to_owned(), None),
        ("--runtime-api-address 127.0.0.1:1".to_owned(), None),
        (
            "--serverappio-api-address 0.0.0.0:1".to_owned(),
            Some("--serverappio-api-address 0.0.0.0:1 has no TLS: let only trusted machines reach it"),
        ),
        (
            "--serverappio-api-address 0.0.0.0:1 --isolation process --serverappio-trust network".to_owned(),
            Some("--serverappio-api-address 0.0.0.0:1 has no TLS, and does not authenticate"),
        ),
        (
            format!("--runtime-api-address h:1 {secret}"),
            Some("--runtime-api-address h:1 has no TLS: let only trusted machines reach it"),
        ),
    ] {
        let warnings = good(&format!("--insecure {line}")).warnings;
        let found = warnings.iter().find(|warning| warning.contains("trusted machines"));
        assert_eq!(found.is_some(), expected.is_some(), "{line}: {warnings:?}");
        assert!(found.is_none_or(|found| found.starts_with(expected.unwrap_or_default())), "{line}: {found:?}");
    }
}

#[test]
fn whose_apps_are_believed_without_a_secret() {
    for (line, want) in [
        ("", AppTrust::User),
        ("--serverappio-trust user", AppTrust::User),
        ("--serverappio-trust machine", AppTrust::Machine),
        ("--serverappio-trust network", AppTrust::Network),
    ] {
        let line = format!("--insecure --isolation process {line}");
        assert_eq!(good(&line).config.app_trust, want, "{line}");
    }
    assert!(
        good("--insecure --serverappio-trust machine").warnings.iter().any(|warning| warning.contains("no effect"))
    );
    let refused = checked("--insecure --isolation process --serverappio-trust all", "").unwrap_err();
    assert_eq!(refused[0].what, "--serverappio-trust cannot be \"all\"");
}

#[test]
fn a_superlink_that_asks_nobody_says_what_that_means() {
    let tls = format!("{TLS} --host 127.0.0.1 --control-api-address 127.0.0.1:9093");
    for (line, warned) in [
        ("--insecure", true),
        (tls.as_str(), true),
        ("--insecure --account-auth off", true),
        ("--insecure --account-auth on", false),
        (TLS, false),
    ] {
        let warnings = good(line).warnings;
        let found = warnings.iter().any(|text| text.starts_with("every user and every program of this machine"));
        assert_eq!(found, warned, "{line}: {warnings:?}");
    }
}

#[test]
fn keepalive() {
    let warning = "strict firewalls forget a connection that is silent for 60 s";
    for (line, seconds, warned) in [
        ("", (30, 20, 120), false),
        ("--keepalive-interval 10s --keepalive-timeout 5s --idle-timeout 1h", (10, 5, 3600), false),
        // The default of the timeout follows a short interval.
        ("--keepalive-interval 5s", (5, 10, 120), false),
        ("--keepalive-interval 20s --keepalive-timeout 39s", (20, 39, 120), false),
        ("--keepalive-interval 20s --keepalive-timeout 40s", (20, 40, 120), true),
        ("--keepalive-interval 40s", (40, 20, 120), true),
        ("--keepalive-interval 1h --keepalive-timeout 2h", (3600, 7200, 120), true),
    ] {
        let Checked { config, warnings, .. } = good(&format!("--insecure {line}"));
        let (interval, timeout, idle) = seconds;
        let [interval, timeout, idle] = [interval, timeout, idle].map(Duration::from_secs);
        assert_eq!(config.keepalive, Keepalive { interval, timeout, idle }, "{line}");
        assert_eq!(warnings.iter().any(|text| text.contains(warning)), warned, "{line}: {warnings:?}");
    }
}

#[test]
fn endpoints_lose_their_ports() {
    let line = format!("{TLS} --endpoint Link.example.org:9092 --endpoint [2001:db8::7]:1,10.0.0.7");
    assert_eq!(good(&line).config.endpoints, ["link.example.org", "2001:db8::7", "10.0.0.7"]);
}

#[test]
fn what_apps_may_do() {
    let secret = "--insecure --superexec-auth-secret-file ~/secret";
    assert_eq!(good(secret).config.superexec_secret, None);
    let found = good(&format!("{secret} --isolation process")).config.superexec_secret;
    assert_eq!(found.as_deref(), Some(Path::new("/home/ada/secret")));
    for (line, expected) in [
        ("--insecure --allow-runtime-dependency-installation", true),
        ("--insecure --disable-runtime-dependency-installation", false),
        ("--insecure --allow-runtime-dependency-installation --disable-runtime-dependency-installation=false", true),
    ] {
        assert_eq!(good(line).config.dependency_installation, expected, "{line}");
    }
}

#[test]
fn runs_begin_with_the_defaults_of_a_file() {
    let Checked { config, run_defaults, .. } = good("--insecure --run-defaults defaults.toml");
    let keys: Vec<&str> = config.run_defaults.keys().map(String::as_str).collect();
    assert_eq!(keys, ["mine", "num-server-rounds", "rounds"]);
    assert_eq!(run_defaults.as_deref(), Some(Path::new("/here/defaults.toml")));
    let args = config.native_app.map(|app| app.args).unwrap_or_default();
    assert_eq!(args, ["serverapp", "--run-defaults", "/here/defaults.toml"]);
    assert_eq!(good("--insecure").config.native_app.map(|app| app.args).unwrap_or_default(), ["serverapp"]);
}

#[test]
fn a_log_file_is_kept_a_week_by_days() {
    let file = |line: &str| good(&format!("--insecure --log-file link.log {line}")).log.file;
    let settings = |interval_hours, backups| LogFileSettings { path: "/here/link.log".into(), interval_hours, backups };
    assert_eq!(file(""), Some(settings(24, 7)));
    assert_eq!(file("--log-rotation-interval-hours 1 --log-rotation-backup-count 48"), Some(settings(1, 48)));
}

#[test]
fn places_of_the_state() {
    let kept = |directory: &str, database: Option<&str>| StateLocation::Directory {
        directory: directory.into(),
        database: database.map(PathBuf::from),
    };
    let default = "/home/ada/.local/state/trellis/superlink";
    for (line, file, expected) in [
        ("--state-dir /var/link", "", kept("/var/link", None)),
        ("--state-dir ./link", "", kept("/here/link", None)),
        ("--state-dir ~/link", "", kept("/home/ada/link", None)),
        ("--config /etc/link.toml", "state-dir = 'link'", kept("/etc/link", None)),
        ("--config link.toml", "state-dir = 'link'", kept("/here/link", None)),
        ("--database state.db", "", kept(default, Some("/here/state.db"))),
        ("--database :memory:", "", StateLocation::Memory),
        ("--database :flwr-in-memory: --state-dir d", "", StateLocation::Memory),
    ] {
        let line = format!("--insecure {line}");
        let state = checked(&line, file).map(|checked| checked.state);
        assert_eq!(state.as_ref(), Ok(&expected), "{line}");
    }
}

#[test]
fn homes_of_the_state() {
    for (home, state_home, expected) in [
        (Some("/home/ada"), Some("/xdg"), Some("/xdg/trellis/superlink")),
        (Some("/home/ada"), Some("relative"), Some("/home/ada/.local/state/trellis/superlink")),
        (None, Some("/xdg"), Some("/xdg/trellis/superlink")),
        (None, None, None),
    ] {
        let system = System {
            current_dir: Path::new("/here"),
            home: home.map(Path::new),
            state_home: state_home.map(Path::new),
            unreadable: &|_| None,
            unwritable: &|_| None,
            read: &small_file,
        };
        let state = check(&raw("--insecure", ""), &system).map(|checked| checked.state).ok();
        let expected = expected.map(|path| StateLocation::Directory { directory: path.into(), database: None });
        assert_eq!(state, expected, "{home:?} {state_home:?}");
    }
}

#[test]
fn tls_and_limits_arrive() {
    let line = format!("{TLS} --enable-supernode-auth --max-message-size 8MiB --max-object-size 1GiB");
    let Checked { config, .. } =
        good(&format!("{line} --object-cache-size 0 --python ~/venv/bin/python --models-dir ~/m"));
    let tls = config.tls.expect("TLS");
    assert_eq!(
        [tls.certificate, tls.key, tls.ca_certificate],
        ["/here/c.pem", "/here/k.pem", "/here/ca.pem"].map(PathBuf::from)
    );
    assert!(config.supernode_auth);
    assert_eq!(config.python.as_deref(), Some(Path::new("/home/ada/venv/bin/python")));
    let models = config.native_app.and_then(|app| app.models);
    assert_eq!(models.as_deref(), Some(Path::new("/home/ada/m")));
    let limits = &config.limits;
    assert_eq!((limits.message_bytes, limits.object_bytes, limits.object_cache_bytes), (8 << 20, 1 << 30, 0));
    assert_eq!(size::show(limits.object_bytes), "1GiB");
}

#[test]
fn what_changes_nothing_is_said() {
    for (flag, expected) in [
        ("--fleet-api-num-workers 4", "--fleet-api-num-workers is ignored"),
        ("--storage-dir d", "--storage-dir is ignored"),
        ("--flwr-dir d", "--flwr-dir is ignored"),
        ("--exec-api-address localhost:1", "--exec-api-address is the old name"),
        ("--database :memory: --state-dir d", "--state-dir is not used"),
        ("--isolation process --python python3", "--python has no effect"),
        ("--superexec-auth-secret-file s", "--superexec-auth-secret-file has no effect"),
        (
            "--isolation process --allow-runtime-dependency-installation",
            "--allow-runtime-dependency-installation has no effect with --isolation process",
        ),
        ("--admin-token-file admin.token", "--admin-token-file has no effect without accounts"),
        ("--log-rotation-backup-count 1", "--log-rotation-backup-count has no effect without --log-file"),
        ("", "serving without TLS"),
        ("", "any SuperNode may connect"),
    ] {
        let warnings = good(&format!("--insecure {flag}")).warnings;
        assert!(warnings.iter().any(|warning| warning.starts_with(expected)), "{flag}: {warnings:?}");
    }
    assert_eq!(good(&format!("{TLS} --enable-supernode-auth --fleet-api-num-workers 1")).warnings, [""; 0]);
}

#[test]
fn inspecting_the_state_needs_no_tls() {
    assert!(checked("--check-state --state-dir d", "").is_ok());
}

#[test]
fn a_printed_configuration_means_the_same() {
    for line in [
        "--insecure".to_owned(),
        "--insecure --database :memory: --isolation process --health-server-address [::1]:1 --log-level DEBUG"
            .to_owned(),
        format!(
            "{TLS} --enable-supernode-auth --state-dir d --database s.db --python ./py --models-dir m --exec-api-address h:1"
        ),
        "--insecure --max-object-size 1500KB --object-cache-size 0 --log-format json --log-level a=info".to_owned(),
        "--insecure --allow-insecure-network --host :: --port 80 --account-auth off --runtime-api-address h:1"
            .to_owned(),
        format!(
            "{TLS} --endpoint a:1 --endpoint ::1 --allowed-host b.example --metrics-address h:1 --keepalive-interval 90s --idle-timeout 3h"
        ),
        "--insecure --account-auth on --admin-token-file admin.token --run-defaults /etc/defaults.toml".to_owned(),
        "--insecure --isolation process --superexec-auth-secret-file s --allow-runtime-dependency-installation \
         --log-file l --log-rotation-interval-hours 2 --log-rotation-backup-count 3"
            .to_owned(),
    ] {
        let printed =
            |checked: &Checked, given: &Given| print::config_file(&SUPERLINK, &print::rows(&SUPERLINK, checked), given);
        let first = printed(&good(&line), &raw(&line, ""));
        let again = checked("--config /etc/link.toml", &first).unwrap_or_else(|problems| panic!("{first}{problems:?}"));
        let values = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.split("  # ").next().unwrap_or_default().trim().to_owned()).collect()
        };
        assert_eq!(values(&printed(&again, &Given::default())), values(&first), "{line}");
    }
}
