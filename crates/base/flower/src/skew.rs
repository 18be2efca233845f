//! Which programs of two releases work together. The calls between a SuperLink and its nodes are equal in all releases and moved
//! to HTTP as a whole in 1.40; a difference is announced and not refused. App-side calls differ by release, and are refused
//! since 1.30 unless the releases are equal. `tests/interop/test_skew.py` runs the official pairs.

use crate::changes::{APPS_COMPARE_RELEASES, FLEET_BY_HTTP};
use crate::{Program, Release};

/// The first series of a pair with the same calls for apps: 1.26 and 1.27, 1.28 and 1.29.
const FIRST_PAIR: Release = Release::of(26);

/// Whether two programs work together, with the problem and the advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skew {
    Works,
    /// Works, but users should know.
    Differs(String, String),
    CannotWork(String, String),
}

/// A SuperLink and a SuperNode.
pub fn fleet(superlink: Program, supernode: Program) -> Skew {
    use Program::{Flower, Trellis};
    match (superlink, supernode) {
        (Trellis, Flower(other)) | (Flower(other), Trellis) => with_trellis(other),
        (Flower(link), Flower(node)) if link.minor == node.minor => Skew::Works,
        (Flower(link), Flower(node)) if (link < FLEET_BY_HTTP) == (node < FLEET_BY_HTTP) => Skew::Differs(
            format!("nodes of Flower {} with a SuperLink of Flower {}", node.series(), link.series()),
            "this works; the same release for both is what Flower is tested with".to_owned(),
        ),
        (Flower(link), Flower(node)) => {
            let (before, after) = (link.min(node).series(), link.max(node).series());
            let (link, node, limit) = (link.series(), node.series(), FLEET_BY_HTTP.series());
            Skew::CannotWork(
                format!(
                    "nodes of Flower {node} cannot connect to a SuperLink of Flower {link}: Flower {before} speaks gRPC \
                     there, and {after} HTTP"
                ),
                format!(
                    "use releases below {limit} for both, or from {limit} on for both, or a SuperLink of Trellis, which \
                     serves all"
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
        (Flower(host), Flower(superexec)) if host.minor == superexec.minor => Skew::Works,
        (Flower(host), Flower(superexec)) if have_same_calls(host, superexec) => Skew::Differs(
            format!("a SuperExec of Flower {} with a program of Flower {}", superexec.series(), host.series()),
            "this works; the same release for both is what Flower is tested with".to_owned(),
        ),
        (Flower(host), Flower(superexec)) => {
            let (host, superexec) = (host.series(), superexec.series());
            Skew::CannotWork(
                format!(
                    "a SuperExec of Flower {superexec} cannot work with a program of Flower {host}: their calls differ"
                ),
                format!("use an image with Flower {host}"),
            )
        }
        _ => Skew::Works,
    }
}

fn with_trellis(other: Release) -> Skew {
    if other.is_supported() {
        return Skew::Works;
    }
    let (first, last) = (Release::OLDEST.series(), Release::NEWEST.series());
    Skew::Differs(
        format!("Trellis is tested with Flower {first} to {last}, not with {}", other.series()),
        format!("use a release from {first} to {last} if something does not work"),
    )
}

fn have_same_calls(a: Release, b: Release) -> bool {
    let compared = |release: Release| (FIRST_PAIR..APPS_COMPARE_RELEASES).contains(&release);
    compared(a) && compared(b) && a.minor / 2 == b.minor / 2
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, PartialEq)]
    enum Word {
        Works,
        Differs,
        CannotWork,
    }

    fn word(skew: &Skew) -> Word {
        match skew {
            Skew::Works => Word::Works,
            Skew::Differs(..) => Word::Differs,
            Skew::CannotWork(..) => Word::CannotWork,
        }
    }

    fn flower(minor: u16) -> Program {
        Program::Flower(Release::of(minor))
    }

    /// `UPDATE_GOLDENS=1` writes the file.
    #[test]
    fn the_interop_suite_runs_the_same_pairs() {
        let minors = [25, 29, 30, 32, 35, 36, 39, 40, 42];
        let said = |link, node| match word(&fleet(flower(link), flower(node))) {
            Word::Works => "works",
            Word::Differs => "differs",
            Word::CannotWork => "cannot work",
        };
        let name = |minor: u16| Release::of(minor).series();
        let row = |link| minors.iter().map(move |node| (name(*node), said(link, *node))).collect::<BTreeMap<_, _>>();
        let table: BTreeMap<_, _> = minors.iter().map(|link| (name(*link), row(*link))).collect();
        let text = serde_json::to_string_pretty(&table).expect("plain data") + "\n";
        crate::golden("skew.json", &text);
    }

    #[test]
    fn a_superlink_and_a_supernode() {
        for (link, node, expected) in [
            (flower(25), flower(25), Word::Works),
            (flower(42), flower(25), Word::CannotWork),
            (flower(25), flower(42), Word::CannotWork),
            (flower(25), flower(39), Word::Differs),
            (flower(32), flower(35), Word::Differs),
            (flower(39), flower(25), Word::Differs),
            (flower(39), flower(42), Word::CannotWork),
            (flower(42), flower(41), Word::Differs),
            (Program::Flower(Release { minor: 32, patch: 1 }), flower(32), Word::Works),
            (Program::Trellis, flower(25), Word::Works),
            (Program::Trellis, flower(42), Word::Works),
            (flower(40), Program::Trellis, Word::Works),
            (Program::Trellis, flower(24), Word::Differs),
            (Program::Trellis, flower(43), Word::Differs),
            (Program::Trellis, Program::Trellis, Word::Works),
            (Program::Unknown, flower(42), Word::Works),
        ] {
            assert_eq!(word(&fleet(link, node)), expected, "{link} with {node}");
        }
    }

    #[test]
    fn a_program_and_its_superexec() {
        for (host, superexec, expected) in [
            (flower(25), flower(25), Word::Works),
            (flower(42), flower(41), Word::CannotWork),
            (flower(42), flower(25), Word::CannotWork),
            (flower(25), flower(26), Word::CannotWork),
            (flower(26), flower(27), Word::Differs),
            (flower(27), flower(28), Word::CannotWork),
            (flower(28), flower(29), Word::Differs),
            (flower(29), flower(30), Word::CannotWork),
            (flower(30), flower(31), Word::CannotWork),
            (Program::Trellis, flower(25), Word::Works),
            (Program::Trellis, flower(42), Word::Works),
            (Program::Unknown, flower(42), Word::Works),
        ] {
            assert_eq!(word(&apps(host, superexec)), expected, "{host} with SuperExec {superexec}");
        }
    }
}
