use std::collections::BTreeSet;

use trellis_testing::launch::{User, undeclared};

use super::*;
use crate::Release;

type Change<T> = fn(&mut T);

fn at(port: u16) -> Option<Listen> {
    Some(SocketAddr::from(([10, 0, 0, 1], port)).into())
}

fn health() -> Option<SocketAddr> {
    Some(([0, 0, 0, 0], 9098).into())
}

fn tls(directory: &str) -> Serving {
    let at = |name: &str| PathBuf::from(directory).join(name);
    Serving::Tls(TlsFiles { certificate: at("crt"), key: at("key"), authority: at("ca") })
}

fn superlink(program: Program) -> SuperLink {
    let common = Common { program, isolation: Isolation::Process, ..Common::default() };
    let state = State::Directory { path: "/s".into(), database: None };
    SuperLink { common, serving: tls("/tls"), state, apps_tls: true, ..SuperLink::default() }
}

fn supernode(program: Program) -> SuperNode {
    let common = Common { program, isolation: Isolation::Process, ..Common::default() };
    SuperNode { common, superlink: "link:9092".to_owned(), ..SuperNode::default() }
}

const OF_COMMON: &[(&str, Change<Common>)] = &[
    ("program", |common| common.program = Program::Flower(Release::of(39))),
    ("isolation", |common| common.isolation = Isolation::Subprocess),
    ("python", |common| common.python = Some("/p".into())),
    ("sandbox", |common| common.sandbox = Some(Sandbox::Required)),
    ("keepalive", |common| common.keepalive = Some(Keepalive { interval_s: 2, timeout_s: 1 })),
    ("metrics", |common| common.metrics = health()),
    ("health", |common| common.health = health()),
    ("json_logs", |common| common.json_logs = true),
    ("log_level", |common| common.log_level = Some(LogLevel::Debug)),
    ("home", |common| common.home = Some("/h".into())),
    ("search_path", |common| common.search_path = Some("/bin".into())),
    ("env", |common| common.env = [("A".to_owned(), "b".to_owned())].into()),
    ("extra_args", |common| common.extra_args = vec!["--x".to_owned()]),
];

const OF_SUPERLINK: &[(&str, Change<SuperLink>)] = &[
    ("common", |link| link.common.isolation = Isolation::Subprocess),
    ("serving", |link| link.serving = tls("/other")),
    ("fleet", |link| link.fleet = at(1)),
    ("control", |link| link.control = at(2)),
    ("apps", |link| link.apps = at(3)),
    ("http", |link| link.http = at(4)),
    ("apps_tls", |link| link.apps_tls = false),
    ("apps_trust_machine", |link| link.apps_trust_machine = true),
    ("open_network", |link| link.open_network = true),
    ("accounts", |link| link.accounts = Some(true)),
    ("admin_token", |link| link.admin_token = Some("/t".into())),
    ("endpoints", |link| link.endpoints = vec!["a".to_owned()]),
    ("allowed_hosts", |link| link.allowed_hosts = vec!["a".to_owned()]),
    ("node_auth", |link| link.node_auth = true),
    ("state", |link| link.state = State::Memory),
    ("models", |link| link.models = Some("/m".into())),
    ("run_defaults", |link| link.run_defaults = Some(("/d".into(), "a = 1".to_owned()))),
];

const OF_SUPERNODE: &[(&str, Change<SuperNode>)] = &[
    ("common", |node| node.common.isolation = Isolation::Subprocess),
    ("superlink", |node| node.superlink = "other:1".to_owned()),
    ("trust", |node| node.trust = Trust::Authority("/ca".into())),
    ("key", |node| node.key = Some("/k".into())),
    ("apps", |node| node.apps = at(1)),
    ("name", |node| node.name = Some("a".to_owned())),
    ("state", |node| node.state = Some("/s".into())),
    ("client_app", |node| node.client_app = Some("native:mlp".to_owned())),
    ("node_config", |node| node.node_config = Some(NodeConfig::File("/c".into(), "a = 1".to_owned()))),
    ("max_retries", |node| node.max_retries = Some(3)),
    ("max_wait_s", |node| node.max_wait_s = Some(60)),
    ("backoff", |node| node.backoff = Some(Backoff::Fixed { seconds: 1 })),
    ("limits", |node| node.limits.memory_bytes = Some(1)),
    ("gpus", |node| node.gpus = Gpus::Listed(vec![0, 2])),
    ("gpus_may_be_missing", |node| node.gpus_may_be_missing = Some(true)),
    ("gpu_memory_fraction", |node| node.gpu_memory_fraction = Some(0.5)),
];

const OF_SUPEREXEC: &[(&str, Change<SuperExec>)] = &[
    ("program", |exec| exec.program = Program::Flower(Release::of(25))),
    ("apps", |exec| exec.apps = Apps::Client),
    ("address", |exec| exec.address = "other:1".to_owned()),
    ("authority", |exec| exec.authority = Some("/ca".into())),
    ("health", |exec| exec.health = health()),
    ("env", |exec| exec.env = [("A".to_owned(), "b".into())].into()),
    ("extra_args", |exec| exec.extra_args = vec!["--x".to_owned()]),
];

/// The fields whose change has an effect.
fn effective<T, L: PartialEq>(
    usual: impl Fn() -> T,
    changes: &[(&'static str, Change<T>)],
    launch: impl Fn(&T) -> L,
) -> Vec<&'static str> {
    let shows = |change: &Change<T>| {
        let mut changed = usual();
        change(&mut changed);
        launch(&changed) != launch(&usual())
    };
    changes.iter().filter(|(_, change)| shows(change)).map(|(field, _)| *field).collect()
}

fn names<T>(changes: &[(&'static str, T)]) -> Vec<&'static str> {
    changes.iter().map(|(field, _)| *field).collect()
}

#[test]
fn every_field_shows_in_what_is_started_or_is_declared() {
    assert_eq!(names(OF_COMMON), Common::FIELDS);
    assert_eq!(names(OF_SUPERLINK), SuperLink::FIELDS);
    assert_eq!(names(OF_SUPERNODE), SuperNode::FIELDS);
    let releases = (Release::OLDEST.minor..=Release::NEWEST.minor).map(|minor| Program::Flower(Release::of(minor)));
    for (user, programs) in [(User::Trellis, vec![Program::Trellis]), (User::Flower, releases.collect::<Vec<_>>())] {
        let (mut common, mut link, mut node) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for program in programs {
            let launched = |common: &Common| SuperLink { common: common.clone(), ..superlink(program) }.launch();
            common.extend(effective(|| superlink(program).common, OF_COMMON, launched));
            let launched = |common: &Common| SuperNode { common: common.clone(), ..supernode(program) }.launch();
            common.extend(effective(|| supernode(program).common, OF_COMMON, launched));
            link.extend(effective(|| superlink(program), OF_SUPERLINK, SuperLink::launch));
            node.extend(effective(|| supernode(program), OF_SUPERNODE, SuperNode::launch));
        }
        for (name, fields, changed) in [
            ("Common", Common::FIELDS, common),
            ("SuperLink", SuperLink::FIELDS, link),
            ("SuperNode", SuperNode::FIELDS, node),
        ] {
            assert_eq!(undeclared(user, name, fields, &changed), Vec::<String>::new());
        }
    }
}

#[test]
fn every_field_of_a_superexec_shows_in_what_is_started() {
    let usual = || SuperExec { program: Program::Flower(Release::of(37)), ..SuperExec::default() };
    assert_eq!(names(OF_SUPEREXEC), SuperExec::FIELDS);
    assert_eq!(effective(usual, OF_SUPEREXEC, SuperExec::launch), SuperExec::FIELDS);
}

#[test]
fn declarations_name_fields_that_exist() {
    for (description, field, reason) in User::ALL.into_iter().flat_map(User::unused) {
        let fields = match *description {
            "Common" => Common::FIELDS,
            "SuperLink" => SuperLink::FIELDS,
            "SuperNode" => SuperNode::FIELDS,
            other => panic!("{other} is no description"),
        };
        assert!(fields.contains(field), "{description}.{field}");
        assert!(!reason.is_empty(), "{description}.{field}");
    }
}

#[test]
fn what_users_give_is_not_given_twice() {
    let given: Vec<String> = ["--isolation", "process", "--port=81", "--port=82"].map(str::to_owned).to_vec();
    assert_eq!(value(&given, "--isolation"), Some("process"));
    assert_eq!(port(&given, "--port", 8000), 82);
    assert_eq!(port(&given, "--fleet-api-address", 9092), 9092);
    let address = ["--fleet-api-address".to_owned(), "[::]:7".to_owned()];
    assert_eq!(port(&address, "--fleet-api-address", 9092), 7);
    let mut node = supernode(Program::Flower(Release::of(42)));
    node.common.extra_args = given;
    node.node_config = Some(NodeConfig::Inline("a=1".to_owned()));
    let expected = [
        "--superlink=link:9092",
        "--insecure",
        "--isolation",
        "process",
        "--port=81",
        "--port=82",
        "--node-config=a=1",
    ];
    assert_eq!(node.launch().joined(), expected);
}

#[test]
fn each_api_is_where_the_release_has_it() {
    for (minor, fleet, control, apps, http) in [
        (25, 1, 2, 3, None),
        (36, 1, 2, 3, None),
        (37, 1, 4, 4, Some(4)),
        (39, 1, 4, 4, Some(4)),
        (40, 4, 4, 4, Some(4)),
    ] {
        let usual = superlink(Program::Flower(Release::of(minor)));
        let link = SuperLink { fleet: at(1), control: at(2), apps: at(3), http: at(4), ..usual };
        let found = link.listens();
        let ports = [found.fleet, found.control, found.apps].map(|address| address.port());
        assert_eq!((ports, found.http.map(|address| address.port())), ([fleet, control, apps], http), "1.{minor}");
    }
}

/// The launch descriptions that the Python tests use. `UPDATE_GOLDENS=1` writes the file.
#[test]
fn the_python_tests_start_programs_with_the_same_arguments() {
    let mut table = BTreeMap::new();
    for minor in Release::OLDEST.minor..=Release::NEWEST.minor {
        let program = Program::Flower(Release::of(minor));
        let plain = SuperLink { serving: Serving::Given, state: State::Given, ..superlink(program) };
        let state = State::Directory { path: "{state}".into(), database: None };
        let node = SuperNode { trust: Trust::Default, ..supernode(program) };
        let exec = |apps| {
            let given = SuperExec { program, apps, address: "{address}".to_owned(), ..SuperExec::default() };
            SuperExec { extra_args: vec!["--insecure".to_owned()], ..given }.launch()
        };
        let nothing = Launch { arguments: Vec::new(), ..exec(Apps::Server) };
        let rows = [
            ("superlink_state", added(&plain.launch(), &SuperLink { state, ..plain.clone() }.launch())),
            ("supernode_apps", added(&node.launch(), &SuperNode { apps: at(3), ..node.clone() }.launch())),
            ("superexec_serverapp", added(&nothing, &exec(Apps::Server))),
            ("superexec_clientapp", added(&nothing, &exec(Apps::Client))),
        ];
        table.insert(minor.to_string(), BTreeMap::from(rows));
    }
    let text = serde_json::to_string_pretty(&table).expect("plain data") + "\n";
    crate::golden("launch.json", &text);
}

/// The arguments of `more` that `less` has not, with names for addresses.
fn added(less: &Launch, more: &Launch) -> String {
    let words = more.arguments.iter().filter(|argument| !less.arguments.contains(argument)).map(|argument| {
        let joined = argument.joined().replace('=', " ");
        let names = ["fleet", "control", "apps", "http"];
        let joined = names.iter().zip(1..).fold(joined, |text, (name, port)| {
            text.replace(&format!("10.0.0.1:{port}"), &format!("{{{name}}}"))
                .replace(&format!("--port {port}"), &format!("--port {{{name}_port}}"))
        });
        joined.replace("10.0.0.1", "{host}")
    });
    words.collect::<Vec<_>>().join(" ")
}
