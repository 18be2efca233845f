use super::*;

#[test]
fn the_own_cgroup_is_found() {
    let plain = "0::/system.slice/trellis.service\n";
    let hybrid = "9:name=systemd:/\n4:memory:/other\n0::/\n";
    assert_eq!(own_cgroup(plain).unwrap(), "/system.slice/trellis.service");
    assert_eq!(own_cgroup(hybrid).unwrap(), "/");
    assert!(own_cgroup("4:memory:/other\n").unwrap_err().contains("no cgroup v2"));
    assert!(own_cgroup("0::/../../x\n").unwrap_err().contains("outside"));
}

#[test]
fn its_directory_is_found() {
    let unified = "31 23 0:28 / /proc rw - proc proc rw\n\
        32 23 0:29 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    let hybrid = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    let container = "41 31 0:38 /docker/abc /sys/fs/cgroup ro,relatime - cgroup2 cgroup rw\n";
    let cases = [
        ("/", unified, Some("/sys/fs/cgroup/")),
        ("/a.slice/b.service", unified, Some("/sys/fs/cgroup/a.slice/b.service")),
        ("/", hybrid, Some("/sys/fs/cgroup/unified/")),
        ("/docker/abc", container, Some("/sys/fs/cgroup/")),
        ("/docker/abc/x", container, Some("/sys/fs/cgroup/x")),
        ("/docker/abcd", container, None),
        ("/", "31 23 0:28 / /proc rw - proc proc rw\n", None),
    ];
    for (own, mounts, want) in cases {
        assert_eq!(directory_of(own, mounts).ok(), want.map(PathBuf::from), "{own} in {mounts}");
    }
}

/// A directory with the files of a cgroup, which here have no effect.
fn fake(controllers: &str, enabled: &str, processes: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let files = [
        ("cgroup.controllers", controllers),
        ("cgroup.subtree_control", enabled),
        ("cgroup.procs", processes),
        ("cgroup.type", "domain"),
    ];
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

#[test]
fn the_node_moves_to_a_child_and_enables_available_controllers() {
    let own = format!("{}\n", process::id());
    let cgroup = fake("cpuset cpu io memory pids\n", "", &own);
    let parent = Parent::prepare("/", cgroup.path()).unwrap();
    assert!(parent.memory && parent.cpu);
    assert_eq!(read(cgroup.path(), "cgroup.subtree_control"), "+memory +cpu");
    assert_eq!(read(cgroup.path(), "trellis-node/cgroup.procs"), own.trim());

    let cgroup = fake("memory\n", "memory\n", "1\n2\n");
    let parent = Parent::prepare("/", cgroup.path()).unwrap();
    assert!(parent.memory && !parent.cpu, "enabled controllers need no move");
    assert!(!cgroup.path().join(NODE).exists());
}

#[test]
fn a_restarted_node_finds_its_cgroup_again() {
    let cgroup = fake("memory cpu", "memory cpu", "");
    let leaf = cgroup.path().join(NODE);
    fs::create_dir(&leaf).unwrap();
    fs::create_dir(cgroup.path().join("trellis-app-7")).unwrap();
    let parent = Parent::prepare("/trellis-node", &leaf).unwrap();
    assert_eq!(parent.directory, cgroup.path());
    assert!(!cgroup.path().join("trellis-app-7").exists(), "an empty cgroup of an earlier app was left");
}

#[test]
fn foreign_cgroups_are_not_changed() {
    let crowded = fake("memory cpu", "", &format!("1\n{}\n", process::id()));
    assert!(Parent::prepare("/", crowded.path()).unwrap_err().contains("other processes"));
    let empty = fake("", "", "");
    assert!(Parent::prepare("/", empty.path()).unwrap_err().contains("neither"));
    assert_eq!(read(crowded.path(), "cgroup.subtree_control"), "");
    if rustix::process::geteuid().is_root() {
        let foreign = fake("memory cpu", "", &process::id().to_string());
        assert!(Parent::prepare("/user.slice/x.scope", foreign.path()).unwrap_err().contains("Delegate=yes"));
        assert!(!foreign.path().join(NODE).exists());
    }
}

#[test]
fn limits_are_written_in_the_kernels_format() {
    let described = |controllers: &str, memory, cpus| {
        let cgroup = fake(controllers, controllers, "");
        let settings = Parent::prepare("/", cgroup.path()).unwrap().settings(memory, cpus);
        settings.into_iter().map(|(file, value)| format!("{file}={value}")).collect::<Vec<_>>().join(" ")
    };
    let memory = "memory.max=67108864 memory.swap.max=0 memory.oom.group=1";
    assert_eq!(described("memory cpu", None, None), "");
    assert_eq!(described("memory cpu", Some(64 << 20), Some(1.5)), format!("{memory} cpu.max=150000 100000"));
    assert_eq!(described("memory", Some(64 << 20), Some(1.5)), memory);
    assert_eq!(described("cpu", Some(64 << 20), Some(0.001)), "cpu.max=1000 100000");
}

#[test]
fn a_failed_admission_leaves_no_cgroup() {
    let cgroup = fake("memory cpu", "memory cpu", "");
    let parent = Parent::prepare("/", cgroup.path()).unwrap();
    // A regular directory has none of the files.
    assert!(parent.admit(42, Some(1), None).unwrap_err().to_string().contains("memory.max"));
    assert!(!cgroup.path().join("trellis-app-42").exists());
}

#[test]
fn an_oom_kill_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let app = AppCgroup { directory: directory.path().to_owned(), leftovers: Arc::default() };
    assert!(!app.ran_out_of_memory());
    for (events, want) in [("low 0\noom 1\noom_kill 0\n", false), ("oom_kill 2\noom_group_kill 1\n", true)] {
        fs::write(directory.path().join("memory.events"), events).unwrap();
        assert_eq!(app.ran_out_of_memory(), want, "{events:?}");
    }
}
