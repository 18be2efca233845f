//! The verdict of each check for good and bad facts.

use std::path::PathBuf;

use trellis_flwr::{Answer, Installation};
use trellis_node::resources::Gpu;
use trellis_sandbox::{Feature, Kernel, Level, Settings};

use super::*;
use crate::check::Verdict::{self, Ok as Good, Problem, Warning};
use crate::facts::*;

const NOW_S: i64 = 1_800_000_000;
const GIB: u64 = 1 << 30;

/// Asserts verdict and words of a check, and a fix unless it is ok.
fn says(check: &Check, verdict: Verdict, words: &str) {
    assert_eq!(check.verdict, verdict, "{check:?}");
    assert!(check.found.contains(words), "{check:?} does not say {words:?}");
    assert_eq!(check.fix.is_some(), verdict != Good, "{check:?}");
}

fn server() -> Server {
    Server::Running { pid: 7, url: "http://127.0.0.1:7766".to_owned(), answer: Ok("0.1.0".to_owned()) }
}

#[test]
fn a_good_machine() {
    let facts = Facts {
        program: Program {
            path: Some("/usr/bin/trellis".into()),
            version: "0.1.0".to_owned(),
            on_path: Some(OnPath { path: "/usr/bin/trellis".into(), same: true, version: None }),
        },
        home: Home {
            path: Some("/state".into()),
            exists: true,
            unwritable: None,
            free_bytes: Some(100 * GIB),
            free_files: None,
        },
        clock: Clock { now_s: NOW_S, program_s: Some(NOW_S - 10), synchronized: Some(true) },
        open_files: Some(OpenFiles { soft: Some(1 << 20), hard: None }),
        memory: Some(Memory { total_bytes: 16 * GIB, available_bytes: 8 * GIB }),
        sandbox: Level::of(&Settings::default(), &Kernel::with(&Feature::ALL), true, false),
        cgroup: Cgroup::Present {
            path: "/".to_owned(),
            controllers: vec!["cpu".into(), "memory".into()],
            delegated: true,
        },
        gpu: Gpus::default(),
        engines: vec![],
        flwr: Some(flwr(Some("1.42.0"), None)),
        ports: vec![Port { number: 8000, purpose: "HTTP", state: PortState::Free }],
        server: server(),
        certificates: vec![],
        connections: Connections { path: Some("/home/.flwr/config.toml".into()), ours: None },
    };
    let checks = checks(&facts);
    assert!(checks.iter().all(|check| check.verdict == Good && check.fix.is_none()), "{checks:#?}");
    let mut names: Vec<&str> = checks.iter().map(|check| check.name).collect();
    names.dedup();
    assert_eq!(names.len(), checks.len());
}

#[test]
fn programs() {
    let program = |on_path| Program { path: Some("/a/trellis".into()), version: "0.1.0".to_owned(), on_path };
    says(&machine::program(&program(None)), Warning, "not on PATH");
    let other = OnPath { path: "/b/trellis".into(), same: false, version: Some("trellis 0.0.9".to_owned()) };
    says(&machine::program(&program(Some(other))), Warning, "a shell starts /b/trellis (trellis 0.0.9)");
}

#[test]
fn homes() {
    let home = |free_bytes| Home {
        path: Some("/state".into()),
        exists: false,
        unwritable: None,
        free_bytes: Some(free_bytes),
        free_files: Some(1 << 20),
    };
    says(&machine::home(&home(100 * GIB)), Good, "created when needed");
    says(&machine::home(&home(GIB)), Warning, "1.0 GiB free");
    says(&machine::home(&home(1 << 20)), Problem, "1.0 MiB free");
    says(&machine::home(&Home { free_files: Some(9), ..home(100 * GIB) }), Warning, "9 files only");
    says(&machine::home(&Home { unwritable: Some("no".to_owned()), ..home(100 * GIB) }), Problem, "written to: no");
    says(&machine::home(&Home { path: None, ..home(GIB) }), Problem, "TRELLIS_HOME");
}

#[test]
fn clocks() {
    let clock = |now_s, synchronized| Clock { now_s, program_s: Some(NOW_S), synchronized };
    says(&machine::clock(&clock(NOW_S - 299, None)), Good, "2027-01-15");
    says(&machine::clock(&clock(NOW_S - 301, None)), Problem, "this program was built on 2027-01-15");
    says(&machine::clock(&clock(NOW_S, Some(false))), Warning, "has not set it yet");
    says(&machine::clock(&clock(NOW_S, Some(true))), Good, "set by a time service");
}

#[test]
fn limits() {
    let files = |soft, hard| machine::open_files(Some(OpenFiles { soft, hard }));
    says(&files(Some(256), Some(256)), Problem, "256 of 256");
    says(&files(Some(1024), Some(4096)), Good, "raises the soft limit itself");
    says(&files(Some(4096), Some(4096)), Warning, "some hundred nodes");
    says(&files(None, None), Good, "any number");
    says(&machine::open_files(None), Good, "unknown");
    let memory = |available_bytes| machine::memory(Some(Memory { total_bytes: GIB, available_bytes }));
    says(&memory(GIB), Good, "1.0 GiB of 1.0 GiB");
    says(&memory(1 << 20), Warning, "1.0 MiB of 1.0 GiB");
    let present = |controllers: &[&str], delegated| Cgroup::Present {
        path: "/user.slice".to_owned(),
        controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
        delegated,
    };
    says(&machine::cgroup(&present(&["cpu", "memory", "io"], true)), Good, "can be limited");
    says(&machine::cgroup(&present(&["cpu"], true)), Warning, "cannot limit memory:");
    says(&machine::cgroup(&present(&["cpu", "memory"], false)), Warning, "/user.slice is not delegated");
    let sandboxed = |features: &[Feature]| Level::of(&Settings::default(), &Kernel::with(features), true, false);
    says(&machine::sandbox(&sandboxed(&Feature::ALL)), Good, "no access to keys");
    says(&machine::sandbox(&sandboxed(&[Feature::SystemCalls])), Warning, "does not have Landlock");
    says(&machine::cgroup(&Cgroup::Absent("this machine has no cgroup v2".to_owned())), Warning, "no cgroup v2");
}

#[test]
fn gpus() {
    let h200 = Gpu {
        index: 0,
        uuid: None,
        name: "NVIDIA H200".to_owned(),
        memory_bytes: Some(143_771 << 20),
        driver_version: Some("580.159.04".to_owned()),
    };
    let driver = || Some("580".to_owned());
    let all = |count| Gpus { usable: vec![h200.clone(); count], on_bus: count, driver: driver(), tool: true };
    says(&machine::gpu(&all(1)), Good, "NVIDIA H200 (140.4 GiB), driver 580.159.04");
    says(&machine::gpu(&all(5)), Good, "and 2 more");
    says(&machine::gpu(&Gpus::default()), Good, "none");
    says(&machine::gpu(&Gpus { driver: driver(), ..Default::default() }), Warning, "no GPU");
    says(&machine::gpu(&Gpus { on_bus: 1, ..Default::default() }), Warning, "without a driver");
    says(&machine::gpu(&Gpus { on_bus: 1, driver: driver(), tool: true, usable: vec![] }), Problem, "cannot use it");
    says(&machine::gpu(&Gpus { on_bus: 1, driver: driver(), ..Default::default() }), Warning, "without device files");
}

#[test]
fn container_engines() {
    let engine = |name, answer: Result<&str, &str>| Engine {
        name,
        path: PathBuf::from("/usr/bin/x"),
        answer: answer.map(str::to_owned).map_err(str::to_owned),
    };
    says(&machine::engines(&[]), Good, "processes");
    says(&machine::engines(&[engine("podman", Ok("5.1"))]), Good, "podman 5.1");
    let one_is_enough = [engine("podman", Ok("5.1")), engine("docker", Err("no socket"))];
    says(&machine::engines(&one_is_enough), Good, "podman 5.1; docker does not answer (no socket)");
    says(&machine::engines(&[engine("docker", Err("no socket"))]), Warning, "does not answer");
}

fn flwr(version: Option<&str>, error: Option<&str>) -> Installation {
    let answer =
        Answer { python: "3.11.2".to_owned(), flwr: version.map(str::to_owned), error: error.map(str::to_owned) };
    Installation { interpreter: "/venv/bin/python".into(), answer: Ok(answer) }
}

#[test]
fn pythons() {
    says(&flower::python(None), Warning, "no Python on PATH");
    says(&flower::python(Some(&flwr(None, Some("PackageNotFoundError: flwr")))), Warning, "has no flwr");
    for (version, verdict) in
        [("1.24.0", Warning), ("1.25.0", Good), ("1.42.1", Good), ("1.43.0", Warning), ("2.0", Warning)]
    {
        says(&flower::python(Some(&flwr(Some(version), None))), verdict, version);
    }
    let newer = flower::python(Some(&flwr(Some("1.43.0"), None)));
    assert_eq!(newer.fix.unwrap(), "/venv/bin/python -m pip install 'flwr>=1.25,<1.43'");
    says(&flower::python(Some(&flwr(Some("1.30.0"), Some("ImportError: grpc")))), Problem, "cannot be imported");
    let silent =
        Installation { interpreter: "/venv/bin/python".into(), answer: Err("no answer within 30 s".to_owned()) };
    says(&flower::python(Some(&silent)), Problem, "no answer within 30 s");
}

#[test]
fn connections_of_the_official_command() {
    let connections = |ours| Connections { path: Some("/home/.flwr/config.toml".into()), ours };
    says(&flower::connections(&Connections { path: None, ours: None }), Warning, "FLWR_HOME");
    says(&flower::connections(&connections(None)), Good, "does not exist yet");
    says(&flower::connections(&connections(Some(Err("line 1\nx".to_owned())))), Problem, "cannot be read: line 1");
    says(&flower::connections(&connections(Some(Ok(vec![])))), Good, "no connection of Trellis");
    says(&flower::connections(&connections(Some(Ok(vec!["lab".to_owned()])))), Good, "flwr run . lab");
}

#[test]
fn servers() {
    says(&service::server(&server(), "0.1.0"), Good, "http://127.0.0.1:7766, pid 7");
    says(&service::server(&server(), "0.2.0"), Warning, "has version 0.1.0, this program 0.2.0");
    says(&service::server(&Server::NotRunning, "0.1.0"), Good, "not running");
    says(&service::server(&Server::Dead { pid: 9 }, "0.1.0"), Warning, "pid 9 no longer exists");
    let silent = Server::Running { pid: 7, url: "u".into(), answer: Err("too slow".into()) };
    says(&service::server(&silent, "0.1.0"), Problem, "pid 7 does not answer at u: too slow");
}

#[test]
fn ports() {
    let port = |number, state| Port { number, purpose: "HTTP", state };
    let held = |name: &str, pid| PortState::Taken(Some(Holder { pid, name: name.to_owned() }));
    let check = |ports: &[Port]| service::ports(ports, &server());
    says(&check(&[port(8000, PortState::Free), port(9092, PortState::Free)]), Good, "8000, 9092 are free");
    says(&check(&[port(8000, held("trellis", 3)), port(9092, PortState::Free)]), Good, "in use by Trellis: 8000");
    says(&check(&[port(7766, held("renamed", 7))]), Good, "in use by Trellis");
    says(&check(&[port(8000, held("python3", 3))]), Warning, "8000 (HTTP) is in use by python3, pid 3");
    says(&check(&[port(8000, PortState::Taken(None))]), Warning, "another user");
    says(&check(&[port(80, PortState::Refused("denied".to_owned()))]), Warning, "cannot be used: denied");
}

#[test]
fn certificates() {
    let certificate = |from_s, to_s, names: &[&str], is_ca| Certificate {
        subject: "CN=x".to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        is_ca,
        not_before_s: NOW_S + from_s,
        not_after_s: NOW_S + to_s,
    };
    let day = 86_400;
    let check = |certificate| {
        let file = CertificateFile { path: "/c.crt".into(), content: Ok(vec![certificate]) };
        service::certificates(&[file], NOW_S)
    };
    says(&check(certificate(-day, 9 * day, &["localhost"], false)), Good, "expires in 9 days");
    says(&check(certificate(-day, 9 * day, &[], true)), Good, "files: 1;");
    says(&check(certificate(-day, 60, &["localhost"], false)), Warning, "/c.crt: CN=x expires on");
    says(&check(certificate(-day, -60, &["localhost"], false)), Problem, "expired on 2027-01-15");
    says(&check(certificate(60, day, &["localhost"], false)), Problem, "not valid before");
    says(&check(certificate(-day, 9 * day, &[], false)), Problem, "names no host");
    says(&service::certificates(&[], NOW_S), Good, "none");
    let unreadable = CertificateFile { path: "/c.crt".into(), content: Err("it is empty".to_owned()) };
    says(&service::certificates(&[unreadable], NOW_S), Problem, "/c.crt: it is empty");
}
