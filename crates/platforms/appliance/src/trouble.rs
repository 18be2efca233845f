//! What can go wrong in a virtual machine, each with a code that programs know and words for people. One table: the log, the
//! attribute `FL_ERROR` and the page of the documentation are made of it. Pure.

use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trellis_one::keys;

/// Of what is told through OneGate; the whole text is in the log.
const LONGEST_ATTRIBUTE: usize = 900;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    ConfigValidationFailed,
    AwaitsAssignment,
    NoToken,
    OnegateUnreachable,
    OnegateUnauthorised,
    DiscoveryTimeout,
    VersionMismatch,
    TlsSetupFailed,
    CaMissing,
    CaInvalid,
    PreflightFailed,
    PortBusy,
    DiskFull,
    ClockSkew,
    GpuMissing,
    StartFailed,
    JoinRefused,
    HealthCheckTimeout,
}

/// A line of the table.
#[derive(Debug)]
pub struct Entry {
    pub code: Code,
    pub word: &'static str,
    /// What people see first.
    pub symptom: &'static str,
    pub cause: &'static str,
    pub check: &'static str,
    /// Waiting does not help: a boot that meets it is over.
    pub is_final: bool,
}

pub const TABLE: &[Entry] = &[
    Entry {
        code: Code::ConfigValidationFailed,
        word: "config_validation_failed",
        symptom: "The VM runs and never becomes READY; nothing listens.",
        cause: "a variable of the context, or of what the controller says, cannot be used",
        check: "correct the variables that are named, all at once; `trellis appliance check` says what would be used",
        is_final: true,
    },
    Entry {
        code: Code::AwaitsAssignment,
        word: "awaits_assignment",
        symptom: "The VM runs, and does nothing.",
        cause: "a controller made the VM, and has not said yet which part of the federation it is",
        check: "whether the control plane runs and reaches OpenNebula (`trellis status`)",
        is_final: false,
    },
    Entry {
        code: Code::NoToken,
        word: "no_token",
        symptom: "Nothing is published, not even an error; the service stays DEPLOYING.",
        cause: "the VM template does not ask for a OneGate token, or the VM is of no service",
        check: "set TOKEN=YES in the CONTEXT of the VM template; a node elsewhere needs FL_SUPERLINK_ADDRESS instead",
        is_final: true,
    },
    Entry {
        code: Code::OnegateUnreachable,
        word: "onegate_unreachable",
        symptom: "READY is missing or old, TRELLIS_SEEN is old.",
        cause: "the OneGate server is down, answers with errors, or the VM's network does not lead to it",
        check: "ask from the VM: curl $ONEGATE_ENDPOINT; look at the log of the OneGate server and its proxy",
        is_final: false,
    },
    Entry {
        code: Code::OnegateUnauthorised,
        word: "onegate_unauthorised",
        symptom: "READY is never set; the log speaks of 401 or 403.",
        cause: "the token is of another VM, or of an earlier life of this one, or its user has lost rights",
        check: "look at the VM's context in OpenNebula; reboot the VM so that its context is written anew",
        is_final: true,
    },
    Entry {
        code: Code::DiscoveryTimeout,
        word: "discovery_timeout",
        symptom: "SuperNodes run and do not connect; the SuperLink is not READY either, or in another service.",
        cause: "no SuperLink of this service said FL_READY=YES with its endpoint in time",
        check: "look at the SuperLink VM's FL_ERROR; a SuperLink elsewhere is named by FL_SUPERLINK_ADDRESS",
        is_final: false,
    },
    Entry {
        code: Code::VersionMismatch,
        word: "version_mismatch",
        symptom: "A SuperNode stops before it starts Flower.",
        cause: "the official programs of two releases do not understand each other",
        check: "set one FLOWER_VERSION for the whole service, or use the runtime of Trellis, which serves all of them",
        is_final: true,
    },
    Entry {
        code: Code::TlsSetupFailed,
        word: "tls_setup_failed",
        symptom: "The SuperLink does not start although TLS is on.",
        cause: "the certificates that were given do not fit together, or our own cannot be written",
        check: "correct what is named: chain, key, names and dates are all checked; or leave the three variables out",
        is_final: true,
    },
    Entry {
        code: Code::CaMissing,
        word: "ca_missing",
        symptom: "A SuperNode waits although the SuperLink is READY.",
        cause: "TLS is on, and the SuperLink has published no authority to trust",
        check: "give FL_SSL_CA_CERTFILE, or the same FL_TLS_ENABLED on both sides",
        is_final: false,
    },
    Entry {
        code: Code::CaInvalid,
        word: "ca_invalid",
        symptom: "A SuperNode does not connect; the log speaks of certificates.",
        cause: "what was published or given as authority is no certificate",
        check: "FL_CA_CERT and FL_SSL_CA_CERTFILE are base64 of PEM; somebody may have edited the VM's attributes",
        is_final: false,
    },
    Entry {
        code: Code::PreflightFailed,
        word: "preflight_failed",
        symptom: "Nothing is started.",
        cause: "something that the role needs is not there: an address, a directory, a program",
        check: "correct what is named; `trellis appliance status` shows what was found",
        is_final: true,
    },
    Entry {
        code: Code::PortBusy,
        word: "port_busy",
        symptom: "The SuperLink does not start.",
        cause: "another program listens at an address that it shall have",
        check: "find it with `ss -ltnp`, stop it, or give another address",
        is_final: true,
    },
    Entry {
        code: Code::DiskFull,
        word: "disk_full",
        symptom: "Nothing is started, or runs fail while they are stored.",
        cause: "less space is left than the programs need to work",
        check: "give the VM a larger disk, or remove old models and logs",
        is_final: true,
    },
    Entry {
        code: Code::ClockSkew,
        word: "clock_skew",
        symptom: "TLS fails with certificates that are not valid yet, or no more.",
        cause: "the clocks of this VM and of OneGate differ by minutes",
        check: "let the VM's clock be set (systemd-timesyncd, chrony), and that of the host",
        is_final: true,
    },
    Entry {
        code: Code::GpuMissing,
        word: "gpu_missing",
        symptom: "A SuperNode with FL_GPU_ENABLED=YES does not become READY.",
        cause: "no NVIDIA GPU is seen in the VM, and FL_GPU_FALLBACK is NO",
        check: "run nvidia-smi in the VM; look at PCI passthrough on the host: `trellis doctor`",
        is_final: true,
    },
    Entry {
        code: Code::StartFailed,
        word: "start_failed",
        symptom: "A program is started again and again, or cannot be started.",
        cause: "a program, an interpreter or an image is missing, or it refuses its arguments",
        check: "read its log: journalctl -u 'trellis-*', or what `trellis appliance run` prints",
        is_final: true,
    },
    Entry {
        code: Code::JoinRefused,
        word: keys::JOIN_REFUSED,
        symptom: "A SuperNode runs and is not connected; only known nodes take part.",
        cause: "the SuperLink does not know the node's join token: it was used by another node, or the SuperLink lost its state",
        check: "a control plane gives the node a new token by itself; without one, make a token (`trellis node token`) and set FL_JOIN_TOKEN",
        is_final: false,
    },
    Entry {
        code: Code::HealthCheckTimeout,
        word: "health_check_timeout",
        symptom: "The programs run and READY stays NO.",
        cause: "the Fleet API does not answer, or the node is not connected to its SuperLink",
        check: "from a node's VM, try the SuperLink's address and port; read both logs",
        is_final: false,
    },
];

impl Code {
    pub fn entry(self) -> &'static Entry {
        TABLE.iter().find(|entry| entry.code == self).expect("a test walks all codes")
    }

    pub fn word(self) -> &'static str {
        self.entry().word
    }
}

/// One thing that is wrong, here and now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Trouble {
    pub code: Code,
    pub what: String,
}

impl Trouble {
    pub fn new(code: Code, what: impl Into<String>) -> Trouble {
        Trouble { code, what: what.into() }
    }

    /// As `FL_ERROR` says it: one line, bounded.
    pub fn attribute(&self) -> String {
        let line: String = format!("{}: {}", self.code.word(), self.what);
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = (0..=LONGEST_ATTRIBUTE.min(line.len())).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
        line[..end].chars().filter(|letter| !letter.is_control()).collect()
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.code.entry();
        write!(f, "{}: {}\n  probably: {}\n  to do: {}", entry.word, self.what, entry.cause, entry.check)
    }
}

/// The page about them, in the order of the table.
pub fn page() -> String {
    let mut page = String::from(
        "# When an appliance does not become ready\n\n\
         The agent in each VM says what is wrong in the attribute `FL_ERROR` of the VM (`onevm show ID`), as a code and a\n\
         text, and in its log with what to do about it. `FL_ERROR` is erased when all is well. In the VM,\n\
         `trellis appliance status` says the same. This page is made of the program's own tables.\n\n\
         | what is seen | code | probable cause | what to check |\n|---|---|---|---|\n",
    );
    for entry in TABLE {
        let Entry { word, symptom, cause, check, .. } = entry;
        let check = check.replace('|', "\\|");
        let _ = writeln!(page, "| {symptom} | `{word}` | {cause} | {check} |");
    }
    page.push_str("\nA boot ends at once with:");
    let mut between = " ";
    for entry in TABLE.iter().filter(|entry| entry.is_final) {
        let _ = write!(page, "{between}`{}`", entry.word);
        between = ", ";
    }
    page.push_str(". Everything else is waited for, until the limit of the boot.\n");
    page + &crate::outcomes::section()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_one_line_and_its_word_is_how_it_is_stored() {
        for entry in TABLE {
            let stored = serde_json::to_value(entry.code).expect("a code has a JSON form");
            assert_eq!(stored, entry.word);
            assert_eq!(TABLE.iter().filter(|other| other.code == entry.code).count(), 1);
        }
        // The last one of the enum is in the table, so all before it are counted.
        assert_eq!(TABLE.len(), Code::HealthCheckTimeout as usize + 1);
    }

    #[test]
    fn an_attribute_is_one_bounded_line() {
        let long = Trouble::new(Code::PortBusy, format!("a\nb\t\"c\" {}", "ü".repeat(1000)));
        let said = long.attribute();
        assert!(said.starts_with("port_busy: a b \"c\" ü"), "{said}");
        assert!(said.len() <= LONGEST_ATTRIBUTE && !said.contains('\n'));
    }

    #[test]
    fn the_page_is_as_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/appliance-troubleshooting.md");
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(path, page()).expect("the page can be written");
        }
        assert_eq!(std::fs::read_to_string(path).expect("the page is there"), page());
    }
}
