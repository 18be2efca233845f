//! Tests the rules with real interpreters: each attack is refused, and operations of honest apps work. If run as root,
//! all tests run again as an ordinary user.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use trellis_sandbox::{DataPath, Enforcement, Feature, Kernel, Mode, Network, Sandbox, Scratch, Settings};

/// A variable that cargo sets for this process and that apps must not get.
const SECRET: &str = "CARGO_MANIFEST_DIR";
/// An unassigned uid.
const ORDINARY_USER: u32 = 54_321;

/// Helpers for the code of a test, which prints `True` or `False`.
const HELPERS: &str = "
import ctypes, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    return 0 if result >= 0 else ctypes.get_errno()
def works(act):
    try:
        act()
        return True
    except OSError as error:
        print(error, file=sys.stderr)
        return False
def writes(path):
    with open(path, 'w') as file:
        file.write('x')
";

struct Scene {
    _place: tempfile::TempDir,
    root: PathBuf,
    sandbox: Sandbox,
    scratch: Scratch,
}

/// An interpreter of the system, which other users can execute, too.
fn python() -> PathBuf {
    let found = PathBuf::from("/usr/bin/python3");
    assert!(found.exists(), "the tests of the sandbox need {}", found.display());
    found
}

impl Scene {
    fn new(network: Network) -> Scene {
        let place = tempfile::Builder::new().prefix("trellis-sandbox-").tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        for directory in ["state", "data", "results", "elsewhere"] {
            fs::create_dir(root.join(directory)).unwrap();
        }
        fs::set_permissions(root.join("results"), fs::Permissions::from_mode(0o777)).unwrap();
        for file in ["state/node.key", "elsewhere/file", "data/table"] {
            fs::write(root.join(file), "content").unwrap();
        }
        let data = |name: &str, writable| DataPath { path: root.join(name), writable };
        let settings = Settings {
            mode: Mode::Required,
            network,
            data: vec![data("data", false), data("results", true)],
            variables: Vec::new(),
            helper: env!("CARGO_BIN_EXE_sandbox-stage").into(),
        };
        let sandbox = Sandbox::new(settings, python(), root.join("state"), "scratch", true).unwrap();
        let scratch = sandbox.scratch("one").unwrap().unwrap();
        Scene { _place: place, root, sandbox, scratch }
    }

    fn path(&self, name: &str) -> String {
        format!("{:?}", self.root.join(name).to_str().unwrap())
    }

    /// Evaluates a Python expression in the sandbox; `port` is the node's port.
    fn evaluates_with(&self, port: Option<u16>, expression: &str) -> bool {
        let code = format!("{HELPERS}\nprint(bool({expression}))");
        let mut command = self.sandbox.command(Some(&self.scratch), port).unwrap();
        let output = command.args(["-c", &code]).output().unwrap();
        let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        match out.trim() {
            "True" => true,
            "False" => false,
            _ => panic!("{expression}: {} {out} {errors}", output.status),
        }
    }

    fn evaluates(&self, expression: &str) -> bool {
        self.evaluates_with(None, expression)
    }
}

#[test]
fn apps_can_use_their_own_files_and_libraries() {
    let scene = Scene::new(Network::All);
    let app = scene.root.join("elsewhere/theapp");
    fs::create_dir_all(app.join("package")).unwrap();
    fs::write(app.join("package/module.py"), "VALUE = 7\n").unwrap();
    fs::write(app.join(".left-out"), "").unwrap();
    let copy = scene.scratch.copy(&app, &[".left-out"]).unwrap();
    assert!(!copy.join(".left-out").exists());
    let imports = format!("(sys.path.insert(0, {copy:?}), __import__('package.module').module.VALUE == 7)[1]");
    assert!(scene.evaluates(&imports));
    for expression in [
        "works(lambda: writes(os.path.expanduser('~/file')))",
        "works(lambda: writes(os.environ['TMPDIR'] + '/file'))",
        "works(lambda: writes('file')) and os.getcwd().endswith('/work')",
        "works(lambda: os.rename('file', os.path.expanduser('~/renamed')))",
        "__import__('tempfile').mkdtemp().startswith(os.environ['TMPDIR'])",
        "__import__('subprocess').run(['/bin/sh', '-c', 'exit 7']).returncode == 7",
        "__import__('multiprocessing').Lock() is not None",
        "__import__('ssl').create_default_context() is not None",
        "__import__('getpass').getuser() == 'app'",
        "(lambda t: (t.start(), t.join()))(__import__('threading').Thread(target=int)) and True",
        "(lambda p: (p.start(), p.join(), p.exitcode == 0)[2])(__import__('multiprocessing').Process(target=int))",
        "works(lambda: os.kill(os.getpid(), 0))",
        "works(lambda: socket.socketpair())",
        "open('/proc/self/status').read() and open('/proc/meminfo').read() and os.cpu_count()",
        "works(lambda: socket.socket(socket.AF_UNIX).bind(os.environ['TMPDIR'] + '/socket'))",
    ] {
        assert!(scene.evaluates(expression), "{expression}");
    }
    let (data, results) = (scene.path("data/table"), scene.path("results/new"));
    assert!(scene.evaluates(&format!("open({data}).read() == 'content'")));
    assert!(scene.evaluates(&format!("works(lambda: writes({results}))")));
}

#[test]
fn other_files_are_inaccessible() {
    let scene = Scene::new(Network::All);
    let other = scene.sandbox.scratch("other").unwrap().unwrap();
    fs::write(other.work().join("secret"), "").unwrap();
    fs::write(other.app().join("code.py"), "").unwrap();
    let key = scene.path("state/node.key");
    let outside = scene.path("elsewhere/file");
    let refused = [
        format!("works(lambda: open({key}).read())"),
        format!("works(lambda: open({outside}).read())"),
        format!("works(lambda: writes({outside}))"),
        format!("works(lambda: writes({}))", scene.path("elsewhere/new")),
        format!("works(lambda: os.truncate({key}, 0))"),
        format!("works(lambda: os.unlink({outside}))"),
        format!("works(lambda: os.link({key}, 'link'))"),
        format!("works(lambda: os.rename({outside}, 'moved'))"),
        format!("works(lambda: open(os.symlink({key}, 'symbolic') or 'symbolic').read())"),
        format!("works(lambda: os.listdir({}))", scene.path("state")),
        format!("works(lambda: os.listdir({}))", scene.path("state/scratch")),
        format!("works(lambda: os.listdir({:?}))", other.work()),
        format!("works(lambda: open({:?}).read())", other.work().join("secret")),
        format!("works(lambda: open({:?}).read())", other.app().join("code.py")),
        format!("works(lambda: writes({:?}))", scene.scratch.app().join("new.py")),
        format!("works(lambda: writes({}))", scene.path("data/new")),
        format!("works(lambda: writes({}))", scene.path("data/table")),
        "works(lambda: writes('/tmp/trellis-sandbox-test'))".to_owned(),
        "works(lambda: os.listdir('/root'))".to_owned(),
        "works(lambda: open('/etc/shadow').read())".to_owned(),
        "works(lambda: open('/dev/tty'))".to_owned(),
    ];
    for attack in refused {
        assert!(!scene.evaluates(&attack), "{attack}");
    }
    assert_eq!(fs::read(scene.root.join("state/node.key")).unwrap(), b"content");
    assert_eq!(fs::read(scene.root.join("elsewhere/file")).unwrap(), b"content");
    assert_eq!(fs::read(scene.root.join("data/table")).unwrap(), b"content");
}

#[test]
fn other_processes_are_inaccessible() {
    let scene = Scene::new(Network::All);
    // The test process acts as the node: it has secrets in its memory and its environment.
    let node = std::process::id();
    assert!(std::env::var_os(SECRET).is_some(), "start it with cargo test");
    for attack in [
        format!("works(lambda: open('/proc/{node}/environ', 'rb').read())"),
        format!("works(lambda: open('/proc/{node}/mem', 'rb').read())"),
        format!("works(lambda: open('/proc/{node}/fd/0'))"),
        format!("works(lambda: os.listdir('/proc/{node}/root/root'))"),
        format!("call(101, 16, {node}, 0, 0) == 0 if os.uname().machine == 'x86_64' else False"),
        format!("call(310, {node}, 0, 0, 0, 0, 0) == 0 if os.uname().machine == 'x86_64' else False"),
        format!("{SECRET:?} in os.environ"),
    ] {
        assert!(!scene.evaluates(&attack), "{attack}");
    }
    if scene.sandbox.level().separate_user || Kernel::detect().has(Feature::Signals) {
        assert!(!scene.evaluates(&format!("works(lambda: os.kill({node}, signal.SIGCONT))")));
    }
}

#[test]
fn privileges_cannot_be_gained() {
    let scene = Scene::new(Network::All);
    let status = |line: &str| format!("'{line}' in open('/proc/self/status').read()");
    for line in ["CapEff:\\t0000000000000000", "CapPrm:\\t0000000000000000", "NoNewPrivs:\\t1", "Seccomp:\\t2"] {
        assert!(scene.evaluates(&status(line)), "{line}");
    }
    assert_eq!(scene.sandbox.level().separate_user, rustix::process::geteuid().is_root());
    assert!(!scene.evaluates("os.getuid() == 0"));
    const REFUSED: i32 = libc::EPERM;
    const ABSENT: i32 = libc::ENOSYS;
    for (name, number, arguments, expected) in [
        ("unshare", libc::SYS_unshare, "0x10000000", REFUSED),
        ("clone", libc::SYS_clone, "0x10000011, 0, 0, 0, 0", REFUSED),
        ("clone3", libc::SYS_clone3, "0, 0", ABSENT),
        ("mount", libc::SYS_mount, "0, 0, 0, 0, 0", REFUSED),
        ("bpf", libc::SYS_bpf, "0, 0, 0", REFUSED),
        ("keyctl", libc::SYS_keyctl, "0, 0, 0", REFUSED),
        ("userfaultfd", libc::SYS_userfaultfd, "0", REFUSED),
        ("perf_event_open", libc::SYS_perf_event_open, "0, 0, 0, 0, 0", REFUSED),
        ("io_uring_setup", libc::SYS_io_uring_setup, "1, 0", ABSENT),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, "0, 0, 0", REFUSED),
        ("socket of packets", libc::SYS_socket, "17, 3, 0", REFUSED),
        ("socket of netlink audit", libc::SYS_socket, "16, 3, 9", REFUSED),
    ] {
        assert!(scene.evaluates(&format!("call({number}, {arguments}) == {expected}")), "{name}");
    }
    if cfg!(target_arch = "x86_64") {
        let getpid_x32 = 0x4000_0000 | libc::SYS_getpid;
        assert!(scene.evaluates(&format!("call({getpid_x32}) == {ABSENT}")));
    }
}

#[test]
fn the_network_follows_the_setting() {
    let listeners = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
    let [own, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let connect = |port: u16| format!("works(lambda: socket.create_connection(('127.0.0.1', {port}), 5))");
    let send = format!("works(lambda: socket.socket(socket.AF_INET, 2).sendto(b'x', ('127.0.0.1', {datagrams})))");
    let fast = format!("works(lambda: socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', {other})))");
    let multipath = "works(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))";

    let open = Scene::new(Network::All);
    assert!(open.evaluates(&connect(other)) && open.evaluates(&send));

    let closed = Scene::new(Network::None);
    for attack in [connect(own), send.clone(), fast.clone(), "works(lambda: socket.socket(16, 3, 0))".to_owned()] {
        assert!(!closed.evaluates(&attack), "{attack}");
    }
    assert!(closed.evaluates("works(lambda: socket.socketpair())"), "workers of apps talk over unix sockets");

    if Kernel::detect().has(Feature::Ports) {
        assert!(closed.evaluates_with(Some(own), &connect(own)), "the port of the node");
        for attack in [connect(other), send, fast, multipath.to_owned()] {
            assert!(!closed.evaluates_with(Some(own), &attack), "{attack}");
        }
    }
}

#[test]
fn an_app_with_private_data_keeps_the_user() {
    let scene = Scene::new(Network::All);
    fs::set_permissions(scene.root.join("data"), fs::Permissions::from_mode(0o700)).unwrap();
    let data = vec![DataPath { path: scene.root.join("data"), writable: false }];
    let helper = env!("CARGO_BIN_EXE_sandbox-stage").into();
    let settings = Settings { data, helper, ..Settings::default() };
    let sandbox = Sandbox::new(settings, python(), scene.root.join("state"), "scratch", true).unwrap();
    let scratch = sandbox.scratch("two").unwrap().unwrap();
    assert!(!sandbox.level().separate_user);
    let code = format!("open({}).read(); print(open('/proc/self/status').read())", scene.path("data/table"));
    let output = sandbox.command(Some(&scratch), None).unwrap().args(["-c", &code]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("CapEff:\t0000000000000000"), "{said} {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_invalid_policy_starts_nothing() {
    let mut stage = Command::new(env!("CARGO_BIN_EXE_sandbox-stage"));
    let output = stage.args(["__sandbox", "/bin/echo", "started"]).env_clear().output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(126), b"".as_slice()));
}

/// Disables Landlock for this thread and its children.
fn lose_landlock() {
    let rules = [(libc::SYS_landlock_create_ruleset, Vec::new())].into_iter().collect();
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, absent, arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
fn without_landlock_nothing_starts_if_it_is_required() {
    let scene = Scene::new(Network::All);
    let without = std::thread::spawn(move || {
        lose_landlock();
        let helper: PathBuf = env!("CARGO_BIN_EXE_sandbox-stage").into();
        let make = |mode| {
            let settings = Settings { mode, helper: helper.clone(), ..Settings::default() };
            Sandbox::new(settings, python(), scene.root.join("state"), "scratch", true)
        };
        let refused = make(Mode::Required).unwrap_err().to_string();
        assert!(refused.contains("Landlock (Linux 5.13"), "{refused}");

        // The kernel had Landlock when this sandbox was created.
        let run = |sandbox: &Sandbox, scratch: &Scratch| {
            sandbox.command(Some(scratch), None).unwrap().args(["-c", "print('started')"]).output().unwrap()
        };
        let output = run(&scene.sandbox, &scene.scratch);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(126), b"".as_slice()));
        assert!(String::from_utf8_lossy(&output.stderr).contains("Landlock"));

        let sandbox = make(Mode::BestEffort).unwrap();
        let level = sandbox.level();
        assert_eq!((level.level, level.missing.len()), (Enforcement::Partial, 1));
        let scratch = sandbox.scratch("three").unwrap().unwrap();
        assert_eq!(run(&sandbox, &scratch).stdout, b"started\n");
    });
    without.join().unwrap();
}

/// The sandbox adds little to the start time of an interpreter. The fastest of several starts counts, and the test
/// retries because the machine may be busy.
#[test]
fn the_overhead_is_small() {
    const STARTS: u32 = 20;
    const TRIES: u32 = 5;
    const LIMIT_MS: f64 = 15.0;
    let scene = Scene::new(Network::All);
    let quickest = |make: &dyn Fn() -> Command| {
        let start = |_| {
            let began = Instant::now();
            assert!(make().args(["-I", "-S", "-c", "pass"]).status().unwrap().success());
            began.elapsed().as_secs_f64() * 1e3
        };
        (0..STARTS).map(start).fold(f64::INFINITY, f64::min)
    };
    let is_cheap = |_| {
        let plain = quickest(&|| Command::new(python()));
        let inside = quickest(&|| scene.sandbox.command(Some(&scene.scratch), None).unwrap());
        println!("start of an interpreter: {plain:.1} ms, in the sandbox {inside:.1} ms, {:.2} times", inside / plain);
        inside - plain < LIMIT_MS
    };
    assert!((0..TRIES).any(is_cheap));
}

/// Runs all tests above as an ordinary user.
#[test]
fn the_rules_hold_for_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    // Other users may have no access to the directory of the test program.
    let place = tempfile::Builder::new().prefix("trellis-sandbox-user-").tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = place.path().join("rules");
    fs::copy(&program, &copy).unwrap();
    let is_open = |path: &Path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 1 == 1);
    let reachable = |path: &Path| path.ancestors().skip(1).all(is_open);
    assert!(reachable(Path::new(env!("CARGO_BIN_EXE_sandbox-stage"))), "the second stage must be reachable for others");
    let output = Command::new(copy)
        .args(["--skip", "ordinary_user", "--test-threads", "1"])
        .env("TMPDIR", "/tmp")
        .uid(ORDINARY_USER)
        .gid(ORDINARY_USER)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test result: ok. 9 passed"), "{said}");
}
