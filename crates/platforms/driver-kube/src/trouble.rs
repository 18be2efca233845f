//! Why the API server did not do what it was asked: in words that say what to do about it.

use kube::Error;
use kube::core::Status;
use trellis_plan::Outcome;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Trouble {
    pub kind: Kind,
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nobody answered, or not in time: perhaps it was done all the same.
    Unreachable,
    /// It may be asked again as it is: others were faster, there is no room, somebody must allow it.
    Refused,
    /// Only another wish helps.
    Wrong,
    /// Somebody else wrote what was to be written.
    Conflict,
}

impl Trouble {
    pub fn new(kind: Kind, why: impl Into<String>) -> Trouble {
        Trouble { kind, why: why.into() }
    }

    /// `doing`: `"apply StatefulSet demo-superlink"`.
    pub fn of(doing: &str, error: &Error) -> Trouble {
        match error {
            Error::Api(status) => refused(doing, status),
            Error::Auth(error) => {
                let to_do = "check the user of the kubeconfig";
                Trouble::new(Kind::Unreachable, format!("who calls cannot be proved: {error} (to do: {to_do})"))
            }
            error => Trouble::new(Kind::Unreachable, format!("the API server cannot be reached: {}", chain(error))),
        }
    }

    pub fn outcome(self) -> Outcome {
        match self.kind {
            Kind::Unreachable => Outcome::Failed { why: self.why },
            Kind::Refused | Kind::Conflict => Outcome::Refused { why: self.why, retry: true },
            Kind::Wrong => Outcome::Refused { why: self.why, retry: false },
        }
    }
}

fn refused(doing: &str, status: &Status) -> Trouble {
    let said = &status.message;
    match status.code {
        401 => {
            let to_do = "renew the token or the certificate in the kubeconfig";
            Trouble::new(Kind::Unreachable, format!("the cluster does not know who calls: {said} (to do: {to_do})"))
        }
        403 if said.contains("exceeded quota") => {
            let to_do = "raise the ResourceQuota, or want fewer or smaller nodes";
            Trouble::new(Kind::Refused, format!("no room to {doing}: {said} (to do: {to_do})"))
        }
        403 if said.contains("violates PodSecurity") => {
            Trouble::new(Kind::Wrong, format!("the namespace does not allow such pods: {said}"))
        }
        403 if said.contains("being terminated") => {
            let to_do = "wait until the namespace is gone and make it again, or name another";
            Trouble::new(Kind::Refused, format!("cannot {doing}: {said} (to do: {to_do})"))
        }
        403 => {
            let to_do = "give the account a Role in the namespace that allows it: docs/kubernetes/platform.md";
            Trouble::new(Kind::Refused, format!("not allowed to {doing}: {said} (to do: {to_do})"))
        }
        404 if said.contains("namespaces") => {
            Trouble::new(Kind::Refused, format!("cannot {doing}: {said} (to do: make the namespace)"))
        }
        409 => Trouble::new(Kind::Conflict, format!("cannot {doing}: {said}")),
        400 | 422 => {
            Trouble::new(Kind::Wrong, format!("the cluster does not take what was to {doing}: {}", told(status)))
        }
        429 | 500.. => Trouble::new(Kind::Unreachable, format!("the API server cannot {doing} just now: {said}")),
        _ => Trouble::new(Kind::Refused, format!("cannot {doing}: {said}")),
    }
}

/// With the fields, where the API server names them.
fn told(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields: Vec<String> = causes.map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    if fields.is_empty() { status.message.clone() } else { fields.join("; ") }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trouble(code: u16, message: &str) -> Trouble {
        let status = json!({ "status": "Failure", "code": code, "message": message, "reason": "" });
        let status: Status = serde_json::from_value(status).expect("a status");
        Trouble::of("apply Service f-superlink", &Error::Api(Box::new(status)))
    }

    #[test]
    fn what_helps_is_said() {
        let cases = [
            (403, "services is forbidden: User \"x\" cannot patch resource", Kind::Refused, "Role"),
            (403, "forbidden: exceeded quota: small, requested: pods=1", Kind::Refused, "ResourceQuota"),
            (401, "Unauthorized", Kind::Unreachable, "kubeconfig"),
            (409, "the object has been modified", Kind::Conflict, "modified"),
            (422, "is invalid", Kind::Wrong, "is invalid"),
            (404, "namespaces \"x\" not found", Kind::Refused, "make the namespace"),
            (503, "etcd is away", Kind::Unreachable, "just now"),
        ];
        for (code, message, kind, word) in cases {
            let trouble = trouble(code, message);
            assert_eq!(trouble.kind, kind, "{code}");
            assert!(trouble.why.contains(word) && trouble.why.contains(message), "{}", trouble.why);
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        let cause = json!({ "reason": "FieldValueInvalid", "message": "must be positive", "field": "spec.replicas" });
        let status = json!({ "status": "Failure", "code": 422, "message": "m", "reason": "Invalid", "details": { "causes": [cause] } });
        let status: Status = serde_json::from_value(status).expect("a status");
        let trouble = Trouble::of("make StatefulSet f", &Error::Api(Box::new(status)));
        assert!(trouble.why.ends_with("spec.replicas: must be positive"), "{}", trouble.why);
    }
}
