//! Programs of this machine that are run for a moment.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// What it wrote; an error says which program failed and what it said.
pub(super) async fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    run_with_input(program, arguments, "").await
}

pub(super) async fn run_with_input(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let told = |why: &dyn std::fmt::Display| format!("{program} {}: {why}", arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|why| told(&why))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that ends early is told about by its status.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(|why| told(&why))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(told(&String::from_utf8_lossy(&output.stderr).trim()))
}
