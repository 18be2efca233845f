//! The first administrator's token from a file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use trellis_link::config::{Config, Limits};

use super::http::{header, send};
use super::peer::{TestLink, config};

fn settings(file: &Path) -> Config {
    Config { accounts: true, admin_token: Some(file.to_owned()), ..config(Limits::default()) }
}

fn put(file: &Path, token: &str, mode: u32) {
    let _ = fs::remove_file(file);
    fs::write(file, format!("{token}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns the answer to a call with this token.
async fn answered(link: &TestLink, token: &str, call: &str, body: &str) -> (u16, String) {
    let headers = [header("authorization", &format!("Bearer {token}")), header("content-type", "application/json")];
    let answer = send(link.addresses.http, "POST", &format!("/v1/trellis/{call}"), &headers, body.as_bytes()).await;
    (answer.status, answer.text().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_in_the_file_is_the_admins_after_each_start() {
    let directory = tempfile::tempdir().unwrap();
    let (state, file) = (directory.path().join("state"), directory.path().join("token"));
    let (first, second) = ("first-".repeat(6), "second".repeat(6));

    put(&file, &first, 0o600);
    let link = TestLink::start_on_disk(settings(&file), &state).await;
    assert_eq!(answered(&link, &first, "list-accounts", "{}").await.0, 200);
    assert_eq!(answered(&link, &second, "list-accounts", "{}").await.0, 401);
    assert!(!state.join("admin.token").exists(), "no generated token");
    link.stop().await;

    // The same token changes nothing; another token replaces it.
    let link = TestLink::start_on_disk(settings(&file), &state).await;
    assert_eq!(answered(&link, &first, "list-accounts", "{}").await.0, 200);
    link.stop().await;
    put(&file, &second, 0o400);
    let link = TestLink::start_on_disk(settings(&file), &state).await;
    assert_eq!(answered(&link, &second, "list-accounts", "{}").await.0, 200);
    assert_eq!(answered(&link, &first, "list-accounts", "{}").await.0, 401);
    link.stop().await;

    // A revoked token stays revoked.
    put(&file, &first, 0o600);
    let why = TestLink::try_start_on_disk(settings(&file), &state).await.err().unwrap().to_string();
    assert!(why.contains("was revoked") && !why.contains(&first), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_other_users_can_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    put(&file, &"x".repeat(40), 0o644);
    let why =
        TestLink::try_start_on_disk(settings(&file), &directory.path().join("state")).await.err().unwrap().to_string();
    assert!(why.contains("other users may access it (mode 0644)"), "{why}");
}
