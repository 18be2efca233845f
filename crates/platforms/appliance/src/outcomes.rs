//! Table of boot outcomes, with the test that shows each. A page of the documentation is generated from it. Pure.

use std::fmt::Write as _;

use crate::failure::Code;

/// How the boot ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At once, with exit code 1.
    AtOnce,
    /// The boot retries until its limit, then exits with code 1.
    AtTheLimit,
    /// The boot retries until it succeeds.
    Mends,
    /// The boot is over; the programs in force continue.
    ServesOn,
}

#[derive(Debug)]
pub struct Outcome {
    pub case: &'static str,
    pub end: End,
    /// Code in FL_ERROR meanwhile.
    pub error: Option<Code>,
    /// READY in the end.
    pub ready: &'static str,
    /// A test in `crates/trellis/tests/appliance`.
    pub shown_by: &'static str,
}

const fn of(case: &'static str, end: End, error: Option<Code>, ready: &'static str, shown_by: &'static str) -> Outcome {
    Outcome { case, end, error, ready, shown_by }
}

#[rustfmt::skip]
pub const OUTCOMES: &[Outcome] = &[
    of("no token for OneGate", End::AtOnce, None, "not published; `no_token` is in the log", "without_a_token_nothing_is_pretended"),
    of("OneGate rejects the token (401)", End::AtOnce, None, "not published; `onegate_unauthorised` is in the log", "a_token_that_is_refused_is_the_wrong_one"),
    of("OneGate fails (500), or accepts no connection", End::AtTheLimit, None, "not published; `onegate_unreachable` is in the log", "a_onegate_that_fails_is_waited_for_until_the_limit"),
    of("OneGate starts late and is slow", End::Mends, None, "YES", "a_onegate_that_comes_late_and_slowly_is_enough"),
    of("OneGate returns an outdated view of the service", End::Mends, None, "YES", "appliances_find_each_other_and_train"),
    of("the context is invalid", End::AtOnce, Some(Code::ConfigValidationFailed), "NO", "all_that_is_wrong_with_the_context_is_said_at_once"),
    of("the context becomes invalid later", End::ServesOn, Some(Code::ConfigValidationFailed), "YES", "a_context_that_says_the_same_changes_nothing_and_another_is_followed"),
    of("the clock differs by minutes", End::AtOnce, Some(Code::ClockSkew), "NO", "clocks_that_are_apart_are_said_to_be"),
    of("the disk is full", End::AtOnce, Some(Code::DiskFull), "NO", "a_disk_that_is_full_is_said_to_be"),
    of("another program uses the port", End::AtOnce, Some(Code::PortBusy), "NO", "a_port_that_another_has_is_named"),
    of("a GPU is required, there is none, and FL_GPU_FALLBACK=NO", End::AtOnce, Some(Code::GpuMissing), "NO", "a_gpu_that_is_not_there_is_missed_only_where_it_must_be"),
    of("the framework of a node is not installed", End::AtOnce, Some(Code::PreflightFailed), "NO", "a_framework_that_is_not_there_is_missed"),
    of("a program is not installed", End::AtOnce, Some(Code::StartFailed), "NO", "a_program_that_is_not_there_is_said_not_to_be"),
    of("invalid certificates of the operator, while the SuperLink serves", End::ServesOn, Some(Code::TlsSetupFailed), "YES", "an_operators_certificates_are_served_whatever_their_keys"),
    of("there is no SuperLink, or it reports a failure", End::AtTheLimit, Some(Code::DiscoveryTimeout), "NO", "a_node_waits_for_its_superlink_and_says_what_for"),
    of("the SuperLink starts late", End::Mends, Some(Code::DiscoveryTimeout), "YES", "a_superlink_or_its_authority_that_comes_late_is_waited_for"),
    of("the SuperLink belongs to another service", End::AtTheLimit, Some(Code::DiscoveryTimeout), "NO", "a_superlink_of_another_service_is_not_ours"),
    of("the SuperLink has published no authority", End::AtTheLimit, Some(Code::CaMissing), "NO", "a_node_waits_for_its_superlink_and_says_what_for"),
    of("the SuperLink publishes its authority late", End::Mends, Some(Code::CaMissing), "YES", "a_superlink_or_its_authority_that_comes_late_is_waited_for"),
    of("the SuperLink publishes an invalid authority", End::AtTheLimit, Some(Code::CaInvalid), "NO", "a_node_waits_for_its_superlink_and_says_what_for"),
    of("official programs of different releases", End::AtOnce, Some(Code::VersionMismatch), "NO", "official_programs_of_two_releases_are_not_brought_together"),
    of("nothing answers at the SuperLink's address", End::AtTheLimit, Some(Code::HealthCheckTimeout), "NO", "a_node_that_cannot_connect_is_not_ready"),
    of("node authentication without a join token", End::AtTheLimit, Some(Code::HealthCheckTimeout), "NO", "a_node_joins_by_a_token_and_not_without"),
    of("the SuperLink's machine restarts while a node runs", End::Mends, None, "of the node: NO, then YES; its program keeps running", "a_superlink_that_goes_is_waited_for_where_it_was"),
    of("the SuperLink's program dies", End::Mends, None, "NO, then YES", "what_dies_is_not_ready_and_comes_back"),
    of("the SuperLink's program hangs", End::Mends, None, "NO until it does", "what_answers_nobody_any_more_is_not_ready"),
    of("the SuperLink has another address", End::Mends, None, "YES; the same authority, nodes reconnect", "another_address_is_another_certificate_of_the_same_authority"),
    of("the VM was switched off", End::Mends, None, "YES; the same authority", "a_vm_that_was_switched_off_is_the_same_again"),
    of("the ready script fails", End::Mends, None, "NO until it does", "a_script_of_the_operator_has_a_say_in_what_ready_means"),
];

/// Section of the documentation.
pub fn section() -> String {
    let end_s = crate::readiness::MAX_END_DELAY.as_secs();
    let silence_s = crate::readiness::MAX_HANG_DELAY.as_secs();
    let mut page = format!(
        "\n## Outcomes of a boot\n\n\
         `READY` is `YES` only while the program works: the Fleet API of a SuperLink answers a call, a node is\n\
         connected. It becomes `NO` before the agent stops a program, at most {end_s} s after a program ends, and at most\n\
         {silence_s} s after a program hangs, plus the latency of OneGate. A test covers each line.\n\n\
         | case | the boot | `FL_ERROR` | `READY` |\n|---|---|---|---|\n"
    );
    for Outcome { case, end, error, ready, .. } in OUTCOMES {
        let end = match end {
            End::AtOnce => "ends at once, exit code 1",
            End::AtTheLimit => "waits until its limit, exit code 1",
            End::Mends => "retries until it succeeds",
            End::ServesOn => "is over; the programs in force continue",
        };
        let error = error.map_or_else(|| "-".to_owned(), |code| format!("`{}`", code.word()));
        let _ = writeln!(page, "| {case} | {end} | {error} | {ready} |");
    }
    page
}
