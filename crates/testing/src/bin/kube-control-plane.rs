//! A control plane for suites that are not written in Rust: prints where its kubeconfig is, and ends with a
//! signal.

use std::process::ExitCode;

use trellis_testing::kube::{ControlPlane, Parts};

/// As the suites count what cannot be had here.
const CANNOT_BE_HAD: u8 = 75;

fn main() -> ExitCode {
    let Some(plane) = ControlPlane::start(Parts::WithScheduler) else { return ExitCode::from(CANNOT_BE_HAD) };
    println!("{}", plane.kubeconfig().display());
    // What a signal leaves behind, the control plane's watchdog ends.
    loop {
        std::thread::park();
    }
}
