//! Whether programs of two releases work together. Between a SuperLink and its nodes the calls are the same in all releases, and
//! moved as a whole to HTTP in 1.40; a difference is announced and not refused. Between apps and who starts them every release has
//! its own calls, and since 1.30 another release is refused.

use super::{APPS_COMPARE_RELEASES, FLEET_BY_HTTP, Program, Release, TRELLIS_KNOWS};

/// What is so, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skew {
    Works,
    Told(String, String),
    CannotWork(String, String),
}

/// A SuperLink and a SuperNode.
pub fn fleet(superlink: Program, supernode: Program) -> Skew {
    use Program::{Flower, Trellis};
    match (superlink, supernode) {
        (Trellis, Flower(other)) | (Flower(other), Trellis) => with_trellis(other),
        (Flower(link), Flower(node)) if link == node => Skew::Works,
        (Flower(link), Flower(node)) if (link < FLEET_BY_HTTP) == (node < FLEET_BY_HTTP) => Skew::Told(
            format!("nodes of Flower {node} with a SuperLink of Flower {link}"),
            "this works; the same release for both is what Flower is tested with".to_owned(),
        ),
        (Flower(link), Flower(node)) => {
            let (before, after) = if link < node { (link, node) } else { (node, link) };
            Skew::CannotWork(
                format!(
                    "nodes of Flower {node} cannot connect to a SuperLink of Flower {link}: Flower {before} speaks gRPC \
                     there, and {after} HTTP"
                ),
                format!(
                    "use releases below {FLEET_BY_HTTP} for both, or from {FLEET_BY_HTTP} on for both, or a SuperLink of \
                     Trellis, which serves all"
                ),
            )
        }
        _ => Skew::Works,
    }
}

/// A SuperLink or SuperNode, and the SuperExec beside it.
pub fn apps(host: Program, superexec: Program) -> Skew {
    use Program::{Flower, Trellis};
    match (host, superexec) {
        (Trellis, Flower(other)) => with_trellis(other),
        (Flower(host), Flower(superexec)) if host == superexec => Skew::Works,
        (Flower(host), Flower(superexec)) if same_calls(host, superexec) => Skew::Told(
            format!("a SuperExec of Flower {superexec} with a program of Flower {host}"),
            "this works; the same release for both is what Flower is tested with".to_owned(),
        ),
        (Flower(host), Flower(superexec)) => Skew::CannotWork(
            format!(
                "a SuperExec of Flower {superexec} cannot work with a program of Flower {host}: their calls differ"
            ),
            format!("use an image with Flower {host}"),
        ),
        _ => Skew::Works,
    }
}

fn with_trellis(other: Release) -> Skew {
    let (first, last) = TRELLIS_KNOWS;
    if (first..=last).contains(&other) {
        return Skew::Works;
    }
    Skew::Told(
        format!("Trellis was tried with Flower {first} to {last}, not with {other}"),
        format!("use a release from {first} to {last} if something does not work"),
    )
}

/// Releases below 1.30 in which apps call the same: 1.26 and 1.27, 1.28 and 1.29.
fn same_calls(a: Release, b: Release) -> bool {
    let both_before = a < APPS_COMPARE_RELEASES && b < APPS_COMPARE_RELEASES;
    both_before && a.minor >= 26 && b.minor >= 26 && a.minor / 2 == b.minor / 2
}
