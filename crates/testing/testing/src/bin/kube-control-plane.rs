//! A control plane for test suites in other languages: prints the path of its kubeconfig and runs until a signal.
//!
//! `kube-control-plane api-server` starts only etcd and the API server: no controller changes objects.
//! `kube-control-plane --FLAG…` starts all parts, with these flags for the controllers.

use std::process::ExitCode;

use trellis_testing::kube::{ControlPlane, Flags, Parts};

/// Exit status of the suites for missing prerequisites.
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
    // The watchdog cleans up after a signal.
    loop {
        std::thread::park();
    }
}
