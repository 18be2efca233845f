//! `trellis doctor opennebula`: checks whether the OpenNebula sites of documents can host their federations. The driver
//! performs the checks; this module prints the results.

use std::process::ExitCode;

use clap::Args;
use trellis_doctor::{Check, Report};
use trellis_driver_one::{Finding, Fitness, KIND, examine};
use trellis_spec::{Federation, SiteConfig};
use trellis_terminal::OutputArgs;

use crate::documents::{self, DocumentArgs};
use crate::remote::CommandError;

const CALLED: &str = "trellis doctor opennebula";

const AFTER_HELP: &str = "\
Examples:
  trellis doctor opennebula -f federation.yaml
  trellis doctor opennebula -f federation.yaml --site lab --onegate http://10.0.0.1:5030

Checks endpoint, user, OneFlow, quotas, network, images, datastore and OneGate of each OpenNebula site, with the user of
the site. Run it where the control plane runs. It changes nothing.
Exit codes: 0 no problems, perhaps warnings; 1 there are problems; 2 mistakes in the documents.
";

/// Check the OpenNebula sites of federation documents: endpoint, rights, quotas, networks, images, OneGate
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct OpenNebulaArgs {
    #[command(flatten)]
    documents: DocumentArgs,

    /// Only this site
    #[arg(long, value_name = "NAME")]
    site: Option<String>,

    /// Where VMs reach OneGate [default: port 5030 of the endpoint's host]
    #[arg(long, value_name = "URL")]
    onegate: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &OpenNebulaArgs) -> ExitCode {
    super::report(CALLED, &args.output, async {
        let federations = documents::read(&args.documents.files)?;
        let sites = sites(&federations, args.site.as_deref());
        if sites.is_empty() {
            let what = "there is no such OpenNebula site in the documents";
            return Err(CommandError::usage(what, "name a site that has `opennebula`, or leave --site out"));
        }
        let mut checks = Vec::new();
        for (name, site) in &sites {
            let findings = examine(site, args.onegate.as_deref()).await;
            // With several sites, each line names its site.
            let about = if sites.len() > 1 { format!("{name}: ") } else { String::new() };
            checks.extend(findings.into_iter().map(|finding| check(finding, &about)));
        }
        Ok(Report::new(checks))
    })
}

fn sites<'a>(federations: &'a [Federation], wanted: Option<&str>) -> Vec<(&'a str, &'a SiteConfig)> {
    let sites = federations.iter().flat_map(|federation| &federation.sites);
    let ours = sites.filter(|site| site.config.kind() == KIND);
    let ours = ours.map(|site| (site.name.as_str(), &site.config));
    ours.filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name)).collect()
}

fn check(finding: Finding, about: &str) -> Check {
    let (name, found) = (finding.name, format!("{about}{}", finding.found));
    let fix = finding.fix.unwrap_or_default();
    match finding.fitness {
        Fitness::Good => Check::ok(name, found),
        Fitness::Doubtful => Check::warning(name, found, fix),
        Fitness::Bad => Check::problem(name, found, fix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
apiVersion: trellis.dev/v1
kind: Federation
metadata: {name: lab}
spec:
  sites:
  - name: near
  - {name: zone, opennebula: {endpoint: \"https://one.example.org:2633/RPC2\", network: private}}
  - {name: far, opennebula: {endpoint: \"https://far.example.org:2633/RPC2\", network: private}}
  coordinator: {site: zone, endpoints: {advertise: [fl.example.org]}}
  pools:
  - {name: a, site: zone}
";

    #[test]
    fn only_sites_of_opennebula_are_checked() {
        let read = trellis_spec::read_with_warnings(DOCUMENT, "x.yaml").expect("a valid document");
        let names = |wanted| sites(&read.federations, wanted).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(None), ["zone", "far"]);
        assert_eq!(names(Some("far")), ["far"]);
        assert_eq!(names(Some("near")), Vec::<&str>::new());
    }

    #[test]
    fn findings_become_checks_with_a_fix() {
        let finding = |fitness, fix: Option<&str>| Finding {
            name: "network",
            fitness,
            found: "x".to_owned(),
            fix: fix.map(str::to_owned),
        };
        assert_eq!(check(finding(Fitness::Good, None), ""), Check::ok("network", "x"));
        let far = check(finding(Fitness::Bad, Some("do")), "far: ");
        assert_eq!(far, Check::problem("network", "far: x", "do"));
    }
}
