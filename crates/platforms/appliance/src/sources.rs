//! The files that a VM's context comes in, and the way to OneGate that is in them. What the values mean is known elsewhere.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use trellis_one::gate::{GateToken, OneGate};
use trellis_one::{Endpoint, Patience, Trust};

use crate::context::{MAX_CONTEXT_BYTES, Values};
use crate::place::Place;
use crate::settings::Role;
use crate::trouble::{Code, Trouble};

/// OneGate is asked again soon; a probe does not wait for it long.
const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(5);
const LONGEST_ANSWER_BYTES: usize = 16 << 20;
const TOKEN: &str = "token.txt";
/// Where the packages of OpenNebula, and our own early unit, leave the context.
const USUAL: [&str; 3] = ["run/one-context/one_env", "var/run/one-context/one_env", "run/trellis/context/context.sh"];

#[derive(Debug, Clone)]
pub struct Sources {
    files: Vec<PathBuf>,
    /// one-apps exports the context; a container has nothing else.
    environment: bool,
    role: PathBuf,
}

/// When a source was written, and how long it is: whether it must be read again.
pub type Stamp = Vec<(PathBuf, Option<(SystemTime, u64)>)>;

impl Sources {
    /// `given` in place of the usual files.
    pub fn new(place: &Place, given: &[PathBuf], environment: bool) -> Sources {
        let usual = || USUAL.iter().map(|path| place.root().join(path)).collect();
        let files = if given.is_empty() { usual() } else { given.to_vec() };
        Sources { files, environment, role: place.role() }
    }

    pub fn stamp(&self) -> Stamp {
        let stamp = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok();
            (path.clone(), found.and_then(|found| Some((found.modified().ok()?, found.len()))))
        };
        self.files.iter().map(stamp).collect()
    }

    pub fn read(&self) -> Values {
        let mut values = Values::default();
        let mut seen: Vec<PathBuf> = Vec::new();
        for path in &self.files {
            // The same file by two names is one.
            let Ok(real) = path.canonicalize() else { continue };
            if seen.contains(&real) {
                continue;
            }
            seen.push(real);
            let Ok(bytes) = read_bounded(path) else { continue };
            match path.file_name().is_some_and(|name| name == "one_env") || bytes.starts_with(b"export ") {
                true => values.add_one_env(&bytes),
                false => values.add_context_sh(&bytes),
            }
        }
        if self.environment {
            values.add_environment(std::env::vars_os());
        }
        values
    }

    /// The role that the image was made for, where it was made for one.
    pub fn role(&self) -> Role {
        let said = std::fs::read_to_string(&self.role).ok().and_then(|text| Role::parse(&text));
        said.unwrap_or(Role::SuperNode)
    }

    /// `None`: there is no OneGate here, and nobody expects to hear through one.
    pub fn gate(&self, values: &Values) -> Result<Option<OneGate>, Trouble> {
        let no = |what: String| Trouble::new(Code::NoToken, what);
        let is_awaited = values.get("REPORT_READY").is_some_and(|said| said.eq_ignore_ascii_case("YES"));
        let Some(endpoint) = values.get("ONEGATE_ENDPOINT") else {
            return match is_awaited {
                true => Err(no(
                    "REPORT_READY=YES, and the context has neither an address of OneGate nor a token".to_owned()
                )),
                false => Ok(None),
            };
        };
        let endpoint =
            Endpoint::parse(endpoint).map_err(|error| no(format!("ONEGATE_ENDPOINT cannot be used: {error}")))?;
        let beside = self.files.iter().filter_map(|path| std::fs::read_to_string(path.with_file_name(TOKEN)).ok());
        let token = values.get("TOKENTXT").map(str::to_owned).or_else(|| beside.into_iter().next());
        let token = token.ok_or_else(|| no("there is a OneGate, and no token for it".to_owned()))?;
        let token = GateToken::parse(&token).map_err(|error| no(error.to_string()))?;
        let vm = values.get("VMID").and_then(|text| text.parse().ok());
        let vm = vm.ok_or_else(|| no("the context does not say which VM this is (VMID)".to_owned()))?;
        let patience = Patience { connect: CONNECT, answer: ANSWER, longest_answer_bytes: LONGEST_ANSWER_BYTES };
        Ok(Some(OneGate::with(endpoint, vm, token, Trust::system(), patience)))
    }
}

/// More than is read is not read at all: who reads says so.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_CONTEXT_BYTES + 1).unwrap_or(u64::MAX);
    std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
