//! Allowed differences from the recording, with reasons. The story contains no hosts, groups, markets, hooks and ACL rules;
//! the fake implements little or nothing of them.

pub struct Excused {
    /// The wording may differ.
    pub text: bool,
    paths: Vec<&'static str>,
}

impl Excused {
    pub fn covers(&self, path: &str) -> bool {
        self.paths.iter().any(|part| path.contains(part))
    }
}

/// In every response: these depend on the time of the recording.
const ALWAYS: [&str; 2] = ["/MONITORING/", "/HISTORY_RECORDS/"];

/// The exchange, the paths that may differ, and why.
const PATHS: [(&str, &str, &str); 4] = [
    ("vm.info-running", "/VM/TEMPLATE/SNAPSHOT", "snapshots are not made here, nobody asks for them"),
    ("vmpool.infoextended", "/VM/TEMPLATE/SNAPSHOT", "snapshots are not made here, nobody asks for them"),
    ("vmpool.infoset", "/USER_TEMPLATE/SCHED_MESSAGE", "no scheduler explains itself here"),
    ("vmpool.infoset", "/GRAPHICS/PORT", "the recorded VMs did not run yet"),
];

/// The exchange, and why its text may differ.
const TEXTS: [(&str, &str); 4] = [
    ("user.login-token", "the token is a random one"),
    ("template.allocate-bad-syntax", "the line number is one that was never set"),
    ("service_template-create-error-missing-roles", "the keys of the document stand in another order"),
    ("service_template-create-error-role-without-type", "the keys of the role stand in another order"),
];

pub fn of(name: &str) -> Excused {
    let own = PATHS.iter().filter(|(exchange, ..)| *exchange == name).map(|(_, path, _)| *path);
    Excused {
        text: TEXTS.iter().any(|(exchange, _)| *exchange == name),
        paths: ALWAYS.into_iter().chain(own).collect(),
    }
}
