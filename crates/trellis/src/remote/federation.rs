//! The federation of a command. Every command takes `--federation` and TRELLIS_FEDERATION; commands without another subject
//! also take its name as the first argument.

use clap::Args;
use trellis_api::Client;

use super::error::CommandError;
use super::server::{Found, ServerArgs, resolve_federation};

const VARIABLE: &str = "TRELLIS_FEDERATION";

#[derive(Debug, Args)]
pub struct FederationFlag {
    /// The federation [default: the only one of the server]
    #[arg(long, value_name = "NAME", env = VARIABLE, hide_env_values = true, help_heading = "Server")]
    federation: Option<String>,
}

impl FederationFlag {
    pub fn named(&self) -> Option<&str> {
        self.federation.as_deref().filter(|name| !name.is_empty())
    }

    /// The name of the positional argument, or else of the flag.
    pub fn or_position<'a>(&'a self, position: Option<&'a str>) -> Result<Option<&'a str>, CommandError> {
        chosen(position, self.named(), std::env::var(VARIABLE).ok().as_deref())
    }

    /// It is on the command line, not only in the environment.
    pub fn is_given(&self) -> bool {
        self.named().is_some() && self.federation != std::env::var(VARIABLE).ok()
    }
}

/// By position or by flag.
#[derive(Debug, Args)]
pub struct FederationArgs {
    /// The federation, also as --federation [default: the only one of the server]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    flag: FederationFlag,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// For commands whose positional argument is another subject.
#[derive(Debug, Args)]
pub struct OfFederationArgs {
    #[command(flatten)]
    pub flag: FederationFlag,
    #[command(flatten)]
    pub server: ServerArgs,
}

impl FederationArgs {
    /// The server, and the federation that is named or the only one.
    pub async fn found(&self) -> Result<(Found, String), CommandError> {
        let named = self.named()?;
        let found = self.server.found()?;
        let name = resolve_federation(&found.client, named).await?;
        Ok((found, name))
    }
}

impl OfFederationArgs {
    pub async fn find(&self) -> Result<(Client, String), CommandError> {
        let client = self.server.client()?;
        let name = resolve_federation(&client, self.flag.named()).await?;
        Ok((client, name))
    }
}

/// Commands that call a named SuperLink or that of a federation.
pub trait Destination {
    fn named(&self) -> Result<Option<&str>, CommandError>;

    /// A federation or a server is on the command line, or a server in the environment.
    fn is_given(&self) -> bool;

    fn server(&self) -> &ServerArgs;

    /// The server and the federation to call. `None` if a SuperLink is named, or if nothing is named and no federation exists.
    fn unless_superlink(&self, is_named: bool) -> impl Future<Output = Result<Option<(Found, String)>, CommandError>> {
        async move {
            let named = self.named()?;
            match (is_named, self.is_given()) {
                (true, true) => {
                    let what = "both a SuperLink and a federation of a server are named";
                    let advice =
                        "leave out one of them (TRELLIS_SUPERLINK may name the SuperLink, TRELLIS_SERVER the server)";
                    Err(CommandError::usage(what, advice))
                }
                (true, false) => Ok(None),
                (false, given) => {
                    let found = if given { Some(self.server().found()?) } else { self.server().find()? };
                    let Some(found) = found else { return Ok(None) };
                    if !given && named.is_none() && found.client.federations().await?.is_empty() {
                        return Ok(None);
                    }
                    let name = resolve_federation(&found.client, named).await?;
                    Ok(Some((found, name)))
                }
            }
        }
    }
}

impl Destination for FederationArgs {
    fn named(&self) -> Result<Option<&str>, CommandError> {
        self.flag.or_position(self.name.as_deref())
    }

    fn is_given(&self) -> bool {
        self.name.is_some() || self.flag.is_given() || self.server.is_given()
    }

    fn server(&self) -> &ServerArgs {
        &self.server
    }
}

impl Destination for OfFederationArgs {
    fn named(&self) -> Result<Option<&str>, CommandError> {
        Ok(self.flag.named())
    }

    fn is_given(&self) -> bool {
        self.flag.is_given() || self.server.is_given()
    }

    fn server(&self) -> &ServerArgs {
        &self.server
    }
}

/// A name by position overrides the variable, and contradicts another one by flag.
fn chosen<'a>(
    position: Option<&'a str>,
    flag: Option<&'a str>,
    variable: Option<&str>,
) -> Result<Option<&'a str>, CommandError> {
    match (position, flag) {
        (Some(position), Some(flag)) if position != flag && variable != Some(flag) => {
            let what = format!("two federations are named: {position} and, by --federation, {flag}");
            Err(CommandError::usage(what, "name one of them"))
        }
        _ => Ok(position.or(flag)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_federation_is_named_by_position_flag_or_variable() {
        for (position, flag, variable, expected) in [
            (None, None, None, Ok(None)),
            (Some("lab"), None, None, Ok(Some("lab"))),
            (None, Some("lab"), None, Ok(Some("lab"))),
            (Some("lab"), Some("lab"), None, Ok(Some("lab"))),
            // clap reports the variable's value as that of the flag.
            (Some("lab"), Some("ward"), Some("ward"), Ok(Some("lab"))),
            (Some("lab"), Some("ward"), Some("home"), Err(())),
            (Some("lab"), Some("ward"), None, Err(())),
        ] {
            assert_eq!(chosen(position, flag, variable).map_err(drop), expected, "{position:?} {flag:?} {variable:?}");
        }
    }
}
