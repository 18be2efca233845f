//! Table of failures in a virtual machine, with codes for programs and texts for users. The log, the attribute `FL_ERROR` and
//! a page of the documentation are derived from it. Pure.

use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use trellis_one::keys;

/// Maximum length of `FL_ERROR`. The log has the whole text.
const MAX_ATTRIBUTE_BYTES: usize = 900;

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

/// A row of the table.
#[derive(Debug)]
pub struct Entry {
    pub code: Code,
    pub word: &'static str,
    /// What users notice first.
    pub symptom: &'static str,
    pub cause: &'static str,
    pub check: &'static str,
    /// A retry cannot succeed, so the boot ends.
    pub is_final: bool,
}

pub const TABLE: &[Entry] = &[
    Entry {
        code: Code::ConfigValidationFailed,
        word: "config_validation_failed",
        symptom: "The VM runs and never becomes READY; nothing listens.",
        cause: "a variable of the context or of the assignment is invalid",
        check: "correct the variables in the message; `trellis appliance check` prints the effective values",
        is_final: true,
    },
    Entry {
        code: Code::AwaitsAssignment,
        word: "awaits_assignment",
        symptom: "The VM runs, but starts nothing.",
        cause: "a controller created the VM, and has not assigned a part to it yet",
        check: "check that the control plane runs and reaches OpenNebula (`trellis status`)",
        is_final: false,
    },
    Entry {
        code: Code::NoToken,
        word: "no_token",
        symptom: "Nothing is published, not even an error; the service stays DEPLOYING.",
        cause: "the VM template does not request a OneGate token, or the VM belongs to no service",
        check: "set TOKEN=YES in the CONTEXT of the VM template; a node elsewhere needs FL_SUPERLINK_ADDRESS instead",
        is_final: true,
    },
    Entry {
        code: Code::OnegateUnreachable,
        word: "onegate_unreachable",
        symptom: "READY is missing or old, TRELLIS_SEEN is old.",
        cause: "the OneGate server is down or returns errors, or the VM's network cannot reach it",
        check: "run in the VM: curl $ONEGATE_ENDPOINT; read the log of the OneGate server and its proxy",
        is_final: false,
    },
    Entry {
        code: Code::OnegateUnauthorised,
        word: "onegate_unauthorised",
        symptom: "READY is never set; the log contains 401 or 403.",
        cause: "the token belongs to another VM or to an earlier boot of this one, or its user lost rights",
        check: "inspect the VM's context in OpenNebula; reboot the VM to regenerate its context",
        is_final: true,
    },
    Entry {
        code: Code::DiscoveryTimeout,
        word: "discovery_timeout",
        symptom: "SuperNodes run and do not connect; the SuperLink is not READY either, or in another service.",
        cause: "no SuperLink of this service published FL_READY=YES with its endpoint in time",
        check: "read FL_ERROR of the SuperLink's VM; set FL_SUPERLINK_ADDRESS for a SuperLink elsewhere",
        is_final: false,
    },
    Entry {
        code: Code::VersionMismatch,
        word: "version_mismatch",
        symptom: "A SuperNode stops before it starts Flower.",
        cause: "the official programs of different releases are not compatible",
        check: "set one FLOWER_VERSION for the whole service, or use the runtime of Trellis, which serves all releases",
        is_final: true,
    },
    Entry {
        code: Code::TlsSetupFailed,
        word: "tls_setup_failed",
        symptom: "The SuperLink does not start although TLS is on.",
        cause: "the operator's certificates do not match, or the agent cannot write its own",
        check: "correct the problems in the message (chain, key, names and dates are checked), or remove the three variables",
        is_final: true,
    },
    Entry {
        code: Code::CaMissing,
        word: "ca_missing",
        symptom: "A SuperNode waits although the SuperLink is READY.",
        cause: "TLS is on, and the SuperLink has published no authority to trust",
        check: "set FL_SSL_CA_CERTFILE, or the same FL_TLS_ENABLED on both sides",
        is_final: false,
    },
    Entry {
        code: Code::CaInvalid,
        word: "ca_invalid",
        symptom: "A SuperNode does not connect; the log contains errors about certificates.",
        cause: "the published or configured authority is not a certificate",
        check: "FL_CA_CERT and FL_SSL_CA_CERTFILE are base64 of PEM; check the VM's attributes for edits",
        is_final: false,
    },
    Entry {
        code: Code::PreflightFailed,
        word: "preflight_failed",
        symptom: "Nothing is started.",
        cause: "a requirement of the role is missing: an address, a directory, a program",
        check: "correct the problem in the message; `trellis appliance status` prints the state",
        is_final: true,
    },
    Entry {
        code: Code::PortBusy,
        word: "port_busy",
        symptom: "The SuperLink does not start.",
        cause: "another program listens at its address",
        check: "find it with `ss -ltnp`, stop it, or configure another address",
        is_final: true,
    },
    Entry {
        code: Code::DiskFull,
        word: "disk_full",
        symptom: "Nothing is started, or runs fail while they are stored.",
        cause: "the programs need more free space",
        check: "give the VM a larger disk, or remove old models and logs",
        is_final: true,
    },
    Entry {
        code: Code::ClockSkew,
        word: "clock_skew",
        symptom: "TLS fails because certificates are not valid yet or have expired.",
        cause: "the clocks of this VM and of OneGate differ by minutes",
        check: "synchronise the clocks of the VM and of the host (systemd-timesyncd, chrony)",
        is_final: true,
    },
    Entry {
        code: Code::GpuMissing,
        word: "gpu_missing",
        symptom: "A SuperNode with FL_GPU_ENABLED=YES does not become READY.",
        cause: "the VM has no NVIDIA GPU, and FL_GPU_FALLBACK is NO",
        check: "run nvidia-smi in the VM; check PCI passthrough on the host with `trellis doctor`",
        is_final: true,
    },
    Entry {
        code: Code::StartFailed,
        word: "start_failed",
        symptom: "A program restarts repeatedly or cannot be started.",
        cause: "a program, an interpreter or an image is missing, or the program rejects its arguments",
        check: "read its log: journalctl -u 'trellis-*', or the output of `trellis appliance run`",
        is_final: true,
    },
    Entry {
        code: Code::JoinRefused,
        word: keys::JOIN_REFUSED,
        symptom: "A SuperNode runs and is not connected; the SuperLink requires enrolled nodes.",
        cause: "the SuperLink rejects the node's join token: another node used it, or the SuperLink lost its state",
        check: "a control plane issues a new token by itself; without one, create a token (`trellis node token`) and set FL_JOIN_TOKEN",
        is_final: false,
    },
    Entry {
        code: Code::HealthCheckTimeout,
        word: "health_check_timeout",
        symptom: "The programs run and READY stays NO.",
        cause: "the Fleet API does not answer, or the node is not connected to its SuperLink",
        check: "connect from a node's VM to the SuperLink's address and port; read both logs",
        is_final: false,
    },
];

impl Code {
    pub fn entry(self) -> &'static Entry {
        TABLE.iter().find(|entry| entry.code == self).expect("a test covers all codes")
    }

    pub fn word(self) -> &'static str {
        self.entry().word
    }
}

/// A failure of this VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Failure {
    pub code: Code,
    pub what: String,
}

impl Failure {
    pub fn new(code: Code, what: impl Into<String>) -> Failure {
        Failure { code, what: what.into() }
    }

    /// Value of `FL_ERROR`: one line of limited length.
    pub fn attribute(&self) -> String {
        let line: String = format!("{}: {}", self.code.word(), self.what);
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = (0..=MAX_ATTRIBUTE_BYTES.min(line.len())).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
        line[..end].chars().filter(|letter| !letter.is_control()).collect()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.code.entry();
        write!(f, "{}: {}\n  probably: {}\n  to do: {}", entry.word, self.what, entry.cause, entry.check)
    }
}

/// Page of the documentation, in the order of the table.
pub fn page() -> String {
    let mut page = String::from(
        "# When an appliance does not become ready\n\n\
         The agent in each VM reports a failure in the attribute `FL_ERROR` of the VM (`onevm show ID`), as a code and a\n\
         text, and in its log with advice. It erases `FL_ERROR` when the failure is over. In the VM,\n\
         `trellis appliance status` prints the same. This page is generated from the program's tables.\n\n\
         | symptom | code | probable cause | what to check |\n|---|---|---|---|\n",
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
    page.push_str(". After all other failures the boot retries until its limit.\n");
    page + &crate::outcomes::section()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_one_row_and_its_serialised_name() {
        for entry in TABLE {
            let stored = serde_json::to_value(entry.code).expect("JSON");
            assert_eq!(stored, entry.word);
            assert_eq!(TABLE.iter().filter(|other| other.code == entry.code).count(), 1);
        }
        // The last variant of the enum has a row, so all variants are counted.
        assert_eq!(TABLE.len(), Code::HealthCheckTimeout as usize + 1);
    }

    #[test]
    fn an_attribute_is_one_bounded_line() {
        let long = Failure::new(Code::PortBusy, format!("a\nb\t\"c\" {}", "ü".repeat(1000)));
        let said = long.attribute();
        assert!(said.starts_with("port_busy: a b \"c\" ü"), "{said}");
        assert!(said.len() <= MAX_ATTRIBUTE_BYTES && !said.contains('\n'));
    }

    #[test]
    fn the_page_is_generated_from_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/appliance-troubleshooting.md");
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(path, page()).expect("the page is written");
        }
        assert_eq!(std::fs::read_to_string(path).expect("the page"), page());
    }
}
