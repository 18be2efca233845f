//! Checkpoints on other machines: those of coordinators in VMs and clusters, as their runs report them.

use serde::Serialize;
use trellis_api::{Role, Run};
use trellis_server::copy_command;
use trellis_spec::Federation;

use crate::remote::CommandError;
use crate::run_source::offline;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Elsewhere {
    pub federation: String,
    run_id: String,
    round: u64,
    /// On the machine of the coordinator.
    path: String,
    /// The command that copies it to this machine.
    copy: String,
}

impl Elsewhere {
    pub fn words(&self) -> String {
        let Elsewhere { federation, run_id, round, copy, .. } = self;
        format!("Run {run_id} of {federation}, round {round}, is on the machine of its coordinator: {copy}")
    }
}

/// The newest checkpoint of each run whose id has this prefix, from the server's store.
pub fn list(run: Option<&str>) -> Result<Vec<Elsewhere>, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| CommandError::failed(format!("no async runtime: {error}"), None))?;
    runtime.block_on(async {
        let platform = offline().await?;
        let mut found = Vec::new();
        for summary in platform.federations() {
            let Ok(detail) = platform.federation(&summary.name, Role::Admin) else { continue };
            let Some(federation) = trellis_spec::read(&detail.document, &summary.name).ok().and_then(|mut it| it.pop())
            else {
                continue;
            };
            let http = detail.status.and_then(|status| status.coordinator.addresses.http);
            let host = http.as_deref().and_then(|address| Some(address.rsplit_once(':')?.0));
            let runs = platform.runs(&summary.name).await?;
            found.extend(of_federation(&federation, host, &runs));
        }
        found.retain(|one| run.is_none_or(|run| one.run_id.starts_with(run)));
        Ok(found)
    })
}

fn of_federation(federation: &Federation, host: Option<&str>, runs: &[Run]) -> Vec<Elsewhere> {
    let host = host.unwrap_or("ADDRESS");
    let site = &federation.sites[federation.coordinator.site].config;
    let one = |run: &Run| {
        let training = run.training.as_ref()?;
        let path = training.checkpoint.clone()?;
        let (federation, run_id) = (federation.name.to_string(), run.id.clone());
        Some(Elsewhere { federation, run_id, round: training.round, copy: copy_command(site, host, &path)?, path })
    };
    runs.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn federation(sites: &str) -> Federation {
        let text = format!(
            "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: lab}}\nspec: {{nodes: 1, sites: [{sites}]}}\n"
        );
        trellis_spec::read(&text, "test").unwrap_or_else(|problems| panic!("{problems}")).remove(0)
    }

    fn run(checkpoint: Option<&str>) -> Run {
        let training = serde_json::json!({
            "strategy": "FedAvg", "round": 3, "rounds_planned": 3, "metrics": {}, "checkpoint": checkpoint,
        });
        let run = serde_json::json!({
            "id": "17", "federation": "lab", "app": "", "version": "", "state": "finished", "native": true,
            "submitted_at": 1.0, "training": training,
        });
        serde_json::from_value(run).expect("a run")
    }

    #[test]
    fn models_in_vms_are_listed_with_the_command_that_copies_them() {
        let cloud = federation("{name: cloud, opennebula: {endpoint: 'https://one.example.org/RPC2', network: a}}");
        let runs = [run(Some("/models/17/round-000003")), run(None)];
        let [found] = &of_federation(&cloud, Some("10.0.0.4"), &runs)[..] else { panic!("one") };
        assert_eq!(
            found.words(),
            "Run 17 of lab, round 3, is on the machine of its coordinator: scp -r 'root@10.0.0.4:/models/17/round-000003' ."
        );
        assert_eq!(of_federation(&federation("{name: here}"), None, &runs), [], "they are in the list of this machine");
    }
}
