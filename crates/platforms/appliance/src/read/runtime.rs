//! The runtime, and variables that Flower's programs do not support.

use trellis_flower::Isolation;

use super::Reader;
use crate::settings::{FlowerBy, Role, Runtime};

/// Variables of our programs only, and what Flower's programs do instead.
const UNSUPPORTED_BY_FLOWER: [(&str, &str); 4] = [
    ("FL_METRICS_ENABLED", "Flower's SuperLink serves no metrics"),
    ("FL_NODE_AUTH", "Flower's SuperLink does not support join tokens"),
    ("FL_JOIN_TOKEN", "Flower's SuperNode does not support join tokens"),
    ("FL_CLIENT_APP", "Flower's SuperNode has no built-in apps"),
];
/// Flower's programs use fixed values for these, so a warning is sufficient.
const IGNORED_BY_FLOWER: [&str; 4] =
    ["FL_GRPC_KEEPALIVE_TIME", "FL_GRPC_KEEPALIVE_TIMEOUT", "FL_ADMIN_TOKEN", "FL_CHECKPOINT_PATH"];

pub fn read(reader: &mut Reader) -> Runtime {
    let by = match reader.choice("FL_FLOWER_BY") {
        "docker" => FlowerBy::Docker,
        "podman" => FlowerBy::Podman,
        _ => FlowerBy::Packages,
    };
    if reader.role == Role::Gateway || reader.choice("FL_RUNTIME") == "trellis" {
        if reader.is_set("FL_FLOWER_BY") {
            reader.warn(
                "FL_FLOWER_BY",
                "FL_RUNTIME=trellis uses the programs of Trellis only",
                "set FL_RUNTIME=flower too",
            );
        }
        return Runtime::Trellis;
    }
    for (name, what) in UNSUPPORTED_BY_FLOWER {
        let wanted = reader.is_set(name) && !reader.is_off(name);
        if wanted {
            reader.reject(name, what, "leave it out, or set FL_RUNTIME=trellis");
        }
    }
    for name in IGNORED_BY_FLOWER {
        if reader.is_set(name) {
            reader.warn(
                name,
                "Flower's programs do not support it, so it is ignored",
                "leave it out, or set FL_RUNTIME=trellis",
            );
        }
    }
    Runtime::Flower { by }
}

pub fn isolation(reader: &mut Reader) -> Isolation {
    Isolation::parse(reader.choice("FL_ISOLATION")).unwrap_or(Isolation::Subprocess)
}
