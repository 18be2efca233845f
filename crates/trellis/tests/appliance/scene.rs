//! A cloud, VMs as directories, and the program in them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};
use trellis_appliance::readiness::MAX_END_DELAY;
use trellis_fake_one::cloud::Id;
use trellis_fake_one::{Config, FakeOne, Handle, PlainRole};
use trellis_testing::ports::free_address;
use trellis_testing::processes;

use crate::prober::Prober;

/// For anything to happen, on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Scene {
    _cloud: FakeOne,
    pub handle: Handle,
    home: TempDir,
    pub fleet: SocketAddr,
    pub http: SocketAddr,
    service: Id,
}

pub struct Machine {
    pub vm: Id,
    pub root: PathBuf,
    handle: Handle,
    pub process: Option<Child>,
    is_superlink: bool,
    /// Checks the reported status of a running SuperLink.
    prober: Option<Prober>,
    /// The tolerated time of a wrong status.
    pub notice: Duration,
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

impl Scene {
    /// A service with a SuperLink and this many nodes, none of which runs yet.
    pub async fn new(nodes: i64, link: &[(&str, &str)], node: &[(&str, &str)]) -> Scene {
        let cloud = FakeOne::start(Config::default()).await.expect("a cloud");
        let handle = cloud.handle();
        let [fleet, control, http] = [free_address(), free_address(), free_address()];
        let addresses = [fleet, control, http].map(|address| address.to_string());
        let mut of_link = owned(&[
            ("FL_FLEET_API_ADDRESS", &addresses[0]),
            ("FL_CONTROL_API_ADDRESS", &addresses[1]),
            ("FL_HTTP_API_ADDRESS", &addresses[2]),
        ]);
        of_link.extend(owned(link));
        let mut of_node = owned(&[("FL_CLIENT_APP", "native:mlp"), ("FL_EDGE_MAX_BACKOFF", "2")]);
        of_node.extend(owned(node));
        let role = |name: &str, cardinality: i64, context: BTreeMap<String, String>| PlainRole {
            name: name.to_owned(),
            cardinality,
            parents: Vec::new(),
            context: context.into_iter().collect(),
        };
        let roles = [role("superlink", 1, of_link), role("supernode", nodes, of_node)];
        let service = handle.create_service("fed", false, &roles).expect("a service");
        let there = handle
            .wait(PATIENCE, |cloud| {
                let service = cloud.services.get(&service)?;
                let count: usize = service.roles.iter().map(|role| role.vms().len()).sum();
                (i64::try_from(count).ok()? == nodes + 1).then_some(())
            })
            .await;
        there.expect("its VMs are there");
        let home = tempfile::tempdir().expect("a directory");
        Scene { _cloud: cloud, handle, home, fleet, http, service }
    }

    pub fn superlink(&self) -> Machine {
        self.machine("superlink", 0)
    }

    pub fn node(&self, index: usize) -> Machine {
        self.machine("supernode", index)
    }

    fn machine(&self, role: &str, index: usize) -> Machine {
        let vm = self.handle.role_vms(self.service, role)[index];
        let root = self.home.path().join(format!("{role}-{index}"));
        std::fs::create_dir_all(root.join("etc/trellis")).expect("a directory");
        std::fs::write(root.join("etc/trellis/role"), role).expect("a role");
        let machine = Machine {
            vm,
            root,
            handle: self.handle.clone(),
            process: None,
            is_superlink: role == "superlink",
            prober: None,
            notice: MAX_END_DELAY,
        };
        machine.write_context();
        machine
    }

    /// Reports a value as another VM's agent would.
    pub fn say(&self, vm: Id, attributes: &[(&str, &str)]) {
        self.handle.with(|cloud| {
            let vm = cloud.vms.get_mut(&vm).expect("the VM is there");
            for (name, value) in attributes {
                vm.user_template.set(name, *value);
            }
        });
    }

    pub fn gate<R>(&self, change: impl FnOnce(&mut trellis_fake_one::faults::GateFaults) -> R) -> R {
        self.handle.faults(|faults| change(&mut faults.gate))
    }
}

impl Machine {
    /// As OpenNebula writes it.
    pub fn write_context(&self) {
        self.handle.write_context(self.vm, &self.root.join("context")).expect("context");
    }

    /// Changes a variable like `onevm updateconf`.
    pub fn set_context(&self, name: &str, value: &str) {
        let path = self.root.join("context/context.sh");
        let text = std::fs::read_to_string(&path).expect("context");
        let kept = text.lines().filter(|line| !line.starts_with(&format!("{name}=")));
        let text = kept.chain([format!("{name}='{value}'").as_str()]).collect::<Vec<_>>().join("\n");
        let new = path.with_extension("new");
        std::fs::write(&new, text + "\n").and_then(|()| std::fs::rename(&new, &path)).expect("context");
    }

    fn command(&self, limit_s: u64) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        command.args(["appliance", "run", "--supervisor", "direct", "--limit", &limit_s.to_string()]);
        command.arg("--root").arg(&self.root);
        for file in ["one_env", "context.sh"] {
            command.arg("--context").arg(self.root.join("context").join(file));
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    pub fn start(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.root.join("log")).expect("a log");
        let mut command = self.command(60);
        command.stdout(log.try_clone().expect("the log")).stderr(log);
        self.process = Some(command.spawn().expect("it starts"));
        if self.is_superlink {
            self.prober = Some(Prober::watch(self.handle.clone(), self.vm, &self.root));
        }
    }

    /// Waits for a failed exit, and returns the output.
    pub async fn fails(&self, limit_s: u64) -> String {
        let output: Output = tokio::time::timeout(PATIENCE, self.command(limit_s).output())
            .await
            .expect("it ends by itself")
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_ne!(self.says("READY").as_deref(), Some("YES"), "{said}");
        said
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.root.join("log")).unwrap_or_default()
    }

    pub fn says(&self, name: &str) -> Option<String> {
        self.handle.attribute(self.vm, name).filter(|value| !value.is_empty())
    }

    pub async fn until_says(&self, name: &str, value: &str) {
        let (vm, limit) = (self.vm, PATIENCE);
        let found =
            self.handle.wait(limit, |cloud| (cloud.vms.get(&vm)?.user_template.get(name)? == value).then_some(()));
        if found.await.is_none() {
            panic!("{name} is {:?} and never {value}:\n{}", self.says(name), self.log());
        }
    }

    pub async fn until_other(&self, name: &str, old: &str) -> String {
        let vm = self.vm;
        let found = self.handle.wait(PATIENCE, |cloud| {
            let value = cloud.vms.get(&vm)?.user_template.get(name)?;
            (!value.is_empty() && value != old).then(|| value.to_owned())
        });
        found.await.unwrap_or_else(|| panic!("{name} stays {old}:\n{}", self.log()))
    }

    /// Kills all processes at once, so that none can report it.
    pub async fn crash(&mut self) {
        self.was_true().await;
        let mut process = self.process.take().expect("it runs");
        process.kill().await.expect("it is killed");
    }

    pub async fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a running process"), rustix::process::Signal::TERM)
            .expect("delivered");
        let status = tokio::time::timeout(PATIENCE, process.wait()).await.expect("it ends").expect("it ended");
        assert!(status.success(), "{status}: {}", self.log());
        self.was_true().await;
        assert_ne!(self.says("READY").as_deref(), Some("YES"), "nobody watches any more");
    }

    /// The reported status was correct at all times.
    async fn was_true(&mut self) {
        let Some(prober) = self.prober.take() else { return };
        let lie = prober.longest_lie().await;
        assert!(lie <= self.notice, "READY was said for {lie:?} of what did not work:\n{}", self.log());
    }

    /// The program of the role, by its state directory.
    pub fn program(&self) -> Option<u32> {
        let state = self.root.join("var/lib/trellis");
        let mut found = None;
        for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
            let words: Vec<&str> =
                line.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
            let is_role = words.get(1).is_some_and(|word| ["superlink", "supernode"].contains(word));
            if is_role && words.iter().any(|word| Path::new(word).starts_with(&state)) {
                found = Some(pid);
            }
        }
        found
    }

    pub fn authority(&self) -> PathBuf {
        self.root.join("var/lib/trellis/tls/own/ca.crt")
    }
}

/// ServerApps outlive their SuperLink.
impl Drop for Scene {
    fn drop(&mut self) {
        processes::end(self.home.path());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        assert!(
            self.prober.is_none() || std::thread::panicking(),
            "a SuperLink is stopped, and looked at, in every test"
        );
    }
}
