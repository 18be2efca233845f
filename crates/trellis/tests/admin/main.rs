//! Accounts, tokens, nodes and the audit log of a real SuperLink, from its first start, by commands alone.

mod nodes;
mod superlink;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use serde_json::Value;
use superlink::{Security, SuperLink, good, refused};

/// Calls with TLS, with the token in the file.
fn call(link: &SuperLink, token_file: &str, arguments: &[&str]) -> Output {
    link.command(&Security::Tls, Some(token_file), arguments).output().expect("the binary runs")
}

fn admin(link: &SuperLink, arguments: &[&str]) -> Output {
    call(link, "state/admin.token", arguments)
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&good(output)).expect("JSON")
}

/// The events of the audit log, oldest first, each with its actor and its subject.
fn audit(link: &SuperLink) -> Vec<(String, String, String)> {
    let text = |entry: &Value, key: &str| entry[key].as_str().expect("text").to_owned();
    let answer = json(&admin(link, &["audit", "-n", "1000", "-o", "json"]));
    let entries = answer["entries"].as_array().expect("entries").iter();
    entries.map(|entry| (text(entry, "event"), text(entry, "actor"), text(entry, "subject"))).collect()
}

#[test]
fn the_first_admin_adds_accounts_and_each_may_do_what_its_role_says() {
    let link = SuperLink::with_tls_and_accounts();
    assert_eq!(fs::metadata(link.path("state/admin.token")).expect("a token").permissions().mode() & 0o777, 0o600);
    assert_eq!(good(&admin(&link, &["whoami"])), "admin (admin)\n");

    let nobody = link.command(&Security::Tls, None, &["whoami"]).output().expect("the binary runs");
    assert!(refused(&nobody).contains("to do: give the token of an account"));
    fs::write(link.path("wrong.token"), "trellis_0123456789abcdef").expect("a file");
    assert!(refused(&call(&link, "wrong.token", &["whoami"])).contains("The token is not valid"));

    good(&admin(&link, &["account", "add", "ada", "--role", "runner", "--save", "ada.token"]));
    good(&admin(&link, &["account", "add", "vic", "--role", "viewer", "--save", "vic.token"]));
    assert!(refused(&admin(&link, &["account", "add", "ada", "--role", "viewer"])).contains("it is taken"));
    let accounts = json(&admin(&link, &["account", "ls", "-o", "json"]));
    let names: Vec<_> = accounts["accounts"].as_array().expect("accounts").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["ada", "admin", "vic"]);

    for token in ["ada.token", "vic.token"] {
        good(&call(&link, token, &["nodes"]));
        for needs_admin in [
            &["account", "ls"][..],
            &["account", "role", "ada", "admin"],
            &["account", "disable", "admin"],
            &["node", "token"],
            &["node", "revoke", "5"],
            &["token", "ls"],
            &["token", "add", "admin"],
            &["audit"],
        ] {
            let told = refused(&call(&link, token, needs_admin));
            assert!(told.contains("this needs the role admin"), "{needs_admin:?}: {told}");
        }
    }

    good(&admin(&link, &["account", "role", "ada", "admin"]));
    good(&call(&link, "ada.token", &["account", "ls"]));
    good(&admin(&link, &["account", "role", "ada", "viewer"]));
    refused(&call(&link, "ada.token", &["account", "ls"]));
    let told = refused(&admin(&link, &["account", "disable", "admin"]));
    assert!(told.contains("the last active admin"), "{told}");
}

#[test]
fn runs_are_started_by_those_who_may() {
    let link = SuperLink::with_tls_and_accounts();
    good(&admin(&link, &["account", "add", "ada", "--role", "runner", "--save", "ada.token"]));
    good(&admin(&link, &["account", "add", "vic", "--role", "viewer", "--save", "vic.token"]));
    let words = ["run", "native:echo", "--detach", "-o", "json"];
    assert!(refused(&call(&link, "vic.token", &words)).contains("this needs the role runner"));
    let started = json(&call(&link, "ada.token", &words));
    assert_eq!((&started["event"], started["run_id"].is_string()), (&"started".into(), true), "{started}");
}

#[test]
fn what_is_taken_away_is_gone_at_once() {
    let link = SuperLink::with_tls_and_accounts();
    good(&admin(&link, &["account", "add", "ada", "--role", "runner", "--save", "ada.token"]));
    let extra = ["token", "add", "ada", "--label", "ci", "--ttl", "1h", "--save", "ci.token"];
    good(&admin(&link, &extra));
    assert_eq!(good(&call(&link, "ci.token", &["whoami"])), "ada (runner)\n");

    let tokens = json(&admin(&link, &["token", "ls", "-o", "json"]));
    let ci = tokens["tokens"].as_array().expect("tokens").iter().find(|token| token["label"] == "ci").expect("ci");
    assert!(ci["expires_at"].is_f64() && ci["account"] == "ada", "{ci}");
    good(&admin(&link, &["token", "revoke", ci["id"].as_str().expect("an id")]));
    refused(&call(&link, "ci.token", &["whoami"]));
    good(&call(&link, "ada.token", &["whoami"]));

    good(&admin(&link, &["account", "disable", "ada"]));
    refused(&call(&link, "ada.token", &["whoami"]));
    good(&admin(&link, &["account", "enable", "ada"]));
    refused(&call(&link, "ada.token", &["whoami"]));
    good(&admin(&link, &["token", "add", "ada", "--save", "new.token"]));
    good(&call(&link, "new.token", &["whoami"]));
}

#[test]
fn a_node_joins_once_with_its_own_key_and_leaves_when_told() {
    let link = SuperLink::with_tls_and_accounts();
    good(&admin(&link, &["node", "token", "--label", "edge", "--save", "edge.join"]));
    let join = |key: &str, token: &str| call(&link, token, &["node", "join", "--key", key, "--name", "edge-1"]);
    let id = good(&join("node.key", "edge.join")).trim().to_owned();
    assert_eq!(good(&join("node.key", "edge.join")).trim(), id, "asking again is no mistake");
    let told = refused(&join("other.key", "edge.join"));
    assert!(told.contains("Each works once") && told.contains("trellis node token"), "{told}");
    assert!(refused(&join("third.key", "state/admin.token")).contains("join token"), "an account's token is none");

    let nodes = json(&admin(&link, &["nodes", "-o", "json"]));
    let node = &nodes["nodes"][0];
    assert_eq!(
        (&node["id"], &node["name"], &node["status"]),
        (&id.as_str().into(), &"edge-1".into(), &"registered".into())
    );
    assert_eq!((&node["owner"], nodes["nodes"].as_array().map(Vec::len)), (&"admin".into(), Some(1)));

    good(&admin(&link, &["node", "revoke", &id]));
    assert_eq!(json(&admin(&link, &["nodes", "-o", "json"]))["nodes"], Value::Array(vec![]));
    let table = good(&admin(&link, &["nodes", "--all"]));
    assert!(table.lines().nth(1).is_some_and(|line| line.contains(&id) && line.contains("unregistered")), "{table}");
    good(&admin(&link, &["node", "token", "--save", "again.join"]));
    refused(&join("node.key", "again.join"));
    refused(&admin(&link, &["node", "revoke", "12345"]));
}

#[test]
fn the_audit_log_tells_all_of_it_and_no_secrets() {
    let link = SuperLink::with_tls_and_accounts();
    good(&admin(&link, &["account", "add", "ada", "--role", "runner", "--save", "ada.token"]));
    refused(&call(&link, "ada.token", &["node", "token"]));
    good(&admin(&link, &["node", "token", "--save", "edge.join"]));
    let id = good(&call(&link, "edge.join", &["node", "join", "--key", "node.key"])).trim().to_owned();
    good(&admin(&link, &["node", "revoke", &id]));
    let node = format!("node {id}");

    let events = audit(&link);
    let mut rest = events.iter();
    for (event, actor, subject) in [
        ("account-created", "the SuperLink", "admin"),
        ("account-created", "admin", "ada"),
        ("secret-issued", "admin", "ada"),
        ("call-refused", "", ""),
        ("secret-issued", "admin", ""),
        ("node-registered-by-token", "admin", node.as_str()),
        ("node-revoked", "admin", node.as_str()),
    ] {
        let found = rest.any(|(told, by, to)| {
            told == event && (actor.is_empty() || by == actor) && (subject.is_empty() || to == subject)
        });
        assert!(found, "{event} {actor} {subject} is not where it should be in {events:#?}");
    }

    let shown = good(&admin(&link, &["audit", "-n", "1000"])) + &good(&admin(&link, &["token", "ls", "--all"]));
    let database = String::from_utf8_lossy(&fs::read(link.path("state/state.db")).expect("a database")).into_owned();
    let journal = String::from_utf8_lossy(&fs::read(link.path("state/state.db-wal")).unwrap_or_default()).into_owned();
    for file in ["state/admin.token", "ada.token", "edge.join"] {
        let secret = link.read(file);
        let secret = secret.trim();
        assert!(secret.len() > 20 && ![&shown, &database, &journal].iter().any(|text| text.contains(secret)), "{file}");
    }
}

#[test]
fn the_audit_log_is_followed_as_it_grows() {
    let link = SuperLink::with_tls_and_accounts();
    let mut command = link.command(&Security::Tls, Some("state/admin.token"), &["audit", "--follow", "-o", "json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let mut next = |event: &str, subject: &str| loop {
        let line = lines.next().expect("more").expect("UTF-8");
        let entry: Value = serde_json::from_str(&line).expect("JSON");
        if entry["event"] == event && entry["subject"] == subject {
            break;
        }
    };
    next("account-created", "admin");
    good(&admin(&link, &["account", "add", "late", "--role", "viewer"]));
    next("account-created", "late");
    child.kill().expect("it runs");
    child.wait().expect("exit");
}

#[test]
fn a_token_goes_to_the_right_superlink_only() {
    let link = SuperLink::with_tls_and_accounts();
    let plaintext =
        link.command(&Security::Plaintext, Some("state/admin.token"), &["whoami"]).output().expect("it runs");
    assert!(refused(&plaintext).contains("to do: if it serves with TLS"));

    let other = SuperLink::with_tls_and_accounts();
    let mut stranger = other.command(&Security::Tls, None, &["whoami"]);
    let stranger = stranger.env("TRELLIS_TOKEN", link.read("state/admin.token").trim()).output().expect("it runs");
    refused(&stranger);
    fs::copy(link.path("trust.crt"), other.path("trust.crt")).expect("the trust of another");
    let told = refused(&call(&other, "state/admin.token", &["whoami"]));
    assert!(told.contains("no authority of trust.crt has signed its certificate"), "{told}");
}

#[test]
fn a_superlink_to_try_out_needs_no_flags() {
    let link = SuperLink::to_try_out();
    for arguments in [&["nodes"][..], &["audit"], &["whoami"], &["node", "token", "--save", "edge.join"]] {
        good(&link.command(&Security::Unsaid, None, arguments).output().expect("the binary runs"));
    }
    // A token is sent without TLS only with a flag for that.
    let unsaid = link.command(&Security::Unsaid, Some("edge.join"), &["node", "join", "--key", "node.key"]).output();
    let unsaid = unsaid.expect("the binary runs");
    assert!(
        !unsaid.status.success() && String::from_utf8_lossy(&unsaid.stderr).contains("add --insecure"),
        "{unsaid:?}"
    );
    let joined = link.command(&Security::Plaintext, Some("edge.join"), &["node", "join", "--key", "node.key"]).output();
    let id = good(&joined.expect("the binary runs"));
    let table = good(&link.command(&Security::Unsaid, None, &["nodes"]).output().expect("the binary runs"));
    assert!(table.contains(id.trim()), "{table}");
}

#[test]
fn a_login_that_waits_goes_on_when_it_is_approved() {
    let link = SuperLink::with_accounts();
    // The first request of `flwr login`: an empty message.
    let mut stream = TcpStream::connect(&link.http).expect("a connection");
    let head = "POST /v1/control/get-login-details HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                content-type: application/protobuf\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    let code: String = match answer.split_once("/login?code=") {
        Some((_, rest)) => rest.chars().take_while(char::is_ascii_alphanumeric).collect(),
        None => panic!("no address of the login page in {answer:?}"),
    };
    let approve = |code: &str| {
        let arguments = ["login", "approve", code];
        link.command(&Security::Plaintext, Some("state/admin.token"), &arguments).output().expect("the binary runs")
    };
    assert!(refused(&approve("0000000000")).contains("No pending login has this code"));
    assert_eq!(good(&approve(&code)), "the login continues as admin\n");
}
