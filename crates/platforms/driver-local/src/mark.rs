//! The mark of a process: an environment variable that programs of a part inherit to everything they start. The driver finds its
//! processes by it after a crash, even if their pids were not stored.

use std::fmt;

use trellis_plan::ResourceId;

use crate::process::Identity;

/// Names the part of a process.
pub const MARK: &str = "TRELLIS_DRIVER_PART";
/// The pid of the process that the driver started. Its children inherit the variable, so their own pid differs.
pub const STARTED: &str = "TRELLIS_DRIVER_PID";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Hash of the home.
    pub home: String,
    pub id: ResourceId,
    pub instance: u64,
    /// Index of the program in the recipe; `None`: a program that runs to its end, before or after the others.
    pub role: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    pub mark: Mark,
    pub process: Identity,
    /// Started by the driver, not by a program of the part.
    pub is_program: bool,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/", self.home, self.id, self.instance)?;
        match self.role {
            Some(role) => write!(f, "{role}"),
            None => f.write_str("step"),
        }
    }
}

impl Mark {
    pub fn parse(text: &str) -> Option<Mark> {
        let (home, rest) = text.split_once('/')?;
        let (rest, role) = rest.rsplit_once('/')?;
        let (id, instance) = rest.rsplit_once('/')?;
        let role = if role == "step" { None } else { Some(role.parse().ok()?) };
        let id = ResourceId::try_from(id.to_owned()).ok()?;
        Some(Mark { home: home.to_owned(), id, instance: instance.parse().ok()?, role })
    }
}

/// All processes of this user with a mark of this home.
pub fn scan(home: &str) -> std::io::Result<Vec<Marked>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        found.extend(pid.and_then(|pid| marked(pid, home)));
    }
    Ok(found)
}

fn marked(pid: u32, home: &str) -> Option<Marked> {
    // Processes that end meanwhile and those of other users are skipped.
    let process = Identity::of(pid)?;
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variable = |name: &str| {
        let mut entries = environment.split(|byte| *byte == 0).filter_map(|entry| str::from_utf8(entry).ok());
        entries.find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    let mark = Mark::parse(&variable(MARK)?).filter(|mark| mark.home == home)?;
    // Without the variable, it has not executed its program yet.
    let is_program = variable(STARTED).is_none_or(|started| started == pid.to_string());
    Some(Marked { mark, process, is_program })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_its_text() {
        for text in ["0a/fed/lab/coordinator/17/0", "0a/fed/lab/node/a-1/9/step"] {
            assert_eq!(Mark::parse(text).expect("a mark").to_string(), text);
        }
        for text in ["", "0a/fed/lab/coordinator/17", "0a/fed/lab/node/a-1/x/0"] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
    }
}
