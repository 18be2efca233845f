//! Where runs are read from: a server, or without one what the last server of this machine left.

use trellis_api::{Client, Run};
use trellis_server::Platform;

use crate::home::Home;
use crate::remote::{ServerArgs, Trouble, explain, only, remark};

pub enum RunSource {
    Server(Client),
    Offline(Platform),
}

/// A platform for what needs no server.
pub async fn offline() -> Result<Platform, Trouble> {
    let home = Home::find(None);
    let platform = Platform::offline(home.as_ref().map(Home::directory)).await;
    platform.map_err(|error| Trouble::failed(explain(&error), None))
}

impl RunSource {
    pub async fn find(server: &ServerArgs) -> Result<RunSource, Trouble> {
        if let Some(found) = server.find()? {
            return Ok(RunSource::Server(found.client));
        }
        let platform = offline().await?;
        match platform.federations().is_empty() && platform.past_federations().await?.is_empty() {
            true => server.found().map(|found| RunSource::Server(found.client)),
            false => {
                remark("No server runs on this machine: these are runs as they were last seen.");
                Ok(RunSource::Offline(platform))
            }
        }
    }

    /// The federation that is named, or the only one; a deleted one only where no other is left.
    pub async fn meant(&self, named: Option<&str>) -> Result<String, Trouble> {
        if let Some(name) = named {
            return Ok(name.to_owned());
        }
        let (live, past) = match self {
            RunSource::Server(client) => {
                let live: Vec<String> = client.federations().await?.into_iter().map(|it| it.name).collect();
                // Asked only then: an older server does not know the call.
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
    pub async fn runs(&self, name: &str) -> Result<Vec<Run>, Trouble> {
        Ok(match self {
            RunSource::Server(client) => client.runs(name).await?,
            RunSource::Offline(platform) => platform.runs(name).await?,
        })
    }

    pub async fn run(&self, name: &str, run: &str) -> Result<Run, Trouble> {
        Ok(match self {
            RunSource::Server(client) => client.run(name, run).await?,
            RunSource::Offline(platform) => platform.run(name, run).await?,
        })
    }
}
