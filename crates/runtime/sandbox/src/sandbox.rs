//! Starts interpreters in the sandbox. The paths that all apps of a node or a SuperLink share are collected once; the
//! rest of the policy is per app.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use crate::environment::for_apps;
use crate::kernel::{Feature, Kernel};
use crate::level::{Level, Unavailable};
use crate::policy::{Policy, Sockets};
use crate::python::{self, Interpreter};
use crate::settings::{Mode, Network, Settings};
use crate::{SUB_COMMAND, Scratch, enter, grants, scratch, user};

/// User name for programs that query it; the uid of an app has no name.
const USER_NAME: &str = "app";

/// The configuration of sandboxed interpreters.
#[derive(Debug)]
pub struct Sandbox {
    settings: Settings,
    kernel: Kernel,
    python: PathBuf,
    /// State directory: apps have no access except to their scratch directories.
    state: PathBuf,
    /// Parent of the scratch directories, in `state`.
    root: PathBuf,
    /// Further paths that no app may read.
    protected: Vec<PathBuf>,
    /// Apps get their messages from a port of this machine.
    over_tcp: bool,
    common: Mutex<Option<Arc<Common>>>,
}

/// The part of the policy that all apps share.
#[derive(Debug)]
struct Common {
    python: PathBuf,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    user_base: Option<PathBuf>,
    separate_user: bool,
    /// The path because of which apps keep the user of this process: other users cannot access it.
    closed: Option<PathBuf>,
}

impl Sandbox {
    /// Fails if the kernel lacks a feature that the settings require, or if apps could write to `state`. `root` names the directory in `state` for scratch
    /// directories.
    pub fn new(
        settings: Settings,
        python: PathBuf,
        state: PathBuf,
        root: &str,
        over_tcp: bool,
    ) -> Result<Sandbox, Unavailable> {
        let kernel = Kernel::detect();
        Level::of(&settings, &kernel, over_tcp, false).check()?;
        if let Some(path) = writable_parent_of(&settings, &state) {
            return Err(Unavailable::Exposed { path: path.to_owned() });
        }
        let root = state.join(root);
        let (protected, common) = (Vec::new(), Mutex::default());
        Ok(Sandbox { settings, kernel, python, state, root, protected, over_tcp, common })
    }

    /// Starts the interpreter without a sandbox.
    pub fn off(python: PathBuf) -> Sandbox {
        Sandbox::new(Settings::off(), python, PathBuf::new(), "", false).expect("nothing is required")
    }

    /// Adds paths that no app may read.
    pub fn protect(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Sandbox {
        self.protected.extend(paths);
        self
    }

    pub fn is_off(&self) -> bool {
        self.settings.mode == Mode::Off
    }

    /// The enforcement level. `separate_user` is only known after [`Sandbox::prepare`].
    pub fn level(&self) -> Level {
        let separate = self.common().as_ref().is_some_and(|common| common.separate_user);
        Level::of(&self.settings, &self.kernel, self.over_tcp, separate)
    }

    /// Logs the level at startup; `true` marks warnings.
    pub fn log(&self, tell: impl Fn(bool, String)) {
        self.level().log(&tell);
        if let Some(path) = self.common().as_ref().and_then(|common| common.closed.clone()) {
            let why = format!("other users cannot use {}", path.display());
            tell(false, format!("apps keep the user of this process, without its capabilities: {why}"));
        }
    }

    fn common(&self) -> std::sync::MutexGuard<'_, Option<Arc<Common>>> {
        self.common.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Collects the files of the interpreter. Otherwise the first start of an app does so. An error is not cached.
    pub fn prepare(&self) -> io::Result<()> {
        if self.is_off() { Ok(()) } else { self.prepared().map(drop) }
    }

    fn prepared(&self) -> io::Result<Arc<Common>> {
        let mut common = self.common();
        if let Some(common) = common.as_ref() {
            return Ok(Arc::clone(common));
        }
        let found = Arc::new(self.gather()?);
        Ok(Arc::clone(common.insert(found)))
    }

    fn gather(&self) -> io::Result<Common> {
        let environment = self.environment();
        let interpreter = Interpreter::ask(&self.python, &environment)?;
        let libraries = environment.iter().find(|(name, _)| name == "LD_LIBRARY_PATH");
        let libraries = python::directories(libraries.map(|(_, value)| value.as_os_str()));
        let protected: Vec<PathBuf> = [&self.state].into_iter().chain(&self.protected).cloned().collect();
        let data = |writable: bool| {
            let chosen = self.settings.data.iter().filter(move |data| data.writable == writable);
            chosen.map(|data| data.path.clone())
        };
        let readable = interpreter.paths.iter().cloned().chain(libraries).chain(data(false));
        let read = grants::without(grants::system().into_iter().chain(readable).collect(), &protected);
        let write: Vec<PathBuf> = data(true).collect();
        scratch::make_private(&self.root)?;
        let is_root = rustix::process::geteuid().is_root();
        let closed = is_root.then(|| self.first_inaccessible(&interpreter, &write)).flatten();
        let separate_user = is_root && closed.is_none();
        if separate_user {
            user::grant_search(&self.state)?;
            user::grant_search(&self.root)?;
        }
        let unknown = interpreter.executable.as_os_str().is_empty();
        let python = if unknown { self.python.clone() } else { interpreter.executable };
        Ok(Common { python, read, write, user_base: interpreter.user_base, separate_user, closed })
    }

    /// The first path that an app with its own user could not access.
    fn first_inaccessible(&self, interpreter: &Interpreter, write: &[PathBuf]) -> Option<PathBuf> {
        let above = self.state.parent().map(Path::to_owned);
        let above = above.into_iter().flat_map(|path| fs::canonicalize(path).ok());
        let data = self.settings.data.iter().filter(|data| !data.writable).map(|data| data.path.as_path());
        user::first_unsearchable(above)
            .or_else(|| user::first_inaccessible(interpreter.vital.iter().map(PathBuf::as_path).chain(data), false))
            .or_else(|| user::first_inaccessible(write.iter().map(PathBuf::as_path), true))
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        for_apps(std::env::vars_os(), &self.settings.variables)
    }

    /// Creates the directory of a new app; `None` if the sandbox is off.
    pub fn scratch(&self, name: &str) -> io::Result<Option<Scratch>> {
        if self.is_off() {
            return Ok(None);
        }
        let user = self.prepared()?.separate_user.then(user::next);
        Scratch::create(self.root.join(name), user).map(Some)
    }

    /// Removes the scratch directories of an earlier process.
    pub fn sweep(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// A command that starts the interpreter; the caller adds arguments and variables. It may connect to `port` of this
    /// machine under any network setting. Without a scratch directory the interpreter starts without a sandbox.
    pub fn command(&self, scratch: Option<&Scratch>, port: Option<u16>) -> io::Result<Command> {
        let Some(scratch) = scratch else { return Ok(Command::new(&self.python)) };
        let common = self.prepared()?;
        let policy = self.policy(&common, scratch, port);
        let mut command = Command::new(&self.settings.helper);
        command.arg(SUB_COMMAND).arg(&common.python).current_dir(scratch.work()).env_clear().envs(self.environment());
        command.env(enter::POLICY, serde_json::to_string(&policy).map_err(io::Error::other)?);
        let home = scratch.home();
        command.env("FLWR_HOME", home.join(".flwr")).env("HOME", home).env("TMPDIR", scratch.temporary());
        command.env("USER", USER_NAME).env("LOGNAME", USER_NAME);
        command.envs(common.user_base.as_ref().map(|base| ("PYTHONUSERBASE", base)));
        Ok(command)
    }

    fn policy(&self, common: &Common, scratch: &Scratch, port: Option<u16>) -> Policy {
        let own = [scratch.home(), scratch.temporary(), scratch.work()];
        Policy {
            required: self.settings.mode == Mode::Required,
            user: scratch.user().cloned(),
            read: common.read.iter().cloned().chain([scratch.app()]).collect(),
            write: common.write.iter().cloned().chain(own).collect(),
            devices: grants::devices(),
            sockets: match (self.settings.network, port) {
                (Network::All, _) => Sockets::All,
                (Network::None, Some(port)) => Sockets::Port(port),
                (Network::None, None) => Sockets::Unix,
            },
            refuse_truncate: !self.kernel.has(Feature::Truncate),
        }
    }
}

/// The first writable data path that contains the state directory, unless the sandbox is off.
fn writable_parent_of<'s>(settings: &'s Settings, state: &Path) -> Option<&'s Path> {
    if settings.mode == Mode::Off {
        return None;
    }
    let state = fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
    let writable = settings.data.iter().filter(|data| data.writable).map(|data| data.path.as_path());
    writable.into_iter().find(|path| fs::canonicalize(path).is_ok_and(|path| state.starts_with(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::DataPath;

    #[test]
    fn writable_data_may_not_contain_the_state_directory() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("node/state");
        fs::create_dir_all(&state).unwrap();
        let open = |mode: Mode, path: &Path, writable: bool| {
            let data = vec![DataPath { path: path.to_owned(), writable }];
            let settings = Settings { mode, data, ..Settings::off() };
            Sandbox::new(settings, PathBuf::from("python3"), state.clone(), "apps", false).map(drop)
        };
        let exposed = Err(Unavailable::Exposed { path: home.path().to_owned() });
        assert_eq!(open(Mode::BestEffort, home.path(), true), exposed);
        assert_eq!(open(Mode::BestEffort, home.path(), false), Ok(()), "read-only data leave the state out");
        assert_eq!(open(Mode::BestEffort, &home.path().join("node/data"), true), Ok(()));
        assert_eq!(open(Mode::Off, home.path(), true), Ok(()));
    }
}
