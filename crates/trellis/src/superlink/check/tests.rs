//! Tables: a command line (with environment and file where they matter), and what the checks make of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use trellis_link::config::{Isolation, StateLocation};

use super::{Checked, Surroundings, check};
use crate::logging::LogFormat;
use crate::superlink::flags::Flags;
use crate::superlink::gather::{Outside, RawArgs, gather};
use crate::superlink::problem::Problem;
use crate::superlink::scan::scan;
use crate::superlink::{print, size};

const TLS: &str = "--ssl-certfile c.pem --ssl-keyfile k.pem --ssl-ca-certfile ca.pem";

/// Arguments as they would be gathered; `file` is what `/etc/link.toml` holds.
fn raw(line: &str, file: &str) -> RawArgs {
    let flags = Flags::new("trellis superlink");
    let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let outside = Outside { environment: &BTreeMap::new(), read_file: &|_| Ok(file.to_owned()) };
    gather(scan(&arguments, &flags), &flags, &outside)
}

fn checked(line: &str, file: &str) -> Result<Checked, Vec<Problem>> {
    let around = Surroundings {
        current_dir: Path::new("/here"),
        home: Some(Path::new("/home/ada")),
        state_home: None,
        unreadable: &|path| path.to_string_lossy().contains("gone").then(|| "no such file".to_owned()),
    };
    check(&raw(line, file), &around)
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
        ("--ssl-certfile c.pem".into(), vec!["TLS needs three files; not given: --ssl-keyfile, --ssl-ca-certfile"]),
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
            insecure("--fleet-api-address h:1 --control-api-address h:1"),
            vec!["--control-api-address h:1 and --fleet-api-address h:1 cannot be used at once"],
        ),
        (
            insecure("--health-server-address 127.0.0.1:9092"),
            vec!["--fleet-api-address 0.0.0.0:9092 and --health-server-address 127.0.0.1:9092 cannot be used at once"],
        ),
        (
            insecure("--exec-api-address 0.0.0.0:9092"),
            vec!["--exec-api-address 0.0.0.0:9092 and --fleet-api-address 0.0.0.0:9092 cannot be used at once"],
        ),
        (
            insecure("--exec-api-address h:1 --control-api-address h:2"),
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
        ("--check-state --database :memory:".into(), vec!["a state in memory cannot be checked: there is none yet"]),
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
            ("--isolation cannot be \"docker\"", "command line, --isolation"),
            (
                "--fleet-api-address: \"nine\" is not an address: it has no port",
                "/etc/link.toml line 2, fleet-api-address"
            ),
            ("--insecure contradicts --ssl-certfile", "command line, --insecure; /etc/link.toml line 1, ssl-certfile"),
            ("--ssl-certfile: /etc/gone.pem cannot be read: no such file", "/etc/link.toml line 1, ssl-certfile"),
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
    let Checked { config, log, .. } = good("--insecure");
    assert_eq!(config.control_address, "0.0.0.0:9093");
    assert_eq!(config.fleet_address, "0.0.0.0:9092");
    assert_eq!(config.serverappio_address, "127.0.0.1:9091");
    assert_eq!(config.health_address, None);
    assert_eq!(config.isolation, Isolation::Subprocess);
    assert_eq!(config.python, None);
    assert!(config.tls.is_none() && !config.supernode_auth);
    let directory = PathBuf::from("/home/ada/.local/state/trellis/superlink");
    assert_eq!(config.state, StateLocation::Directory { directory, database: None });
    assert_eq!((log.format, log.level.as_str()), (LogFormat::Text, "info"));
}

#[test]
fn serverappio_stays_on_this_machine_unless_others_need_it() {
    for (line, expected) in [
        ("--insecure --isolation subprocess", "127.0.0.1:9091"),
        ("--insecure --isolation process", "0.0.0.0:9091"),
        ("--insecure --serverappio-api-address 0.0.0.0:9091", "0.0.0.0:9091"),
        ("--insecure --isolation process --serverappio-api-address 127.0.0.1:1", "127.0.0.1:1"),
    ] {
        let Checked { config, warnings, .. } = good(line);
        assert_eq!(config.serverappio_address, expected, "{line}");
        let warned = warnings.iter().any(|warning| warning.contains("ServerAppIo API has no TLS"));
        assert_eq!(warned, expected.starts_with("0.0.0.0"), "{line}");
    }
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
        ("--database :memory:", "", StateLocation::Ephemeral),
        ("--database :flwr-in-memory: --state-dir d", "", StateLocation::Ephemeral),
    ] {
        let line = format!("--insecure {line}");
        let state = checked(&line, file).map(|checked| checked.config.state);
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
        let around = Surroundings {
            current_dir: Path::new("/here"),
            home: home.map(Path::new),
            state_home: state_home.map(Path::new),
            unreadable: &|_| None,
        };
        let state = check(&raw("--insecure", ""), &around).map(|checked| checked.config.state).ok();
        let expected = expected.map(|path| StateLocation::Directory { directory: path.into(), database: None });
        assert_eq!(state, expected, "{home:?} {state_home:?}");
    }
}

#[test]
fn tls_and_limits_arrive() {
    let line = format!("{TLS} --enable-supernode-auth --max-message-size 8MiB --max-object-size 1GiB");
    let Checked { config, .. } = good(&format!("{line} --object-cache-size 0 --python ~/venv/bin/python"));
    let tls = config.tls.expect("TLS");
    assert_eq!(
        [tls.certificate, tls.key, tls.ca_certificate],
        ["/here/c.pem", "/here/k.pem", "/here/ca.pem"].map(PathBuf::from)
    );
    assert!(config.supernode_auth);
    assert_eq!(config.python.as_deref(), Some(Path::new("/home/ada/venv/bin/python")));
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
        ("--exec-api-address h:1", "--exec-api-address is the old name"),
        ("--database :memory: --state-dir d", "--state-dir is not used"),
        ("--isolation process --python python3", "--python has no effect"),
        ("", "serving without TLS"),
        ("", "any SuperNode may connect"),
    ] {
        let warnings = good(&format!("--insecure {flag}")).warnings;
        assert!(warnings.iter().any(|warning| warning.starts_with(expected)), "{flag}: {warnings:?}");
    }
    assert_eq!(good(&format!("{TLS} --enable-supernode-auth --fleet-api-num-workers 1")).warnings, [""; 0]);
}

#[test]
fn looking_at_the_state_needs_no_decision_about_tls() {
    assert!(checked("--check-state --state-dir d", "").is_ok());
}

#[test]
fn a_printed_configuration_means_the_same() {
    for line in [
        "--insecure".to_owned(),
        "--insecure --database :memory: --isolation process --health-server-address [::1]:1 --log-level DEBUG"
            .to_owned(),
        format!("{TLS} --enable-supernode-auth --state-dir d --database s.db --python ./py --exec-api-address h:1"),
        "--insecure --max-object-size 1500KB --object-cache-size 0 --log-format json --log-level a=info".to_owned(),
    ] {
        let printed = |checked: &Checked, raw: &RawArgs| print::config_file(checked, &raw.sources);
        let first = printed(&good(&line), &raw(&line, ""));
        let again = checked("--config /etc/link.toml", &first).unwrap_or_else(|problems| panic!("{first}{problems:?}"));
        let values = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.split("  # ").next().unwrap_or_default().trim().to_owned()).collect()
        };
        assert_eq!(values(&printed(&again, &RawArgs::default())), values(&first), "{line}");
    }
}
