//! Fields of `trellis_flower::launch` that a program or a platform ignores, with reasons. Each has a test that changes
//! every field and compares the result: a field without effect must be listed here.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Official programs of every release.
    Flower,
    Trellis,
    Local,
    Appliance,
    Kubernetes,
}

/// Description, field, reason.
pub type Unused = (&'static str, &'static str, &'static str);

const NO_SETTING: &str = "official programs have no such setting";
const OFFICIAL_ONLY: &str = "only official programs have it";
const OWN_COMMAND: &str = "our program is one file, and found by its path";
const ONE_USER: &str = "apps run as the user of the SuperLink";
const LOOPBACK: &str = "apps are served on the loopback interface";
const NO_FIELD: &str = "documents have no field for it; extraArgs can set it";
const NO_VARIABLE: &str = "contexts have no variable for it";

const UNUSED_BY_FLOWER: &[Unused] = &[
    ("Common", "python", "apps run in the Python that the programs are installed in"),
    ("Common", "sandbox", NO_SETTING),
    ("Common", "keepalive", NO_SETTING),
    ("Common", "metrics", NO_SETTING),
    ("Common", "json_logs", NO_SETTING),
    ("SuperLink", "apps_trust_machine", NO_SETTING),
    ("SuperLink", "open_network", "--insecure allows it"),
    ("SuperLink", "accounts", NO_SETTING),
    ("SuperLink", "admin_token", NO_SETTING),
    ("SuperLink", "endpoints", NO_SETTING),
    ("SuperLink", "allowed_hosts", NO_SETTING),
    ("SuperLink", "models", NO_SETTING),
    ("SuperLink", "run_defaults", NO_SETTING),
    ("SuperNode", "name", NO_SETTING),
    ("SuperNode", "state", "they store nothing"),
    ("SuperNode", "client_app", NO_SETTING),
    ("SuperNode", "backoff", NO_SETTING),
    ("SuperNode", "limits", NO_SETTING),
    ("SuperNode", "gpus_may_be_missing", NO_SETTING),
    ("SuperNode", "gpu_memory_fraction", NO_SETTING),
];

const UNUSED_BY_TRELLIS: &[Unused] = &[
    ("Common", "home", OFFICIAL_ONLY),
    ("Common", "search_path", OWN_COMMAND),
    ("SuperLink", "apps_tls", "its HTTP port serves apps with the certificate"),
];

const UNUSED_BY_LOCAL: &[Unused] = &[
    ("Common", "health", "the driver calls the APIs and reads the socket and the log"),
    ("Common", "log_level", NO_FIELD),
    ("SuperLink", "apps_tls", LOOPBACK),
    ("SuperLink", "apps_trust_machine", ONE_USER),
    ("SuperLink", "open_network", "without TLS only this machine is served"),
    ("SuperLink", "accounts", "callers always need an account: other users of this machine reach the ports"),
    ("SuperLink", "allowed_hosts", "endpoints name the hosts"),
    ("SuperLink", "run_defaults", NO_FIELD),
    ("SuperNode", "max_retries", NO_FIELD),
    ("SuperNode", "max_wait_s", NO_FIELD),
    ("SuperNode", "backoff", NO_FIELD),
];

const UNUSED_BY_APPLIANCE: &[Unused] = &[
    ("Common", "health", "the agent calls the APIs and reads the socket and the log"),
    ("Common", "home", "it is a directory of the state disk, the same in every VM"),
    ("Common", "env", NO_VARIABLE),
    ("Common", "extra_args", NO_VARIABLE),
    ("SuperLink", "apps_tls", LOOPBACK),
    ("SuperLink", "apps_trust_machine", ONE_USER),
    ("SuperLink", "accounts", "our SuperLink requires accounts wherever others reach it"),
    ("SuperLink", "allowed_hosts", "the endpoint names the host"),
    ("SuperNode", "state", "it is the same in every VM"),
    ("SuperNode", "limits", "the size of the VM limits apps"),
];

const UNUSED_BY_KUBERNETES: &[Unused] = &[
    ("Common", "python", "pods have the Python of their image"),
    ("Common", "health", "probes always call the same port"),
    ("Common", "log_level", NO_FIELD),
    ("Common", "home", "the image has one"),
    ("Common", "search_path", "the image has one"),
    ("Common", "env", "pods have variables in the form of Kubernetes"),
    ("SuperLink", "models", "they are in the state directory"),
    ("SuperLink", "run_defaults", NO_FIELD),
    ("SuperNode", "max_retries", NO_FIELD),
    ("SuperNode", "max_wait_s", NO_FIELD),
    ("SuperNode", "backoff", NO_FIELD),
    ("SuperNode", "limits", "containers have limits"),
    ("SuperNode", "gpus", "containers have the GPUs that the device plugin gives them"),
    ("SuperNode", "gpus_may_be_missing", "a pod waits for its GPUs"),
];

impl User {
    pub const ALL: [User; 5] = [User::Flower, User::Trellis, User::Local, User::Appliance, User::Kubernetes];

    pub fn unused(self) -> &'static [Unused] {
        match self {
            User::Flower => UNUSED_BY_FLOWER,
            User::Trellis => UNUSED_BY_TRELLIS,
            User::Local => UNUSED_BY_LOCAL,
            User::Appliance => UNUSED_BY_APPLIANCE,
            User::Kubernetes => UNUSED_BY_KUBERNETES,
        }
    }
}

/// Returns fields that have neither an effect nor an entry, and fields that have both.
pub fn undeclared(user: User, description: &str, fields: &[&str], changed: &BTreeSet<&str>) -> Vec<String> {
    let listed = |field: &str| user.unused().iter().any(|(of, name, _)| *of == description && *name == field);
    let found = fields.iter().filter_map(|field| match (changed.contains(field), listed(field)) {
        (false, false) => Some(format!("{user:?}: {description}.{field} has no effect and is not listed as unused")),
        (true, true) => Some(format!("{user:?}: {description}.{field} is listed as unused and has an effect")),
        _ => None,
    });
    found.collect()
}
