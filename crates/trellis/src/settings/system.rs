//! The environment of this process for the settings: arguments, variables, files, and output to the user.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{Access, access};

use super::check::{FileSeen, System};
use super::flags::Flags;
use super::given::{Given, Outside, gather};
use super::scan;

/// Limit for files whose content is part of the settings.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The settings from all sources; or an exit code, if help or version were requested and printed.
pub fn read(flags: &Flags, arguments: &[OsString]) -> Result<Given, ExitCode> {
    read_over(None, flags, arguments)
}

/// The same, over a file of settings that counts less than everything else.
pub fn read_over(base: Option<&Path>, flags: &Flags, arguments: &[OsString]) -> Result<Given, ExitCode> {
    let scanned = scan::scan(arguments, flags);
    if let Some(flag) = scanned.show {
        return Err(flags.show(flag));
    }
    let environment: BTreeMap<String, OsString> =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
    let outside = Outside { environment: &environment, read_file: &|path| std::fs::read_to_string(path), base };
    Ok(gather(scanned, flags, &outside))
}

/// Calls `body` with the system of this process.
pub fn with_system<T>(body: impl FnOnce(&System<'_>) -> T) -> T {
    let current_dir = std::env::current_dir().unwrap_or_default();
    let directory = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let (home, state_home) = (directory("HOME"), directory("XDG_STATE_HOME"));
    body(&System {
        current_dir: &current_dir,
        home: home.as_deref(),
        state_home: state_home.as_deref(),
        unreadable: &unreadable,
        unwritable: &unwritable,
        read: &read_small,
    })
}

fn unreadable(path: &Path) -> Option<String> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Some("it is a directory".to_owned()),
        Ok(metadata) if metadata.is_file() && metadata.len() == 0 => Some("it is empty".to_owned()),
        // Without opening it: a named pipe would block, and can be read only once.
        Ok(_) => access(path, Access::READ_OK).err().map(|error| io::Error::from(error).to_string()),
        Err(error) => Some(error.to_string()),
    }
}

fn read_small(path: &Path) -> Result<FileSeen, String> {
    let about = path.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > MAX_FILE_BYTES {
        return Err(format!("it is not a file of at most {MAX_FILE_BYTES} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    Ok(FileSeen { text, mode: about.mode() })
}

fn unwritable(path: &Path) -> Option<String> {
    let denied = |path: &Path, wanted| access(path, wanted).err().map(|error| io::Error::from(error).to_string());
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Some("it is a directory".to_owned()),
        Ok(_) => denied(path, Access::WRITE_OK),
        // Then it will be created, in its directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let why = denied(directory, Access::WRITE_OK | Access::EXEC_OK)?;
            Some(format!("{}: {why}", directory.display()))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Logs why the program ends, with everything that led to it.
pub fn fail(error: &dyn Error) -> ExitCode {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    tracing::error!("{text}");
    ExitCode::FAILURE
}

/// Prints to stdout. A closed pipe is not an error.
pub fn print(text: &str) -> ExitCode {
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

pub fn print_error(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
