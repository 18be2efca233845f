//! The source of runs: a server, or the registry that the last server of this machine left.

use trellis_api::Home;
use trellis_api::{Client, Run};
use trellis_server::Platform;
use trellis_terminal::{explain, remark};

use crate::remote::{CommandError, ServerArgs, only};

pub enum RunSource {
    Server(Client),
    Offline(Platform),
}

/// A platform that reads the registry without a server.
pub async fn offline() -> Result<Platform, CommandError> {
    let home = Home::find(None);
    let platform = Platform::offline(home.as_ref().map(Home::directory)).await;
    platform.map_err(|error| CommandError::failed(explain(&error), None))
}

impl RunSource {
    pub async fn find(server: &ServerArgs) -> Result<RunSource, CommandError> {
        if let Some(found) = server.find()? {
            return Ok(RunSource::Server(found.client));
        }
        let platform = offline().await?;
        match platform.federations().is_empty() && platform.past_federations().await?.is_empty() {
            true => server.found().map(|found| RunSource::Server(found.client)),
            false => {
                remark("No server runs on this machine: runs are shown as last observed.");
                Ok(RunSource::Offline(platform))
            }
        }
    }

    /// The named federation, or the only one; a deleted one only if there is no other.
    pub async fn resolve_federation(&self, named: Option<&str>) -> Result<String, CommandError> {
        if let Some(name) = named {
            return Ok(name.to_owned());
        }
        let (live, past) = match self {
            RunSource::Server(client) => {
                let live: Vec<String> = client.federations().await?.into_iter().map(|it| it.name).collect();
                // Only if needed: older servers do not have this call.
                let past = if live.is_empty() { client.past_federations().await? } else { Vec::new() };
                (live, past)
            }
            RunSource::Offline(platform) => {
                let live = platform.federations().iter().map(|it| it.name.clone()).collect();
                (live, platform.past_federations().await?)
            }
        };
        only(&if live.is_empty() { past.into_iter().map(|it| it.name).collect() } else { live })
    }

    /// Newest first.
    pub async fn runs(&self, name: &str) -> Result<Vec<Run>, CommandError> {
        Ok(match self {
            RunSource::Server(client) => client.runs(name).await?,
            RunSource::Offline(platform) => platform.runs(name).await?,
        })
    }

    pub async fn run(&self, name: &str, run: &str) -> Result<Run, CommandError> {
        Ok(match self {
            RunSource::Server(client) => client.run(name, run).await?,
            RunSource::Offline(platform) => platform.run(name, run).await?,
        })
    }
}
