//! `trellis appliance install`: prepares the file tree of an image. Uses no network and starts nothing.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use trellis_appliance::disk;
use trellis_appliance::place::{Place, USER};
use trellis_appliance::recipe::unit;
use trellis_appliance::settings::Role;

use trellis_terminal::remark;

/// Below the ids of people, for a user that no package of Debian creates.
const UID: u32 = 990;
const AGENT: &str = "trellis-agent.service";
const APPLIANCE: &str = "trellis-appliance.service";

/// Lay out directories, the user, units and the role in the tree of an image
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The tree of the image
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// The role of machines of this image: superlink, supernode or gateway
    #[arg(long, value_name = "ROLE", default_value = "supernode")]
    role: String,
    /// Path of this program in the image
    #[arg(long, value_name = "FILE", default_value = "/usr/bin/trellis")]
    program: PathBuf,
    /// Version requested by one-apps; not used
    #[arg(hide = true)]
    version: Option<String>,
}

pub fn run(args: &InstallArgs) -> ExitCode {
    let Some(role) = Role::parse(&args.role) else {
        remark(&format!(
            "trellis appliance install: there is no role {:?}\n  to do: use superlink, supernode or gateway",
            args.role
        ));
        return ExitCode::from(2);
    };
    // Units contain paths within the image.
    match install(&Place::new(&args.root, &args.program), &Place::new("/", &args.program), role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            remark(&format!(
                "trellis appliance install: {error}\n  to do: run it as root, on a tree that can be written"
            ));
            ExitCode::FAILURE
        }
    }
}

fn install(tree: &Place, machine: &Place, role: Role) -> io::Result<()> {
    for (path, mode) in [
        (tree.etc(), 0o755),
        (tree.state(), 0o755),
        (tree.authority(), 0o700),
        (tree.logs(), 0o755),
        (tree.units(), 0o755),
        (tree.units().join("multi-user.target.wants"), 0o755),
    ] {
        disk::make_directory(&path, mode, None)?;
    }
    add_user(tree)?;
    disk::write(&tree.role(), format!("{}\n", role.name()).as_bytes(), 0o644, None)?;
    for (name, text) in [(AGENT, unit::agent(machine)), (APPLIANCE, unit::appliance(machine))] {
        disk::write(&tree.units().join(name), text.as_bytes(), 0o644, None)?;
        enable(&tree.units(), name)?;
    }
    let logs = disk::Owner::find(&tree.passwd(), USER);
    disk::make_directory(&tree.logs(), 0o755, logs)
}

/// As `systemctl enable` does it.
fn enable(units: &Path, name: &str) -> io::Result<()> {
    let link = units.join("multi-user.target.wants").join(name);
    match symlink(Path::new("/etc/systemd/system").join(name), &link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// A user without a password, a home or a shell.
fn add_user(tree: &Place) -> io::Result<()> {
    let etc = tree.root().join("etc");
    for (file, line) in [
        ("passwd", format!("{USER}:x:{UID}:{UID}:Trellis:/var/lib/trellis:/usr/sbin/nologin\n")),
        ("group", format!("{USER}:x:{UID}:\n")),
    ] {
        let path = etc.join(file);
        let found = fs::read_to_string(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(String::new()),
            _ => Err(error),
        })?;
        if !found.lines().any(|entry| entry.starts_with(&format!("{USER}:"))) {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(&path)?;
            file.write_all(line.as_bytes())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_laid_out_and_once_more_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(directory.path().join("etc")).expect("a directory");
        let (tree, machine) = (Place::new(directory.path(), "/usr/bin/trellis"), Place::new("/", "/usr/bin/trellis"));
        install(&tree, &machine, Role::SuperLink).expect("installed");
        install(&tree, &machine, Role::SuperLink).expect("installed again");
        let read = |path: &str| fs::read_to_string(directory.path().join(path)).expect("it is there");
        assert_eq!(read("etc/trellis/role"), "superlink\n");
        assert_eq!(read("etc/passwd").matches("trellis:x:").count(), 1);
        let unit = read("etc/systemd/system/trellis-agent.service");
        assert!(unit.contains("ExecStart=\"/usr/bin/trellis\" appliance agent"), "{unit}");
        let link = directory.path().join("etc/systemd/system/multi-user.target.wants/trellis-agent.service");
        assert_eq!(fs::read_link(link).expect("enabled"), Path::new("/etc/systemd/system/trellis-agent.service"));
    }
}
