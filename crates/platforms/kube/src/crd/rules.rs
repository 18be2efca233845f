//! Validation rules of a federation, in CEL.
//!
//! Rules of the other operator keep their messages. Rules are attached to fields and not to the whole resource, so that
//! the API server (from 1.30) does not validate unchanged fields that an older definition admitted, and the status can
//! be written. Combinations that never worked are refused; those that worked with the other operator work, except for
//! claims that no pod would use.

use super::schema::Rule;

/// The name of a StatefulSet with the hash of a revision is a label value of at most 63 characters.
const MAX_STATEFUL_SET: usize = 52;
/// Limit of label values, and of names of Services.
const MAX_LABEL: usize = 63;

/// Rules of the other operator, in its order.
pub fn of_the_other() -> Vec<Rule> {
    vec![
        Rule::new("size(self.supernodes.pools) > 0", "spec.supernodes.pools must contain at least one pool"),
        Rule::new(
            "self.mode != 'DaemonSet' || self.supernodes.pools.all(p, !has(p.replicas))",
            "replicas must not be set for pools when mode is DaemonSet",
        ),
        Rule::new(
            "self.mode != 'StatefulSet' || self.supernodes.pools.all(p, has(p.replicas) && p.replicas >= 1)",
            "replicas must be set (>=1) for every pool when mode is StatefulSet",
        ),
        Rule::new(
            "self.isolationMode != 'process' || (has(self.superlink.superexecImage) && self.superlink.superexecImage != '')",
            "spec.superlink.superexecImage is required when isolationMode=process",
        ),
        Rule::new(
            format!("self.isolationMode != 'process' || self.supernodes.pools.all(p, {CLIENT_APP})"),
            "spec.supernodes.pools[*].images.superexecClientApp is required when isolationMode=process",
        ),
        Rule::new(
            "self.isolationMode != 'subprocess' || !has(self.superlink.superexecImage) || self.superlink.superexecImage == ''",
            "spec.superlink.superexecImage must be empty when isolationMode=subprocess",
        ),
        Rule::new(
            format!("self.isolationMode != 'subprocess' || self.supernodes.pools.all(p, !({CLIENT_APP}))"),
            "spec.supernodes.pools[*].images.superexecClientApp must be empty when isolationMode=subprocess",
        ),
        Rule::new(
            "self.supernodes.pools.all(p, !has(p.gpu) || !has(p.gpu.mountAll) || !p.gpu.mountAll || has(p.gpu.vendor))",
            "spec.supernodes.pools[*].gpu.vendor is required when gpu.mountAll=true",
        ),
    ]
}

const CLIENT_APP: &str = "has(p.images) && p.images != null && has(p.images.superexecClientApp) && \
                          p.images.superexecClientApp != ''";

/// Rules of Trellis about fields of both.
pub fn of_ours() -> Vec<Rule> {
    vec![
        Rule::new(
            "self.mode != 'DaemonSet' || self.supernodes.pools.all(p, !has(p.nodeConfig) || p.nodeConfig.all(k, \
             !p.nodeConfig[k].contains('{index}') && !p.nodeConfig[k].contains('{replicas}')))",
            "spec.supernodes.pools[*].nodeConfig must not use {index} or {replicas} when mode is DaemonSet: use {node} or {pool}",
        ),
        Rule::new(
            "self.mode != 'DaemonSet' || self.supernodes.pools.all(p, !has(p.volumeClaimTemplates) || \
             size(p.volumeClaimTemplates) == 0)",
            "spec.supernodes.pools[*].volumeClaimTemplates must not be set when mode is DaemonSet, which makes no claims: use \
             volumes",
        ),
        Rule::new(
            format!("!has(self.superlink.service) || !has(self.superlink.service.ports) || ({FLEET}) != ({CONTROL})"),
            "spec.superlink.service.ports.grpc and extra must not be the same",
        ),
        Rule::new(
            format!(
                "self.isolationMode != 'process' || !has(self.superlink.service) || !has(self.superlink.service.ports) || \
                 (({APP_IO}) != ({FLEET}) && ({APP_IO}) != ({CONTROL}))"
            ),
            "spec.superlink.service.ports.serverAppIO must not be that of grpc or extra when isolationMode=process",
        ),
        Rule::new(
            "!has(self.security) || !has(self.security.nodeAuth) || !self.security.nodeAuth || (has(self.security.tls) && \
             has(self.security.tls.mode) ? self.security.tls.mode != 'off' : has(self.insecure) && !self.insecure)",
            "spec.security.nodeAuth needs TLS: set insecure to false, or security.tls.mode",
        ),
        Rule::new(
            "!has(self.scaling) || self.mode == 'StatefulSet'",
            "spec.scaling needs mode StatefulSet: a DaemonSet has one SuperNode on each machine",
        ),
        Rule::new(
            "!has(self.scaling) || has(self.scaling.pool) || size(self.supernodes.pools) == 1",
            "spec.scaling.pool must name a pool when there are several",
        ),
        Rule::new(
            "!has(self.scaling) || !has(self.scaling.pool) || self.supernodes.pools.exists(p, p.name == self.scaling.pool)",
            "spec.scaling.pool must be the name of a pool",
        ),
    ]
}

const FLEET: &str = "has(self.superlink.service.ports.grpc) && self.superlink.service.ports.grpc != 0 ? \
                     self.superlink.service.ports.grpc : 9092";
const CONTROL: &str = "has(self.superlink.service.ports.extra) && self.superlink.service.ports.extra != 0 ? \
                       self.superlink.service.ports.extra : 9093";
const APP_IO: &str = "has(self.superlink.service.ports.serverAppIO) && self.superlink.service.ports.serverAppIO != 0 ? \
                      self.superlink.service.ports.serverAppIO : 9091";

/// Rules for the name of a federation, from which names of objects are derived.
pub fn name() -> Vec<Rule> {
    let most = MAX_STATEFUL_SET - "-superlink".len();
    vec![
        Rule::new(
            format!("size(self) <= {most}"),
            format!(
                "must have no more than {most} characters: that of the StatefulSet <name>-superlink may have \
                 {MAX_STATEFUL_SET}"
            ),
        ),
        Rule::new(
            "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "must be lowercase letters, digits and dashes, as the Service <name>-superlink needs it",
        ),
    ]
}

/// The only place that has access to both names.
pub fn names_together() -> Rule {
    let most = MAX_STATEFUL_SET - "-supernode-".len();
    Rule::new(
        format!(
            "self.spec.mode != 'StatefulSet' || self.spec.supernodes.pools.all(p, size(self.metadata.name) + size(p.name) <= \
             {most})"
        ),
        format!(
            "metadata.name and spec.supernodes.pools[*].name must have no more than {most} characters together: that of the \
             StatefulSet <name>-supernode-<pool> may have {MAX_STATEFUL_SET}"
        ),
    )
}

/// The name of a pool is part of the label `app.kubernetes.io/component`: `pool-<name>`.
pub fn pool_name() -> Rule {
    let most = MAX_LABEL - "pool-".len();
    Rule::new(
        format!("size(self) <= {most}"),
        format!("must have no more than {most} characters: the label pool-<name> may have {MAX_LABEL}"),
    )
}

pub fn node_config_keys() -> Rule {
    Rule::new(
        r"self.all(k, k.matches('^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$'))",
        "keys are letters, digits, - and _, with dots between parts",
    )
}

pub fn tls() -> Vec<Rule> {
    vec![
        Rule::new(
            "!has(self.mode) || self.mode != 'secret' || (has(self.secretName) && self.secretName != '')",
            "secretName is required when mode=secret",
        ),
        Rule::new(
            "!has(self.mode) || self.mode != 'certManager' || has(self.issuerRef)",
            "issuerRef is required when mode=certManager",
        ),
    ]
}

pub fn bounds_of_scaling() -> Rule {
    Rule::new(
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        "minReplicas must not be more than maxReplicas",
    )
}
