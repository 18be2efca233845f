//! Single sign-on: how page and commands get a token for an identity of the provider.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The provider of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignOn {
    /// For people.
    pub name: String,
    pub issuer: String,
}

/// What proves an identity.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Proof {
    /// The end of a login in a browser: the code that it brought back, and the verifier of its challenge (PKCE, S256).
    Browser { code: String, verifier: String },
    /// The `device` of a [`DeviceLogin`].
    Device(String),
    /// An ID token of the provider for this server's client.
    IdToken(String),
}

/// A login that is approved on another device.
#[derive(Clone, Serialize, Deserialize)]
pub struct DeviceLogin {
    /// A secret of who signs in.
    pub device: String,
    /// For the user to compare or type.
    pub user_code: String,
    pub url: String,
    /// With the code in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_with_code: Option<String>,
    pub expires_in_s: u64,
    pub poll_interval_s: u64,
}

/// Which `flwr login` is approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginApproval {
    /// The code at the end of the address that `flwr login` shows.
    #[schema(min_length = 1, max_length = 100)]
    pub code: String,
}
