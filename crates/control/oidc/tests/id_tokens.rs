//! ID tokens signed by keys of both kinds: what is accepted, and every reason for a refusal.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};
use trellis_api::Role;
use trellis_oidc::{Endpoint, Expected, Identity, Keys, Metadata, Rejected, Rules, verify};

const NOW_S: f64 = 1_800_000_000.0;
const EXPECTED: Expected<'static> =
    Expected { issuer: "https://login.example/dex", client_id: "trellis", nonce: Some("n-1") };

/// A provider with one key of each kind.
struct Provider {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
}

impl Provider {
    fn new() -> Provider {
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        Provider { rsa, ec }
    }

    fn keys(&self) -> Keys {
        let point = self.ec.public_key().as_ref();
        // As DER: the header, the modulus of 2048 bits, the exponent 65537.
        let rsa: &[u8; 270] = self.rsa.public_key().as_ref().try_into().expect("a key of the usual form");
        let (n, e) = (BASE64.encode(&rsa[9..265]), BASE64.encode(&rsa[267..]));
        Keys::parse(
            &serde_json::to_vec(&json!({"keys": [
                {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
                {"kty": "RSA", "kid": "rsa", "use": "sig", "alg": "RS256",
                 "n": n, "e": e},
                {"kty": "RSA", "kid": "for-secrets", "use": "enc",
                 "n": n, "e": e},
                {"kty": "EC", "crv": "P-256", "kid": "ec", "x": BASE64.encode(&point[1..33]), "y": BASE64.encode(&point[33..])},
            ]}))
            .expect("plain data"),
        )
        .expect("a key set")
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let random = SystemRandom::new();
        let signature = match header["alg"].as_str() {
            Some("ES256") => self.ec.sign(&random, signed.as_bytes()).expect("signed").as_ref().to_vec(),
            _ => {
                let mut signature = vec![0; self.rsa.public_modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).expect("signed");
                signature
            }
        };
        format!("{signed}.{}", BASE64.encode(signature))
    }
}

fn header() -> Value {
    json!({"alg": "RS256", "kid": "rsa"})
}

fn claims() -> Value {
    json!({
        "iss": EXPECTED.issuer, "aud": "trellis", "sub": "u1", "exp": NOW_S + 60.0, "nonce": "n-1",
        "email": "Ada@Example.org", "email_verified": true, "groups": ["staff", "researchers"],
    })
}

/// The usual value with other fields; `null` removes one.
fn with(mut value: Value, changes: Value) -> Value {
    for (name, change) in changes.as_object().expect("an object") {
        match change {
            Value::Null => drop(value.as_object_mut().expect("an object").remove(name)),
            change => value[name] = change.clone(),
        }
    }
    value
}

fn rules() -> Rules {
    Rules {
        name_claim: "email".to_owned(),
        groups_claim: "groups".to_owned(),
        roles: vec![
            ("staff".to_owned(), Role::Viewer),
            ("researchers".to_owned(), Role::Runner),
            ("platform".to_owned(), Role::Admin),
        ],
        domain: "login.example".to_owned(),
    }
}

#[test]
fn tokens_of_the_provider_for_us_count() {
    let provider = Provider::new();
    let keys = provider.keys();
    for (header, changes) in [
        (header(), json!({})),
        (json!({"alg": "ES256", "kid": "ec"}), json!({})),
        (json!({"alg": "ES256"}), json!({})),
        (header(), json!({"aud": ["trellis"]})),
        (header(), json!({"aud": ["other", "trellis"], "azp": "trellis"})),
        (header(), json!({"exp": NOW_S - 29.0, "nbf": NOW_S + 29.0})),
    ] {
        let token = provider.token(&header, &with(claims(), changes.clone()));
        assert!(verify(&token, &keys, &EXPECTED, NOW_S).is_ok(), "{header} {changes}");
    }
}

#[test]
fn other_tokens_are_refused_each_for_its_reason() {
    let provider = Provider::new();
    let keys = provider.keys();
    let check = |header: Value, changes: Value, expected: Rejected| {
        let token = provider.token(&header, &with(claims(), changes.clone()));
        assert_eq!(verify(&token, &keys, &EXPECTED, NOW_S).err(), Some(expected), "{header} {changes}");
    };
    check(header(), json!({"iss": "https://login.example/other"}), Rejected::Issuer);
    check(header(), json!({"aud": "other"}), Rejected::Audience);
    check(header(), json!({"aud": ["other", "trellis"]}), Rejected::Audience);
    check(header(), json!({"aud": ["other", "trellis"], "azp": "other"}), Rejected::Audience);
    check(header(), json!({"azp": "other"}), Rejected::Audience);
    check(header(), json!({"exp": NOW_S - 30.0}), Rejected::Expired);
    check(header(), json!({"exp": null}), Rejected::Malformed);
    check(header(), json!({"nbf": NOW_S + 31.0}), Rejected::NotYetValid);
    check(header(), json!({"nonce": "n-2"}), Rejected::Nonce);
    check(header(), json!({"nonce": null}), Rejected::Nonce);
    check(json!({"alg": "RS256", "kid": "gone"}), json!({}), Rejected::UnknownKey);
    check(json!({"alg": "RS256", "kid": "for-secrets"}), json!({}), Rejected::UnknownKey);
    check(json!({"alg": "RS256", "kid": "ec"}), json!({}), Rejected::UnknownKey);
    for algorithm in ["none", "HS256", "RS512", "ES384", "rs256"] {
        check(json!({"alg": algorithm, "kid": "rsa"}), json!({}), Rejected::Algorithm);
    }
    check(json!({"alg": "RS256", "kid": "rsa", "crit": ["b64"]}), json!({}), Rejected::Malformed);
}

#[test]
fn a_changed_token_is_refused() {
    let (provider, other) = (Provider::new(), Provider::new());
    let keys = provider.keys();
    let refused = |token: &str| verify(token, &keys, &EXPECTED, NOW_S).expect_err("it is changed");
    assert_eq!(refused(&other.token(&header(), &claims())), Rejected::Signature);
    assert_eq!(refused(&other.token(&json!({"alg": "ES256", "kid": "ec"}), &claims())), Rejected::Signature);
    let token = provider.token(&header(), &claims());
    let (head, rest) = token.split_once('.').expect("three parts");
    let (_, signature) = rest.split_once('.').expect("three parts");
    let promoted = BASE64.encode(with(claims(), json!({"groups": ["platform"]})).to_string());
    assert_eq!(refused(&format!("{head}.{promoted}.{signature}")), Rejected::Signature);
    // The public key as the secret of an HMAC, and no signature at all.
    let unsigned = BASE64.encode(r#"{"alg":"none"}"#);
    assert_eq!(refused(&format!("{unsigned}.{promoted}.")), Rejected::Algorithm);
    for text in ["", "a", "a.b", "a.b.c", "....", &"x".repeat(40_000)] {
        assert_eq!(refused(text), Rejected::Malformed, "{text:.10}");
    }
}

fn identity(changes: Value, rules: &Rules) -> Result<Identity, Rejected> {
    let provider = Provider::new();
    let token = provider.token(&header(), &with(claims(), changes));
    rules.identity(&verify(&token, &provider.keys(), &EXPECTED, NOW_S).expect("it is genuine"))
}

#[test]
fn the_highest_role_of_the_groups_counts_and_without_one_there_is_none() {
    let found = identity(json!({}), &rules()).expect("a researcher");
    assert_eq!(found, Identity { subject: "u1".into(), name: "ada@example.org".into(), role: Role::Runner });
    for (groups, role) in [
        (json!(["platform", "staff"]), Ok(Role::Admin)),
        (json!("staff"), Ok(Role::Viewer)),
        (json!(["Researchers", "staffs"]), Err(Rejected::NoGroup)),
        (json!([]), Err(Rejected::NoGroup)),
        (json!({"platform": true}), Err(Rejected::NoGroup)),
        (Value::Null, Err(Rejected::NoGroup)),
    ] {
        assert_eq!(identity(json!({"groups": groups}), &rules()).map(|found| found.role), role, "{groups}");
    }
}

#[test]
fn a_name_is_one_that_accounts_can_have_and_no_local_account_has() {
    let by_user = Rules { name_claim: "preferred_username".to_owned(), ..rules() };
    for (rules, changes, name) in [
        (&by_user, json!({"preferred_username": "admin"}), Ok("admin@login.example")),
        (&by_user, json!({"preferred_username": "eve@x.org", "email_verified": false}), Ok("eve@x.org")),
        (&by_user, json!({}), Err(Rejected::NoName("preferred_username".into()))),
        (&by_user, json!({"preferred_username": "@x"}), Err(Rejected::NoName("preferred_username".into()))),
        (&by_user, json!({"preferred_username": "a\nb@x"}), Err(Rejected::NoName("preferred_username".into()))),
        (&rules(), json!({"email_verified": false}), Err(Rejected::Unverified)),
        (&rules(), json!({"email_verified": "true"}), Err(Rejected::Unverified)),
        (&rules(), json!({"email_verified": null}), Ok("ada@example.org")),
        (&rules(), json!({"email": "x".repeat(70)}), Err(Rejected::NoName("email".into()))),
    ] {
        let found = identity(changes.clone(), rules).map(|found| found.name);
        assert_eq!(found, name.map(str::to_owned), "{changes}");
    }
    assert_eq!(identity(json!({"sub": ""}), &rules()), Err(Rejected::Malformed));
}

#[test]
fn providers_are_called_with_tls_or_on_this_machine() {
    let place = |url: &str| Endpoint::parse(url).map(|found| format!("{} {} {}", found.host, found.port, found.path));
    assert_eq!(place("https://login.example/a?b=c").as_deref(), Ok("login.example 443 /a?b=c"));
    assert_eq!(place("http://[::1]:5556").as_deref(), Ok("::1 5556 /"));
    for url in
        ["http://login.example", "http://127.0.0.1.example/", "ftp://x", "login.example", "https://u@x/", "https://"]
    {
        assert!(Endpoint::parse(url).is_err(), "{url}");
    }
}

#[test]
fn only_scopes_that_the_provider_offers_are_asked_for() {
    let metadata = |scopes: &[&str]| -> Metadata {
        serde_json::from_value(json!({
            "issuer": "i", "authorization_endpoint": "https://i/auth?realm=r", "token_endpoint": "t", "jwks_uri": "k",
            "scopes_supported": scopes,
        }))
        .expect("a discovery document")
    };
    assert_eq!(metadata(&["groups", "email", "phone"]).scope(), "openid email groups");
    assert_eq!(metadata(&[]).scope(), "openid");
    assert_eq!(metadata(&[]).authorization_url(&[("state", "a&b")]), "https://i/auth?realm=r&state=a%26b");
}
