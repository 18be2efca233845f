//! Files that contain the context of a VM, and the OneGate client that they configure. The meaning of values is defined
//! elsewhere.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use trellis_one::gate::{GateToken, OneGate};
use trellis_one::{Endpoint, HttpLimits, Trust};

use crate::context::{MAX_CONTEXT_BYTES, Values};
use crate::failure::{Code, Failure};
use crate::place::Place;
use crate::settings::Role;

/// Timeouts of OneGate. They are short because the agent retries soon.
const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(5);
const MAX_RESPONSE_BYTES: usize = 16 << 20;
const TOKEN: &str = "token.txt";
/// Context files of OpenNebula's packages, and of our own early unit.
const CONTEXT_FILES: [&str; 3] =
    ["run/one-context/one_env", "var/run/one-context/one_env", "run/trellis/context/context.sh"];

#[derive(Debug, Clone)]
pub struct Sources {
    files: Vec<PathBuf>,
    /// one-apps exports the context to the environment; a container has no other source.
    environment: bool,
    role: PathBuf,
}

/// Modification time and length of each source. The agent reads the sources again if one of them changes.
pub type Stamp = Vec<(PathBuf, Option<(SystemTime, u64)>)>;

impl Sources {
    /// `given` replaces the usual files.
    pub fn new(place: &Place, given: &[PathBuf], environment: bool) -> Sources {
        let usual = || CONTEXT_FILES.iter().map(|path| place.root().join(path)).collect();
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
            // Two paths may lead to the same file.
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

    /// The role in the image's role file.
    pub fn role(&self) -> Role {
        let said = std::fs::read_to_string(&self.role).ok().and_then(|text| Role::parse(&text));
        said.unwrap_or(Role::SuperNode)
    }

    /// `None` if the context configures no OneGate and requires none.
    pub fn gate(&self, values: &Values) -> Result<Option<OneGate>, Failure> {
        let no = |what: String| Failure::new(Code::NoToken, what);
        let is_awaited = values.get("REPORT_READY").is_some_and(|said| said.eq_ignore_ascii_case("YES"));
        let Some(endpoint) = values.get("ONEGATE_ENDPOINT") else {
            return match is_awaited {
                true => Err(no("REPORT_READY=YES, but the context has no address and no token of OneGate".to_owned())),
                false => Ok(None),
            };
        };
        let endpoint =
            Endpoint::parse(endpoint).map_err(|error| no(format!("ONEGATE_ENDPOINT cannot be used: {error}")))?;
        let beside = self.files.iter().filter_map(|path| std::fs::read_to_string(path.with_file_name(TOKEN)).ok());
        let token = values.get("TOKENTXT").map(str::to_owned).or_else(|| beside.into_iter().next());
        let token = token.ok_or_else(|| no("the context has an address of OneGate, but no token".to_owned()))?;
        let token = GateToken::parse(&token).map_err(|error| no(error.to_string()))?;
        let vm = values.get("VMID").and_then(|text| text.parse().ok());
        let vm = vm.ok_or_else(|| no("the context has no VMID".to_owned()))?;
        let limits = HttpLimits { connect: CONNECT, answer: ANSWER, max_response_bytes: MAX_RESPONSE_BYTES };
        Ok(Some(OneGate::with(endpoint, vm, token, Trust::system(), limits)))
    }
}

/// Reads one byte more than allowed, so that the caller notices a file that is too long.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_CONTEXT_BYTES + 1).unwrap_or(u64::MAX);
    std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
