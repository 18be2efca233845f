use super::super::rpc::*;
use super::*;

/// The meaning of a refusal, abbreviated.
fn meaning(refusal: Refusal, rpc: &Rpc) -> &'static str {
    match refusal.into_error("link:1".to_owned(), rpc) {
        FleetError::Unreachable { .. } => "again",
        FleetError::RunOver { .. } => "run over",
        FleetError::NotKnown { remedy, .. } => match remedy {
            Remedy::Activate => "activate",
            Remedy::Register => "register",
            Remedy::Wait => "wait",
            Remedy::RegisterOrWait => "register or wait",
            Remedy::Person => "person",
        },
        FleetError::Misdirected { .. } => "misdirected",
        FleetError::Refused { is_fault: true, .. } => "fault",
        FleetError::Refused { is_fault: false, .. } => "no",
    }
}

#[test]
fn over_grpc() {
    let activation_failed =
        r#"{"code": 2004, "public_message": "Failed to activate SuperNode.", "public_details": null}"#;
    let disabled = r#"{"code": 2001, "public_message": "SuperNode authentication is enabled. All SuperNodes must be registered via the CLI.", "public_details": null}"#;
    let run_over = r#"{"code": 2007, "public_message": "The current run status does not allow this Fleet API operation.", "public_details": "Object_id: ab"}"#;
    for (rpc, code, message, expected) in [
        // 1.25 to 1.35
        (
            REGISTER_NODE,
            9,
            "SuperNode authentication is enabled. All SuperNodes must be registered via the CLI.",
            "person",
        ),
        (ACTIVATE_NODE, 9, "No SuperNode found with the given public key.", "register"),
        (ACTIVATE_NODE, 9, "SuperNode with node ID 7 could not be activated.", "wait"),
        (ACTIVATE_NODE, 3, "Invalid heartbeat interval", "no"),
        (ACTIVATE_NODE, 16, "Invalid timestamp", "person"),
        (PULL_MESSAGES, 16, "Invalid timestamp", "person"),
        (PULL_MESSAGES, 16, "Invalid node ID", "activate"),
        (PULL_MESSAGES, 2, "Exception calling application: Node ID 7 not found", "activate"),
        (PULL_MESSAGES, 2, "Exception calling application: database is locked", "fault"),
        (DEACTIVATE_NODE, 9, "SuperNode with node ID 7 could not be deactivated.", "no"),
        (UNREGISTER_NODE, 9, "All SuperNodes must be unregistered via the CLI.", "no"),
        (GET_RUN, 7, "Run ID not found: 7", "run over"),
        (PUSH_OBJECT, 7, "Run is finished.", "run over"),
        (PULL_MESSAGES, 7, "Forbidden", "no"),
        (PULL_MESSAGES, 8, "Concurrent RPC limit exceeded!", "again"),
        // 1.36 to 1.39
        (REGISTER_NODE, 9, disabled, "person"),
        (ACTIVATE_NODE, 9, activation_failed, "register or wait"),
        (PUSH_OBJECT, 7, run_over, "run over"),
        (PULL_MESSAGES, 13, "Internal server error.", "fault"),
        // Of our SuperLink.
        (ACTIVATE_NODE, 9, "SuperNode with node ID 7 could not be activated: why.", "wait"),
        (SEND_NODE_HEARTBEAT, 9, "Node ID 7 not found", "activate"),
        (PUSH_OBJECT, 8, "object ab is larger than the limit of 8 bytes", "no"),
        (PULL_MESSAGES, 12, "This SuperLink serves Flower 1.25 to 1.42, and has no /x", "misdirected"),
        // Of any server.
        (PULL_MESSAGES, 14, "", "again"),
        (PULL_MESSAGES, 4, "Deadline Exceeded", "again"),
        (PULL_MESSAGES, 1, "Cancelled", "again"),
        (PULL_MESSAGES, 99, "", "no"),
    ] {
        assert_eq!(meaning(Refusal::grpc(code, message), rpc), expected, "{} {code} {message}", rpc.name);
    }
}

#[test]
fn over_http() {
    for (rpc, status, body, expected) in [
        (REGISTER_NODE, 412, r#"{"code":2001,"detail":"SuperNode authentication is enabled."}"#, "person"),
        (ACTIVATE_NODE, 412, r#"{"code":2004,"detail":"Failed to activate SuperNode."}"#, "register or wait"),
        (ACTIVATE_NODE, 412, r#"{"code":2004,"detail":"No SuperNode found with the given public key."}"#, "register"),
        (ACTIVATE_NODE, 400, r#"{"code":2003,"detail":"Invalid heartbeat interval."}"#, "no"),
        (ACTIVATE_NODE, 401, r#"{"detail":"Invalid SuperNode authentication"}"#, "person"),
        (PULL_MESSAGES, 401, r#"{"detail":"Invalid SuperNode authentication"}"#, "activate"),
        (PULL_MESSAGES, 401, r#"{"code":1008,"detail":"Invalid timestamp"}"#, "person"),
        (PUSH_MESSAGES, 403, r#"{"code":2007,"detail":"The current run status does not allow this."}"#, "run over"),
        (GET_FAB, 403, r#"{"code":2009,"detail":"Failed to get FAB."}"#, "run over"),
        (PUSH_MESSAGES, 403, "<html>Forbidden by the proxy</html>", "no"),
        (DEACTIVATE_NODE, 412, r#"{"code":2005,"detail":"Failed to deactivate SuperNode."}"#, "no"),
        (PULL_MESSAGES, 404, r#"{"detail":"Not Found"}"#, "misdirected"),
        (PULL_MESSAGES, 404, "<html>nginx</html>", "misdirected"),
        (PULL_MESSAGES, 500, r#"{"detail":"Internal server error."}"#, "fault"),
        (PULL_MESSAGES, 502, "", "again"),
        (PULL_MESSAGES, 503, r#"{"code":1005,"detail":"try again"}"#, "again"),
        (PULL_MESSAGES, 504, "", "again"),
        (PULL_MESSAGES, 429, "", "again"),
        (PUSH_OBJECT, 413, r#"{"code":1003,"detail":"too large"}"#, "no"),
        (PULL_MESSAGES, 422, r#"{"detail":[{"loc":["body"]}]}"#, "no"),
    ] {
        assert_eq!(meaning(Refusal::http(status, body.as_bytes()), rpc), expected, "{} {status} {body}", rpc.name);
    }
}

#[test]
fn a_key_in_use_is_told_in_three_ways() {
    for refusal in [
        Refusal::grpc(9, "Public key already in use"),
        Refusal::grpc(9, r#"{"code": 23, "public_message": "Public key already in use.", "public_details": null}"#),
        Refusal::http(412, br#"{"code":23,"detail":"in other words"}"#),
    ] {
        assert!(refusal.is_key_in_use(), "{refusal:?}");
    }
    assert!(!Refusal::grpc(9, "No SuperNode found with the given public key.").is_key_in_use());
}

#[test]
fn people_are_told_what_was_said_and_what_to_do() {
    let text = |refusal: Refusal, rpc| refusal.into_error("link:1".to_owned(), rpc).to_string();
    assert_eq!(
        text(Refusal::grpc(16, "Invalid timestamp"), PULL_MESSAGES),
        "link:1 does not know this node (PullMessages): Invalid timestamp. Check the clock of this machine, and the \
         node's key"
    );
    assert_eq!(
        text(Refusal::http(404, br#"{"detail":"Not Found"}"#), PULL_MESSAGES),
        "link:1 cannot be used: it does not serve the Fleet API at this port (Not Found)"
    );
    assert_eq!(
        text(Refusal::http(418, b"a <tea>\x07pot"), PULL_MESSAGES),
        r#"link:1 refused PullMessages: HTTP status 418: "a <tea>\u{7}pot""#
    );
}

#[test]
fn texts_in_headers() {
    for (encoded, expected) in
        [("100 %25 of '%C3%A4'%0A", "100 % of 'ä'\n"), ("%", "%"), ("%zz%4", "%zz%4"), ("%FF", "\u{fffd}"), ("", "")]
    {
        assert_eq!(percent_decoded(encoded.as_bytes()), expected);
    }
}
