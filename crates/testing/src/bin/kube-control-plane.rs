//! A control plane for suites that are not written in Rust: prints where its kubeconfig is, and ends with a
//! signal. `kube-control-plane api-server` has nothing beside the API server: objects stay as they are written.

use std::process::ExitCode;

use trellis_testing::kube::{ControlPlane, Parts};

/// As the suites count what cannot be had here.
const CANNOT_BE_HAD: u8 = 75;

fn main() -> ExitCode {
    let parts = match std::env::args().nth(1).as_deref() {
        None => Parts::WithScheduler,
        Some("api-server") => Parts::ApiServer,
        Some(other) => {
            eprintln!("kube-control-plane: {other:?} is not known; say api-server, or nothing for all parts");
            return ExitCode::from(2);
        }
    };
    let Some(plane) = ControlPlane::start(parts) else { return ExitCode::from(CANNOT_BE_HAD) };
    println!("{}", plane.kubeconfig().display());
    // What a signal leaves behind, the control plane's watchdog ends.
    loop {
        std::thread::park();
    }
}
