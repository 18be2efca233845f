//! `trellis appliance machine`: finds the disc with the context and configures the machine before its network is up. The
//! context is interpreted by `trellis_appliance::machine`.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use trellis_appliance::context::Values;
use trellis_appliance::disc;
use trellis_appliance::machine::{File, machine};
use trellis_terminal::{explain, print, remark};

use crate::remote::CommandError;

const CALLED: &str = "trellis appliance machine";
/// How long to wait for the disc.
const DISC_LIMIT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Drives that may hold the disc.
const DRIVES: [&str; 5] = ["sr", "vd", "sd", "hd", "xvd"];

/// Set up network, name and keys of this machine from its context, if no context package does
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// The directory that is the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// The disc, instead of the first drive that has one
    #[arg(long, value_name = "FILE")]
    disc: Option<PathBuf>,
}

pub fn run(args: &MachineArgs) -> ExitCode {
    match set_up(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(CALLED),
    }
}

fn set_up(args: &MachineArgs) -> Result<(), CommandError> {
    let found = match &args.disc {
        Some(path) => read(path)?,
        None => search(),
    };
    let Some(files) = found else {
        print("no disc with a context: the machine stays as it is\n");
        return Ok(());
    };
    let Some(context) = files.get("context.sh") else {
        return Err(CommandError::failed(
            "the disc has no context.sh",
            Some("give the machine a context: CONTEXT=[...]"),
        ));
    };
    let mut values = Values::default();
    values.add_context_sh(context);
    let machine = machine(&values, context, files.get("token.txt").map(Vec::as_slice));
    machine.problems.iter().for_each(|problem| remark(&problem.to_string()));
    for file in &machine.files {
        put(&args.root, file).map_err(|error| CommandError::failed(format!("/{}: {error}", file.path), None))?;
    }
    if let Some(name) = machine.hostname.filter(|_| args.root == Path::new("/")) {
        let kernel = "/proc/sys/kernel/hostname";
        fs::write(kernel, name).map_err(|error| CommandError::failed(format!("{kernel}: {error}"), None))?;
    }
    Ok(())
}

/// Drives appear while a machine starts: polls them until one has the disc, or until the timeout.
fn search() -> Option<BTreeMap<String, Vec<u8>>> {
    let deadline = Instant::now() + DISC_LIMIT;
    loop {
        // A drive without a disc, or with a damaged one, is not the one; an other may be.
        if let Some(files) = drives().iter().find_map(|drive| read(drive).ok().flatten()) {
            return Some(files);
        }
        if Instant::now() >= deadline {
            return None;
        }
        sleep(POLL_INTERVAL);
    }
}

fn drives() -> Vec<PathBuf> {
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut drives: Vec<_> = names.filter(|name| DRIVES.iter().any(|kind| name.starts_with(kind))).collect();
    drives.sort_by_key(|name| (!name.starts_with("sr"), name.clone()));
    drives.into_iter().map(|name| Path::new("/dev").join(name)).collect()
}

fn read(path: &Path) -> Result<Option<BTreeMap<String, Vec<u8>>>, CommandError> {
    let at = |error: io::Error| CommandError::failed(format!("{}: {error}", path.display()), None);
    let mut opened = fs::File::open(path).map_err(at)?;
    disc::read(&mut opened)
        .map_err(|error| CommandError::failed(format!("{}: {}", path.display(), explain(&error)), None))
}

/// Whole or not at all.
fn put(root: &Path, file: &File) -> io::Result<()> {
    let path = root.join(&file.path);
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    trellis_files::replace(&path, &file.content, file.mode)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_disc_becomes_the_files_of_a_machine() {
        let place = tempfile::tempdir().expect("a directory");
        let (root, path) = (place.path().join("root"), place.path().join("context.iso"));
        let context = b"NETWORK='YES'\nETH0_IP='10.0.0.9'\nVMID='7'\nSSH_PUBLIC_KEY='ssh-rsa A'\n".to_vec();
        let files = BTreeMap::from([("context.sh".to_owned(), context), ("token.txt".to_owned(), b"secret".to_vec())]);
        fs::write(&path, disc::write(&files).expect("a disc")).expect("written");
        let args = MachineArgs { root: root.clone(), disc: Some(path) };
        // Twice: a machine starts more than once.
        for _ in 0..2 {
            assert!(set_up(&args).is_ok());
        }
        let text = |path: &str| fs::read_to_string(root.join(path)).expect("it is there");
        assert!(text("run/systemd/network/10-eth0.network").contains("Address=10.0.0.9/24\n"));
        assert_eq!(text("etc/hostname"), "trellis-7\n");
        assert!(text("run/one-context/one_env").starts_with("export TOKENTXT=\"secret\"\n"));
        let mode = fs::metadata(root.join("run/one-context/one_env")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
    }

    #[test]
    fn a_disc_of_somebody_else_changes_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("other.iso");
        fs::write(&path, vec![0; 1 << 16]).expect("written");
        assert!(set_up(&MachineArgs { root: place.path().join("root"), disc: Some(path) }).is_ok());
        assert!(!place.path().join("root").exists());
    }
}
