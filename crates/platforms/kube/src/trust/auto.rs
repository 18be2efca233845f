//! Mode `auto`: the federation has its own authority, and its certificate is renewed before it expires.

use trellis_diagnostic::Diagnostic;
use trellis_pki::authority::{CA_VALIDITY, LEAF_VALIDITY};
use trellis_pki::renewal::{self, Reason};
use trellis_pki::span::Span;
use trellis_pki::{Certificate, Delivery, Error, Keyring, UnixSeconds, Wish, date, pem};

use super::secret::{BUNDLE, CERTIFICATE, DesiredSecret, KEY, ObservedSecret};
use super::{
    BUNDLE_REVISION, Decision, Event, Names, READY, REVISION, Seen, authority_name, bundle_name, certificate_status,
    foreign, revision, rotation, server_name,
};
use crate::federation::Federation;
use crate::render::Trust;
use crate::status::Condition;

/// Validity for programs that must restart for a new certificate: once in eight months.
const LONG_LEAF_VALIDITY: Span = Span::days(365);
/// Limit of the name of an authority, which also contains its key id.
const AUTHORITY_NAME_CHARS: usize = 40;

/// The live certificate, if it is valid.
struct Present {
    delivery: Delivery,
    leaf: Certificate,
}

pub fn decide(federation: &Federation, seen: &Seen, now: UnixSeconds) -> Decision {
    let names = [authority_name(federation), bundle_name(federation), server_name(federation)];
    let foreign_secrets: Vec<String> = names.iter().filter_map(|name| foreign(federation, seen, name)).collect();
    if !foreign_secrets.is_empty() {
        return stuck("ForeignSecret", foreign_secrets.join("; "));
    }
    let mut decision = Decision::default();
    match steps(federation, seen, now, &mut decision) {
        Ok(()) => decision,
        Err(error) => stuck("AuthorityUnusable", error.to_string()),
    }
}

/// Nothing is written, and running pods keep what they have.
fn stuck(reason: &'static str, message: String) -> Decision {
    Decision {
        events: vec![Event::warning(reason, message.clone())],
        condition: Some(Condition::new(READY, false, reason, message)),
        ..Decision::default()
    }
}

fn steps(federation: &Federation, seen: &Seen, now: UnixSeconds, decision: &mut Decision) -> Result<(), Error> {
    let (keyring, turning) = authority(federation, seen, now, decision)?;
    let (names, _) = Names::of(federation, seen.service.as_ref());
    let present = seen.secrets.get(&server_name(federation)).map(present);
    let (delivery, leaf, reason) = certificate(&keyring, &names, present, seen.trellis, now)?;

    let trust = Trust {
        server_secret: server_name(federation),
        authority_secret: bundle_name(federation),
        revision: revision(&leaf),
        bundle_revision: keyring.newest().to_string(),
        ..Trust::default()
    };
    let bundle = DesiredSecret::new(bundle_name(federation), [(BUNDLE, keyring.trust_bundle())])
        .annotated(REVISION, &trust.revision)
        .annotated(BUNDLE_REVISION, &trust.bundle_revision);
    let (chain, key) = (delivery.chain, delivery.key);
    let server = [(CERTIFICATE, chain), (KEY, key), (BUNDLE, keyring.trust_bundle())];
    // The bundle first, so that no client meets a certificate of an unknown authority.
    for desired in [bundle, DesiredSecret::new(server_name(federation), server)] {
        let since = rotation::given_at(seen, &desired.name, &keyring.trust_bundle(), now);
        let desired = desired.annotated(rotation::SINCE, since.to_string());
        if !seen.secrets.get(&desired.name).is_some_and(|present| desired.is(present)) {
            decision.secrets.push(desired);
        }
    }
    if let Some(reason) = reason {
        let message = format!("a certificate until {} was issued, because {}", date(leaf.not_after), reason.words());
        decision.events.push(Event::normal("CertificateIssued", message));
    }
    // Renewal is due when less than a third of the lifetime is left; one second later for rounding.
    let renewed_at = leaf.not_after - leaf.lifetime_s() / 3 + 1;
    decision.again_at = Some(turning.map_or(renewed_at, |at| at.min(renewed_at)));
    decision.certificate =
        Some(certificate_status(&server_name(federation), &leaf, Some(keyring.signing()), Some(renewed_at)));
    let mut message = format!("the SuperLink's certificate is good until {}", date(leaf.not_after));
    if let Some(turn) = rotation::words(keyring.rotation()) {
        message.push_str(&format!("; {turn}"));
    }
    decision.condition = Some(Condition::new(READY, true, "Issued", message));
    decision.trust = Some(trust);
    Ok(())
}

/// The authority, after the next step of a rotation if one is due, and when to check again.
fn authority(
    federation: &Federation,
    seen: &Seen,
    now: UnixSeconds,
    decision: &mut Decision,
) -> Result<(Keyring, Option<UnixSeconds>), Error> {
    let name = authority_name(federation);
    let Some(present) = seen.secrets.get(&name) else {
        let called: String = federation.name.chars().take(AUTHORITY_NAME_CHARS).collect();
        let keyring = Keyring::new(&called, CA_VALIDITY, now)?;
        decision.secrets.push(rotation::heed(federation, rotation::note(name, &keyring)));
        let made = format!("created an authority: {}", keyring.signing().subject);
        decision.events.push(Event::normal("AuthorityMade", made));
        return Ok((keyring, None));
    };
    let keyring = Keyring::read(&format!("Secret {name}"), &present.entries)?;
    let turn = rotation::turn(federation, present, keyring, seen, now)?;
    if let Some(event) = turn.event {
        let note = rotation::note(name, &turn.keyring);
        decision.secrets.push(if turn.begins { rotation::heed(federation, note) } else { note });
        decision.events.push(event);
    }
    Ok((turn.keyring, turn.again_at))
}

/// The live certificate, or a new one with the reason.
fn certificate(
    keyring: &Keyring,
    names: &Names,
    present: Option<Result<Present, String>>,
    reloads: bool,
    now: UnixSeconds,
) -> Result<(Delivery, Certificate, Option<Reason>), Error> {
    let (reason, kept) = match present {
        None => (Some(Reason::First), None),
        Some(Err(why)) => (Some(Reason::Damaged(why)), None),
        Some(Ok(present)) => {
            let asked = names.asked_of(&present.leaf, reloads);
            (renewal::due(&present.leaf, &asked, keyring.signing(), now), Some(present))
        }
    };
    if let (None, Some(Present { delivery, leaf })) = (&reason, kept) {
        return Ok((delivery, leaf, None));
    }
    let validity = if reloads { LEAF_VALIDITY } else { LONG_LEAF_VALIDITY };
    let delivery = keyring.issue(Wish { endpoints: &names.all(), name: None, validity }, now)?;
    let unreadable = |what| Error::Refused(vec![Diagnostic::error(CERTIFICATE, what, "try again")]);
    let leaf = read_leaf(&delivery.chain).map_err(unreadable)?;
    Ok((delivery, leaf, reason))
}

fn present(secret: &ObservedSecret) -> Result<Present, String> {
    let text = |name: &str| secret.text(name).map(str::to_owned).ok_or_else(|| format!("{name} is missing"));
    let delivery = Delivery { chain: text(CERTIFICATE)?, key: text(KEY)?, trust: text(BUNDLE)? };
    let leaf = read_leaf(&delivery.chain)?;
    let key = pem::private_key(delivery.key.as_bytes()).map_err(|error| format!("{KEY}: {}", error.what))?;
    if trellis_pki::check::public_key(&key).as_deref() != Some(leaf.public_key()) {
        return Err(format!("{KEY} does not belong to {CERTIFICATE}"));
    }
    Ok(Present { delivery, leaf })
}

fn read_leaf(chain: &str) -> Result<Certificate, String> {
    let all = pem::certificates(chain.as_bytes()).map_err(|error| format!("{CERTIFICATE}: {}", error.what))?;
    Certificate::read(&all[0])
}
