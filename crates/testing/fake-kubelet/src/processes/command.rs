//! Runs programs of this machine to completion.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Returns the output; an error names the program and its message.
pub(super) async fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    run_with_input(program, arguments, "").await
}

pub(super) async fn run_with_input(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{program} {}: {why}", arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|why| failed(&why))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early is reported by its status.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(|why| failed(&why))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(&String::from_utf8_lossy(&output.stderr).trim()))
}
