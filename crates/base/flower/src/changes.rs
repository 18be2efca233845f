//! Changes between releases, each once. The Python tests read the same table (`tests/harness/changes.json`).

use crate::Release;

/// `flwr` reads connections from its home directory, not from the app's pyproject.toml.
pub const CLI_READS_HOME: Release = Release::of(26);
/// Every call of a ServerApp carries a token.
pub const APPS_HAVE_TOKENS: Release = Release::of(28);
/// The SuperLink stores bundles of apps in its database, not in files.
pub const APPS_IN_DATABASE: Release = Release::of(29);
/// App-side calls are refused unless both sides have the same release.
pub const APPS_COMPARE_RELEASES: Release = Release::of(30);
/// `flower-superexec` supports TLS.
pub const SUPEREXEC_TLS: Release = Release::of(30);
/// The SuperLink installs dependencies of apps by default.
pub const INSTALLS_DEPENDENCIES: Release = Release::of(33);
/// Apps call the SuperLink over HTTP, at the port of the HTTP API; a SuperNode has one port (`--host`, `--port`).
pub const APPS_BY_HTTP: Release = Release::of(35);
/// `flower-superexec` takes `--runtime-api-address`, not `--appio-api-address`.
pub const RUNTIME_API_ADDRESS: Release = Release::of(36);
/// `flwr` calls the SuperLink over HTTP; the HTTP API serves TLS with the certificate of the other ports.
pub const CONTROL_BY_HTTP: Release = Release::of(37);
/// `flower-superexec` finds out itself which kind of app it starts; earlier ones need `--plugin-type`.
pub const NO_SUPEREXEC_PLUGINS: Release = Release::of(38);
/// SuperNodes call the SuperLink over HTTP; the SuperLink has one port for all.
pub const FLEET_BY_HTTP: Release = Release::of(40);

/// The API of a SuperLink for ServerApps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppApi {
    /// At an address of its own, over gRPC and without TLS.
    OwnGrpc,
    /// At an address of its own, over HTTP.
    OwnHttp,
    /// At the HTTP port that `flwr` uses.
    Shared,
}

impl Release {
    pub fn app_api(self) -> AppApi {
        match self {
            _ if self < APPS_BY_HTTP => AppApi::OwnGrpc,
            _ if self < CONTROL_BY_HTTP => AppApi::OwnHttp,
            _ => AppApi::Shared,
        }
    }
}

/// By name, for readers outside Rust.
pub const CHANGES: &[(&str, Release)] = &[
    ("cli_reads_home", CLI_READS_HOME),
    ("apps_have_tokens", APPS_HAVE_TOKENS),
    ("apps_in_database", APPS_IN_DATABASE),
    ("apps_compare_releases", APPS_COMPARE_RELEASES),
    ("superexec_tls", SUPEREXEC_TLS),
    ("installs_dependencies", INSTALLS_DEPENDENCIES),
    ("apps_by_http", APPS_BY_HTTP),
    ("runtime_api_address", RUNTIME_API_ADDRESS),
    ("control_by_http", CONTROL_BY_HTTP),
    ("no_superexec_plugins", NO_SUPEREXEC_PLUGINS),
    ("fleet_by_http", FLEET_BY_HTTP),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// `UPDATE_GOLDENS=1` writes the file.
    #[test]
    fn the_python_tests_read_the_same_table() {
        let minors: BTreeMap<&str, u16> = CHANGES.iter().map(|(name, release)| (*name, release.minor)).collect();
        let text = serde_json::to_string_pretty(&minors).expect("plain data") + "\n";
        crate::golden("changes.json", &text);
    }
}
