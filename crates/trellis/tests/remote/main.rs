//! Commands that call a SuperLink, from a shell: requests, output, exit codes.

mod server;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use server::Server;
use tempfile::TempDir;

fn trellis(home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.env_clear().env("HOME", home.path()).current_dir(home.path()).stdin(Stdio::null()).args(arguments);
    command
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Calls the fake server with the token `s3cret`.
fn call(home: &TempDir, server: &Server, arguments: &[&str]) -> Output {
    let mut command = trellis(home, arguments);
    command.args(["--superlink", &server.address, "--insecure"]).env("TRELLIS_TOKEN", "s3cret");
    command.output().expect("the binary runs")
}

fn good(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn nodes() -> Value {
    let node = |id: &str, name: &str, status: &str, client: &str| {
        json!({"id": id, "name": name, "location": "ward 7", "status": status, "client": client, "owner": "ada",
            "registered_at": 900.5, "last_activated_at": 940.0, "online_until": 980.0, "key_fingerprint": "ab12", "draining": false,
            "asks_for_shard": false})
    };
    json!({"now": 1000.0, "nodes": [
        node("17446744073709551615", "edge-1", "online", "http 1.42.0"),
        node("5", "\u{1b}]0;owned", "offline", "grpc"),
        node("6", "", "unregistered", "grpc 1.39.0"),
    ]})
}

#[test]
fn nodes_are_a_table_for_people() {
    let (home, server) = (home(), Server::answering(&[("list-nodes", 200, nodes())]));
    let expected = "\
ID                    NAME       STATUS   CLIENT       OWNER  SINCE
17446744073709551615  edge-1     online   http 1.42.0  ada    1m
5                     \u{fffd}]0;owned  offline  grpc         ada    20s
";
    assert_eq!(good(&call(&home, &server, &["nodes"])), expected);
    let all = call(&home, &server, &["nodes", "--all"]);
    assert!(
        good(&all).ends_with("\n6                     -          unregistered  grpc 1.39.0  ada    -\n"),
        "{all:?}"
    );
    assert_eq!(server.asked()[0].body, json!({}));
}

#[test]
fn nodes_are_json_for_programs() {
    let (home, server) = (home(), Server::answering(&[("list-nodes", 200, nodes())]));
    let output = call(&home, &server, &["nodes", "-o", "json", "--all"]);
    let printed: Value = serde_json::from_str(good(&output)).expect("JSON");
    assert_eq!(printed, nodes());
}

#[test]
fn an_empty_federation_is_no_mistake() {
    let (home, server) = (home(), Server::answering(&[("list-nodes", 200, json!({"now": 1.0, "nodes": []}))]));
    let output = call(&home, &server, &["nodes"]);
    assert_eq!((good(&output), text(&output.stderr)), ("", "No nodes yet.\n"));
}

#[test]
fn each_command_asks_what_it_says() {
    let done = || json!({});
    let new = || json!({"id": "7", "token": "t0ken", "expires_at": 3600.0});
    let server = Server::answering(&[
        ("revoke-node", 200, done()),
        ("create-join-token", 200, new()),
        ("create-account", 200, json!({"id": "2", "name": "ada", "role": "runner", "token": "t0ken"})),
        ("set-role", 200, done()),
        ("disable-account", 200, done()),
        ("enable-account", 200, done()),
        ("create-token", 200, new()),
        ("who-am-i", 200, json!({"id": "2", "name": "ada", "role": "runner"})),
        ("revoke-token", 200, done()),
        ("approve-login", 200, done()),
    ]);
    let home = home();
    for (arguments, calls, printed) in [
        (vec!["node", "revoke", "17"], vec![("revoke-node", json!({"id": "17"}))], "node 17 was revoked\n"),
        (vec!["node", "token"], vec![("create-join-token", json!({"ttl_s": 3600, "label": ""}))], "t0ken\n"),
        (
            vec!["node", "token", "--ttl", "2d", "--label", "edge"],
            vec![("create-join-token", json!({"ttl_s": 172800, "label": "edge"}))],
            "t0ken\n",
        ),
        (
            vec!["account", "add", "ada", "--role", "runner"],
            vec![("create-account", json!({"name": "ada", "role": "runner"}))],
            "t0ken\n",
        ),
        (
            vec!["account", "role", "ada", "admin"],
            vec![("set-role", json!({"name": "ada", "role": "admin"}))],
            "ada has the role admin\n",
        ),
        (vec!["account", "disable", "ada"], vec![("disable-account", json!({"name": "ada"}))], "ada is disabled\n"),
        (vec!["account", "enable", "ada"], vec![("enable-account", json!({"name": "ada"}))], "ada is enabled\n"),
        (
            vec!["token", "add", "bob", "--ttl", "90m"],
            vec![("create-token", json!({"account": "bob", "label": "", "ttl_s": 5400}))],
            "t0ken\n",
        ),
        (
            vec!["token", "add", "--label", "ci"],
            vec![("who-am-i", json!({})), ("create-token", json!({"account": "ada", "label": "ci"}))],
            "t0ken\n",
        ),
        (vec!["token", "revoke", "7"], vec![("revoke-token", json!({"id": "7"}))], "token 7 is revoked\n"),
        (vec!["whoami"], vec![("who-am-i", json!({}))], "ada (runner)\n"),
        (
            vec!["login", "approve", "3F9A1C07BE"],
            vec![("who-am-i", json!({})), ("approve-login", json!({"code": "3F9A1C07BE"}))],
            "the login continues as ada\n",
        ),
    ] {
        let before = server.asked().len();
        let output = call(&home, &server, &arguments);
        assert_eq!(good(&output), printed, "{arguments:?}");
        let asked = server.asked().split_off(before);
        assert!(asked.iter().all(|asked| asked.bearer.as_deref() == Some("s3cret")), "{asked:?}");
        let asked: Vec<_> = asked.iter().map(|asked| (asked.call.as_str(), asked.body.clone())).collect();
        assert_eq!(asked, calls, "{arguments:?}");
    }
}

#[test]
fn accounts_and_tokens_are_listed() {
    let accounts = json!({"accounts": [
        {"id": "1", "name": "admin", "role": "admin", "state": "active", "created_at": 0.0},
        {"id": "2", "name": "ada", "role": "runner", "state": "disabled", "created_at": 60.0},
    ]});
    let tokens = json!({"tokens": [
        {"id": "7", "account": "ada", "purpose": "access", "label": "ci", "created_at": 0.0, "expires_at": 86400.0,
            "state": "fresh"},
        {"id": "8", "account": "", "purpose": "join", "label": "", "created_at": 0.0, "state": "used"},
    ]});
    let server = Server::answering(&[("list-accounts", 200, accounts.clone()), ("list-tokens", 200, tokens.clone())]);
    let home = home();
    let expected = "\
NAME   ROLE    STATE     CREATED               ID
admin  admin   active    1970-01-01 00:00:00Z  1
ada    runner  disabled  1970-01-01 00:01:00Z  2
";
    assert_eq!(good(&call(&home, &server, &["account", "ls"])), expected);
    let expected = "\
ID  ACCOUNT  PURPOSE  LABEL  STATE  CREATED               EXPIRES
7   ada      access   ci     fresh  1970-01-01 00:00:00Z  1970-01-02 00:00:00Z
";
    assert_eq!(good(&call(&home, &server, &["token", "ls"])), expected);
    let all = call(&home, &server, &["token", "ls", "--all"]);
    assert!(good(&all).ends_with("8   -        join     -      used   1970-01-01 00:00:00Z  never\n"), "{all:?}");
    for (command, expected) in [(["account", "ls", "-o", "json"], &accounts), (["token", "ls", "-o", "json"], &tokens)]
    {
        let printed: Value = serde_json::from_str(good(&call(&home, &server, &command))).expect("JSON");
        let key = if command[0] == "account" { "accounts" } else { "tokens" };
        assert_eq!(printed[key][0], expected[key][0]);
    }
}

#[test]
fn a_new_token_is_kept_where_only_its_owner_reads() {
    let new = json!({"id": "7", "token": "t0ken"});
    let server = Server::answering(&[("create-token", 200, new)]);
    let home = home();
    let output = call(&home, &server, &["token", "add", "ada", "--save", "ada.token"]);
    assert_eq!(good(&output), "");
    let path = home.path().join("ada.token");
    assert_eq!(fs::read_to_string(&path).expect("the token"), "t0ken\n");
    assert_eq!(fs::metadata(&path).expect("metadata").permissions().mode() & 0o777, 0o600);

    let output = call(&home, &server, &["token", "add", "ada", "--save", "j.token", "-o", "json"]);
    let printed: Value = serde_json::from_str(good(&output)).expect("JSON");
    assert_eq!(printed, json!({"id": "7", "token_file": "j.token"}));
    let output = call(&home, &server, &["token", "add", "ada", "-o", "json"]);
    let printed: Value = serde_json::from_str(good(&output)).expect("JSON");
    assert_eq!(printed, json!({"id": "7", "token": "t0ken"}));

    let asked = server.asked().len();
    let again = call(&home, &server, &["token", "add", "ada", "--save", "ada.token"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("--save: ada.token cannot be created"), "{}", text(&again.stderr));
    assert_eq!(server.asked().len(), asked, "a token was made that nobody could have kept");

    let refusing = Server::answering(&[("create-token", 403, json!({"detail": "no"}))]);
    let refused = call(&home, &refusing, &["token", "add", "ada", "--save", "other.token"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(!home.path().join("other.token").exists());
}

#[test]
fn tokens_come_from_a_file_from_stdin_or_from_the_environment() {
    let server = Server::answering(&[("who-am-i", 200, json!({"id": "2", "name": "ada", "role": "viewer"}))]);
    let home = home();
    fs::write(home.path().join("a.token"), "from-a-file\n").expect("a file");
    let run = |more: &[&str], variables: &[(&str, &str)], stdin: &str| {
        let mut command = trellis(&home, &["whoami", "--superlink", &server.address, "--insecure"]);
        command.args(more).envs(variables.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the binary starts");
        // A closed pipe is not an error.
        let _ = child.stdin.take().expect("stdin").write_all(stdin.as_bytes());
        assert!(child.wait().expect("exit").success());
        server.asked().pop().expect("a call").bearer
    };
    let variable = ("TRELLIS_TOKEN", "from-a-variable");
    let file = ("TRELLIS_TOKEN_FILE", "a.token");
    let expected = |token: &str| Some(token.to_owned());
    assert_eq!(run(&[], &[], ""), None);
    assert_eq!(run(&[], &[variable], ""), expected("from-a-variable"));
    assert_eq!(run(&[], &[("TRELLIS_TOKEN", "")], ""), None);
    assert_eq!(run(&[], &[file, variable], ""), expected("from-a-file"));
    assert_eq!(run(&["--token-file", "-"], &[file, variable], "from-stdin\n"), expected("from-stdin"));
}

#[test]
fn what_was_refused_is_told_and_exits_with_1() {
    for (status, advice) in [(401, "--token-file"), (403, "trellis whoami"), (412, "")] {
        let server = Server::answering(&[("revoke-node", status, json!({"detail": "not today\u{1b}[1m"}))]);
        let output = call(&home(), &server, &["node", "revoke", "17"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
        let told = text(&output.stderr);
        let expected = format!("trellis node revoke: {} refused revoke-node: not today\u{fffd}[1m\n", server.address);
        assert!(told.starts_with(&expected), "{told}");
        assert!(told.contains(advice), "{told}");
    }
}

#[test]
fn a_superlink_that_is_not_there_is_told_and_exits_with_1() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("address").to_string();
    let output = trellis(&home(), &["nodes", "--superlink", &free]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.starts_with(&format!("trellis nodes: no connection to {free}: Connection refused")), "{told}");
    assert!(told.contains("to do: is the SuperLink running"), "{told}");
}

#[test]
fn a_token_is_not_sent_in_plaintext_unless_asked_for() {
    let server = Server::answering(&[("who-am-i", 200, json!({"id": "2", "name": "ada", "role": "viewer"}))]);
    let home = home();
    // An address for documentation, which no machine has, in case the call is made after all.
    let mut command = trellis(&home, &["whoami", "--superlink", "192.0.2.1:8000", "--insecure"]);
    let output = command.env("TRELLIS_TOKEN", "s3cret").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--allow-insecure-network"), "{}", text(&output.stderr));
    let without = trellis(&home, &["whoami", "--superlink", &server.address]).output().expect("the binary runs");
    assert_eq!(good(&without), "ada (viewer)\n");
    assert_eq!(server.asked()[0].bearer, None);
}

#[test]
fn mistakes_exit_with_2_and_are_told_at_once() {
    let home = home();
    fs::write(home.path().join("two.token"), "two words").expect("a file");
    let arguments = ["nodes", "--superlink", "http://h", "--token-file", "two.token"];
    let output = trellis(&home, &arguments).output().expect("the binary runs");
    let expected = "\
trellis nodes: 2 problems with the arguments, nothing was done

  1. there is no token in two.token: it is more than one word of printable ASCII
     to do: give what `trellis account add`, `trellis token add` or `trellis node token` printed, and nothing else
  2. --superlink cannot be \"http://h\": it must not start with a scheme
     to do: give host and port of the HTTP API, as in link.example.org:8000
";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), expected));
    for arguments in [
        vec!["node"],
        vec!["nodes", "--token", "s3cret"],
        vec!["nodes", "-o", "xml"],
        vec!["node", "token", "--ttl", "5"],
        vec!["account", "add", "ada"],
        vec!["account", "role", "ada", "owner"],
        vec!["audit", "--limit", "0"],
    ] {
        let output = trellis(&home, &arguments).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_key_is_made_once_and_used_again() {
    let home = home();
    let server = Server::answering(&[("join", 200, json!({"node_id": "17446744073709551615"}))]);
    fs::write(home.path().join("join.token"), "j0in\n").expect("a file");
    let arguments = ["node", "join", "--key", "node.key", "--token-file", "join.token", "--name", "edge-7"];
    let joined = call(&home, &server, &arguments);
    assert_eq!(good(&joined), "17446744073709551615\n");
    let key = fs::read_to_string(home.path().join("node.key")).expect("a key");
    assert!(key.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"));
    let public = fs::read_to_string(home.path().join("node.key.pub")).expect("a public key");
    assert!(public.starts_with("ecdsa-sha2-nistp384 ") && public.ends_with(" edge-7\n"), "{public}");

    let more = [arguments.as_slice(), &["-o", "json", "--location", "ward 7"]].concat();
    let again: Value = serde_json::from_str(good(&call(&home, &server, &more))).expect("JSON");
    let expected = json!({"node_id": "17446744073709551615", "name": "edge-7", "key": "node.key",
        "public_key": "node.key.pub"});
    assert_eq!(again, expected);
    assert_eq!(fs::read_to_string(home.path().join("node.key")).expect("a key"), key);

    let asked = server.asked();
    assert!(asked.iter().all(|asked| asked.bearer.is_none()), "the token of an account is not for joining: {asked:?}");
    assert_eq!(asked[0].body["token"], "j0in");
    assert_eq!(asked[1].body["location"], "ward 7");
    assert_eq!(asked[0].body["public_key"], asked[1].body["public_key"]);
    let pem = asked[0].body["public_key"].as_str().expect("PEM");
    assert!(pem.starts_with("-----BEGIN PUBLIC KEY-----\n") && pem.len() == 215, "{pem}");
    let shown = trellis(&home, &["node", "key", "node.key"]).output().expect("the binary runs");
    assert_eq!(good(&shown), format!("{}\n", public.trim_end().trim_end_matches(" edge-7")));
}

#[test]
fn joining_needs_a_join_token_and_a_private_key() {
    let home = home();
    let server = Server::answering(&[("join", 401, json!({"detail": "the join token was used"}))]);
    let join = |key: &str, token: Option<&str>| {
        let mut command = trellis(&home, &["node", "join", "--insecure", "--superlink", &server.address, "--key", key]);
        command.envs(token.map(|token| ("TRELLIS_JOIN_TOKEN", token))).output().expect("the binary runs")
    };
    let without = join("node.key", None);
    assert_eq!(without.status.code(), Some(2));
    assert!(text(&without.stderr).contains("trellis node token"), "{}", text(&without.stderr));
    assert!(!home.path().join("node.key").exists());

    let refused = join("node.key", Some("used"));
    assert_eq!(refused.status.code(), Some(1));
    let told = text(&refused.stderr);
    assert!(told.contains("the join token was used") && told.contains("new join token"), "{told}");

    let asked = server.asked().len();
    fs::set_permissions(home.path().join("node.key"), fs::Permissions::from_mode(0o644)).expect("mode");
    let exposed = join("node.key", Some("j0in"));
    assert_eq!(exposed.status.code(), Some(1));
    assert!(text(&exposed.stderr).contains("chmod 600"), "{}", text(&exposed.stderr));
    assert_eq!(join("node.key.pub", Some("j0in")).status.code(), Some(1));
    assert_eq!(server.asked().len(), asked, "a key that is not private must not join");
}

fn entry(seq: u64, event: &str) -> Value {
    json!({"seq": seq, "at": 60.0, "event": event, "actor": "ada", "subject": "node 5", "detail": "by token 7"})
}

#[test]
fn the_audit_log_is_shown() {
    let server = Server::answering(&[("list-audit", 200, json!({"entries": [entry(120, "node-joined")]}))]);
    let home = home();
    let expected = "\
NUMBER  TIME                  EVENT        ACTOR  SUBJECT  DETAIL
120     1970-01-01 00:01:00Z  node-joined  ada    node 5   by token 7
";
    assert_eq!(good(&call(&home, &server, &["audit"])), expected);
    let json = call(&home, &server, &["audit", "--after", "119", "-n", "5", "-o", "json"]);
    let printed: Value = serde_json::from_str(good(&json)).expect("JSON");
    assert_eq!(printed, json!({"entries": [entry(120, "node-joined")]}));
    let bodies: Vec<Value> = server.asked().into_iter().map(|asked| asked.body).collect();
    assert_eq!(bodies, [json!({"limit": 50}), json!({"after": 119, "limit": 5})]);
}

#[test]
fn the_audit_log_is_followed_until_it_is_refused() {
    let page = |entries: &[Value]| ("list-audit", 200, json!({"entries": entries}));
    let server = Server::answering(&[
        page(&[entry(1, "one"), entry(2, "two")]),
        page(&[entry(3, "three")]),
        ("list-audit", 403, json!({"detail": "no longer"})),
    ]);
    let home = home();
    let mut command = trellis(&home, &["audit", "--follow", "-o", "json", "--superlink", &server.address]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let lines: Vec<String> =
        BufReader::new(child.stdout.take().expect("stdout")).lines().map(|line| line.expect("UTF-8")).collect();
    let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(events, [entry(1, "one"), entry(2, "two"), entry(3, "three")]);
    assert_eq!(child.wait().expect("exit").code(), Some(1));
    let bodies: Vec<Value> = server.asked().into_iter().map(|asked| asked.body).collect();
    assert_eq!(bodies, [json!({"limit": 50}), json!({"after": 2, "limit": 1000}), json!({"after": 3, "limit": 1000})]);
}

#[test]
fn every_command_has_help_with_examples() {
    let home = home();
    for arguments in [
        &["nodes"][..],
        &["node"],
        &["node", "token"],
        &["node", "join"],
        &["node", "revoke"],
        &["node", "key"],
        &["account"],
        &["token"],
        &["audit"],
        &["login"],
        &["whoami"],
    ] {
        let output = trellis(&home, arguments).arg("--help").output().expect("the binary runs");
        let help = good(&output);
        let example = format!("  trellis {}", arguments.join(" "));
        assert!(help.lines().any(|line| line.starts_with(&example)), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    let top = trellis(&home, &["--help"]).output().expect("the binary runs");
    for command in ["superlink", "nodes", "node", "account", "token", "audit", "login", "whoami", "completions"] {
        let line = good(&top).lines().find(|line| line.trim_start().starts_with(&format!("{command} ")));
        assert!(line.is_some_and(|line| line.trim().len() > command.len() + 10), "{command}: {}", good(&top));
    }
}
