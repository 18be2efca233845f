//! A control plane for suites that are not written in Rust: prints where its kubeconfig is, and ends with a signal.
//!
//! `kube-control-plane api-server` has nothing beside the API server: objects stay as they are written.
//! `kube-control-plane --FLAG…` has all parts, and the controllers these flags of theirs.

use std::process::ExitCode;

use trellis_testing::kube::{ControlPlane, Flags, Parts};

/// As the suites count what cannot be had here.
const CANNOT_BE_HAD: u8 = 75;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = given.iter().map(String::as_str).collect();
    let (parts, controllers) = match words.as_slice() {
        ["api-server"] => (Parts::ApiServer, [].as_slice()),
        flags if flags.iter().all(|flag| flag.starts_with("--")) => (Parts::WithScheduler, flags),
        other => {
            eprintln!("kube-control-plane: {other:?} is not known; say api-server, or flags of the controllers");
            return ExitCode::from(2);
        }
    };
    let flags = Flags { controllers, ..Flags::default() };
    let Some(plane) = ControlPlane::start_with(parts, flags) else { return ExitCode::from(CANNOT_BE_HAD) };
    println!("{}", plane.kubeconfig().display());
    // What a signal leaves behind, the control plane's watchdog ends.
    loop {
        std::thread::park();
    }
}
