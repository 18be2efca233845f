//! Whose programs run, and what those of Flower cannot do.

use trellis_flower::Isolation;

use super::Reader;
use crate::settings::{FlowerBy, Role, Runtime};

/// What only our own programs know, and what it would mean to leave it out.
const OURS_ALONE: [(&str, &str); 4] = [
    ("FL_METRICS_ENABLED", "Flower's SuperLink serves no metrics"),
    ("FL_NODE_AUTH", "Flower's SuperLink knows no join tokens"),
    ("FL_JOIN_TOKEN", "Flower's SuperNode knows no join tokens"),
    ("FL_CLIENT_APP", "Flower's SuperNode has no apps of its own"),
];
/// They are known to Flower by fixed values, so nothing breaks.
const NOT_FLOWERS: [&str; 4] =
    ["FL_GRPC_KEEPALIVE_TIME", "FL_GRPC_KEEPALIVE_TIMEOUT", "FL_ADMIN_TOKEN", "FL_CHECKPOINT_PATH"];

pub fn read(reader: &mut Reader) -> Runtime {
    let by = match reader.choice("FL_FLOWER_BY") {
        "docker" => FlowerBy::Docker,
        "podman" => FlowerBy::Podman,
        _ => FlowerBy::Packages,
    };
    if reader.role == Role::Gateway || reader.choice("FL_RUNTIME") == "trellis" {
        if reader.is_said("FL_FLOWER_BY") {
            reader.warn(
                "FL_FLOWER_BY",
                "our own programs run, and they come from nowhere else",
                "set FL_RUNTIME=flower too",
            );
        }
        return Runtime::Trellis;
    }
    for (name, what) in OURS_ALONE {
        let wanted = reader.is_said(name) && !reader.says_no(name);
        if wanted {
            reader.refuse(name, what, "leave it out, or set FL_RUNTIME=trellis");
        }
    }
    for name in NOT_FLOWERS {
        if reader.is_said(name) {
            reader.warn(
                name,
                "Flower's programs cannot be told, so it does nothing",
                "leave it out, or set FL_RUNTIME=trellis",
            );
        }
    }
    Runtime::Flower { by }
}

pub fn isolation(reader: &mut Reader) -> Isolation {
    Isolation::parse(reader.choice("FL_ISOLATION")).unwrap_or(Isolation::Subprocess)
}
