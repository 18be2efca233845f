//! Failures of calls to the API server, with advice.

use kube::Error;
use kube::core::Status;
use trellis_plan::Outcome;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    pub kind: FailureKind,
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No response, or none in time. The call may have had its effect.
    Unreachable,
    /// The same call may succeed later: quota, permission, state of the cluster.
    Refused,
    /// The same call never succeeds.
    Invalid,
    /// The object changed since it was read.
    Conflict,
}

impl Failure {
    pub fn new(kind: FailureKind, why: impl Into<String>) -> Failure {
        Failure { kind, why: why.into() }
    }

    /// `call`: `"apply StatefulSet demo-superlink"`.
    pub fn of(call: &str, error: &Error) -> Failure {
        match error {
            Error::Api(status) => refused(call, status),
            Error::Auth(error) => {
                let to_do = "check the user of the kubeconfig";
                Failure::new(FailureKind::Unreachable, format!("authentication failed: {error} (to do: {to_do})"))
            }
            error => {
                Failure::new(FailureKind::Unreachable, format!("the API server cannot be reached: {}", chain(error)))
            }
        }
    }

    pub fn outcome(self) -> Outcome {
        match self.kind {
            FailureKind::Unreachable => Outcome::Failed { why: self.why },
            FailureKind::Refused | FailureKind::Conflict => Outcome::Refused { why: self.why, retry: true },
            FailureKind::Invalid => Outcome::Refused { why: self.why, retry: false },
        }
    }
}

fn refused(call: &str, status: &Status) -> Failure {
    let said = &status.message;
    match status.code {
        401 => {
            let to_do = "renew the token or the certificate in the kubeconfig";
            Failure::new(
                FailureKind::Unreachable,
                format!("the cluster rejected the credentials: {said} (to do: {to_do})"),
            )
        }
        403 if said.contains("exceeded quota") => {
            let to_do = "raise the ResourceQuota, or reduce the number or the size of nodes";
            Failure::new(FailureKind::Refused, format!("cannot {call}: {said} (to do: {to_do})"))
        }
        403 if said.contains("violates PodSecurity") => {
            Failure::new(FailureKind::Invalid, format!("the namespace forbids such pods: {said}"))
        }
        403 if said.contains("being terminated") => {
            let to_do = "wait until the namespace is deleted and create it again, or configure another";
            Failure::new(FailureKind::Refused, format!("cannot {call}: {said} (to do: {to_do})"))
        }
        403 => {
            let to_do = "grant the account the Role of docs/kubernetes/platform.md";
            Failure::new(FailureKind::Refused, format!("not allowed to {call}: {said} (to do: {to_do})"))
        }
        404 if said.contains("namespaces") => {
            Failure::new(FailureKind::Refused, format!("cannot {call}: {said} (to do: create the namespace)"))
        }
        409 => Failure::new(FailureKind::Conflict, format!("cannot {call}: {said}")),
        400 | 422 => Failure::new(
            FailureKind::Invalid,
            format!("the API server rejected the call to {call}: {}", details(status)),
        ),
        429 | 500.. => {
            Failure::new(FailureKind::Unreachable, format!("the API server cannot {call} at the moment: {said}"))
        }
        _ => Failure::new(FailureKind::Refused, format!("cannot {call}: {said}")),
    }
}

/// The message with the fields that the API server names.
fn details(status: &Status) -> String {
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

    fn failure(code: u16, message: &str) -> Failure {
        let status = json!({ "status": "Failure", "code": code, "message": message, "reason": "" });
        let status: Status = serde_json::from_value(status).expect("a status");
        Failure::of("apply Service f-superlink", &Error::Api(Box::new(status)))
    }

    #[test]
    fn failures_have_advice() {
        let cases = [
            (403, "services is forbidden: User \"x\" cannot patch resource", FailureKind::Refused, "Role"),
            (403, "forbidden: exceeded quota: small, requested: pods=1", FailureKind::Refused, "ResourceQuota"),
            (401, "Unauthorized", FailureKind::Unreachable, "kubeconfig"),
            (409, "the object has been modified", FailureKind::Conflict, "modified"),
            (422, "is invalid", FailureKind::Invalid, "is invalid"),
            (404, "namespaces \"x\" not found", FailureKind::Refused, "create the namespace"),
            (503, "etcd is unavailable", FailureKind::Unreachable, "at the moment"),
        ];
        for (code, message, kind, word) in cases {
            let failure = failure(code, message);
            assert_eq!(failure.kind, kind, "{code}");
            assert!(failure.why.contains(word) && failure.why.contains(message), "{}", failure.why);
        }
    }

    #[test]
    fn invalid_fields_are_named() {
        let cause = json!({ "reason": "FieldValueInvalid", "message": "must be positive", "field": "spec.replicas" });
        let status = json!({ "status": "Failure", "code": 422, "message": "m", "reason": "Invalid", "details": { "causes": [cause] } });
        let status: Status = serde_json::from_value(status).expect("a status");
        let failure = Failure::of("create StatefulSet f", &Error::Api(Box::new(status)));
        assert!(failure.why.ends_with("spec.replicas: must be positive"), "{}", failure.why);
    }
}
