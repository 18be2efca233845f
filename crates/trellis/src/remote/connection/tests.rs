//! What the flags mean together.

use super::*;
use std::path::Path;

fn args(superlink: &str, insecure: bool, root_certificates: Option<&Path>, network: bool) -> ConnectionArgs {
    let root_certificates = root_certificates.map(Path::to_owned);
    ConnectionArgs {
        superlink: Some(superlink.to_owned()),
        root_certificates,
        insecure,
        allow_insecure_network: network,
    }
}

/// `plain` or `tls`, or what is wrong.
fn decided(args: &ConnectionArgs, token: bool) -> String {
    match args.security(args.address().ok().as_ref(), token) {
        Ok(Security::Plaintext) => "plain".to_owned(),
        Ok(Security::Tls(_)) => "tls".to_owned(),
        Err(failure) => format!("{failure:?}"),
    }
}

#[test]
fn a_token_goes_out_without_tls_only_when_asked_for() {
    let (here, there) = ("127.0.0.1:8000", "link.example.org:8000");
    // A bundle that is not there: to be asked for it is to have chosen TLS.
    let bundle = Path::new("/nowhere/ca.pem");
    for (superlink, insecure, root, network, token, expected) in [
        (here, false, None, false, false, "plain"),
        (here, true, None, false, true, "plain"),
        (here, false, Some(bundle), false, false, "/nowhere/ca.pem"),
        (here, false, Some(bundle), false, true, "/nowhere/ca.pem"),
        (here, true, Some(bundle), false, true, "contradicts"),
        (there, true, None, false, false, "--allow-insecure-network"),
        (there, true, None, false, true, "--allow-insecure-network"),
        (there, true, None, true, true, "plain"),
        (there, false, Some(bundle), true, true, "/nowhere/ca.pem"),
    ] {
        let found = decided(&args(superlink, insecure, root, network), token);
        assert!(found.contains(expected), "{superlink} {insecure} {root:?} {network} {token}: {found}");
    }
}

#[test]
fn without_flags_tokens_and_networks_get_tls() {
    // Where a machine has no authorities, that is text; what must not happen is plaintext.
    for (superlink, network, token) in
        [("127.0.0.1", false, true), ("h:1", false, false), ("h:1", false, true), ("h:1", true, false)]
    {
        assert_ne!(decided(&args(superlink, false, None, network), token), "plain", "{superlink} {network} {token}");
    }
}

#[test]
fn superlinks() {
    for (text, expected) in [
        ("link.example.org:9000", Ok("link.example.org:9000")),
        ("link.example.org", Ok("link.example.org:8000")),
        ("[::1]:9000", Ok("[::1]:9000")),
        ("::1", Ok("[::1]:8000")),
        ("10.0.0.1", Ok("10.0.0.1:8000")),
        ("https://link.example.org", Err("it must not start with a scheme")),
        ("link.example.org:http", Err("the port must be a number from 0 to 65535")),
        ("", Err("it has no host")),
    ] {
        match (args(text, false, None, false).address(), expected) {
            (Ok(address), Ok(expected)) => assert_eq!(address.to_string(), expected),
            (Err(failure), Err(expected)) => assert!(format!("{failure:?}").contains(expected), "{failure:?}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let failure = args("h:x", true, Some(Path::new("ca.pem")), false).superlink(None).map(|_| ()).unwrap_err();
    let text = format!("{failure:?}");
    assert!(text.contains("--superlink cannot be") && text.contains("contradicts"), "{text}");
}
