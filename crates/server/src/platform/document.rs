//! A document that somebody sends: read, and looked at for what only this server can know.

use std::path::Path;

use trellis_api::Detail;
use trellis_spec::{
    Driver, Federation, KubeSite, Name, OneSite, Persistence, Problem, Problems, Tls, read_with_warnings,
};

use super::Refusal;

/// A document that can be used.
#[derive(Debug)]
pub struct Document {
    pub federation: Federation,
    pub warnings: Vec<String>,
}

/// Reads a document with exactly one federation; `name`: it is to be called so. `file` is named in problems.
pub fn read(text: &str, file: &str, name: Option<&str>) -> Result<Document, Refusal> {
    let reading = read_with_warnings(text, file).map_err(|Problems(problems)| {
        let details = problems.into_iter().map(detail).collect();
        invalid("the document cannot be used", details)
    })?;
    let warnings = reading.warnings.iter().map(ToString::to_string).collect();
    let mut federations = reading.federations;
    if federations.len() > 1 {
        let what = format!("there are {} federations in it", federations.len());
        return Err(invalid("one document at a time", vec![wrong("", what, "send each by itself")]));
    }
    let federation = federations.pop().expect("a document without any is a problem");
    let mut details = relative_paths(&federation);
    if let Some(name) = name.filter(|name| *name != federation.name.as_str()) {
        let what = format!("it is {}, and {name} was asked for", federation.name);
        details.push(wrong("metadata.name", what, "use the same name in both"));
    }
    match details.is_empty() {
        true => Ok(Document { federation, warnings }),
        false => Err(invalid("the document cannot be used", details)),
    }
}

/// A path is looked up where the server is, so that one which begins nowhere would mean something else than was meant.
fn relative_paths(federation: &Federation) -> Vec<Detail> {
    let mut paths: Vec<(String, &Path)> = Vec::new();
    let coordinator = &federation.coordinator;
    if let Some(python) = &coordinator.python {
        paths.push(("spec.coordinator.python".to_owned(), python));
    }
    if let Persistence::Disk { path: Some(path), .. } = &coordinator.persistence {
        paths.push(("spec.coordinator.persistence.path".to_owned(), path));
    }
    if let Tls::Files { certificate, key, trust } = &federation.security.tls {
        for (field, path) in [("certificate", certificate), ("key", key), ("trust", trust)] {
            paths.push((format!("spec.security.tls.{field}"), path));
        }
    }
    for (index, site) in federation.sites.iter().enumerate() {
        match &site.driver {
            Driver::OpenNebula(OneSite { auth_file: Some(path), .. }) => {
                paths.push((format!("spec.sites[{index}].opennebula.authFile"), path));
            }
            Driver::Kubernetes(KubeSite { kubeconfig: Some(path), .. }) => {
                paths.push((format!("spec.sites[{index}].kubernetes.kubeconfig"), path));
            }
            _ => {}
        }
    }
    for (index, pool) in federation.pools.iter().enumerate() {
        if let Some(python) = &pool.python {
            paths.push((format!("spec.pools[{index}].python"), python));
        }
    }
    let relative = paths.into_iter().filter(|(_, path)| !path.is_absolute());
    let told = relative.map(|(field, path)| {
        let advice = "give an absolute path on the server's machine";
        wrong(&field, format!("{} is a relative path, and the server is elsewhere", path.display()), advice)
    });
    told.collect()
}

/// Reports URLs that would send credentials to another machine over plain HTTP.
pub fn plain_http(federation: &Federation) -> Vec<Detail> {
    let mut details = Vec::new();
    for (index, site) in federation.sites.iter().enumerate() {
        let Driver::OpenNebula(one) = &site.driver else { continue };
        for (field, url) in one.plain_http().into_iter().filter(|_| !one.allow_plain_http) {
            let what = format!("{url} is on another machine, and the credentials could be read on the way");
            let advice = "use https; where the whole network is trusted, add allowPlainHttp: true beside it";
            details.push(wrong(&format!("spec.sites[{index}].opennebula.{field}"), what, advice));
        }
    }
    details
}

fn detail(problem: Problem) -> Detail {
    Detail {
        path: problem.path,
        line: Some(problem.line),
        column: Some(problem.column),
        what: problem.what,
        advice: problem.advice,
    }
}

pub fn wrong(path: &str, what: impl Into<String>, advice: impl Into<String>) -> Detail {
    Detail { path: path.to_owned(), line: None, column: None, what: what.into(), advice: advice.into() }
}

pub fn invalid(what: &str, problems: Vec<Detail>) -> Refusal {
    Refusal::Invalid { what: what.to_owned(), problems }
}

/// A name, as it stands in a path.
pub fn name(text: &str) -> Result<Name, Refusal> {
    Name::new(text).ok_or_else(|| unknown(text))
}

pub fn unknown(name: &str) -> Refusal {
    Refusal::NotFound(format!("there is no federation {name:?}"))
}
