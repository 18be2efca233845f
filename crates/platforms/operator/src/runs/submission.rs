//! Converts a `FederationRun` to a submission: the app, its values, and the mark that identifies the run.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use trellis_diagnostic::Diagnostic;
use trellis_kube::run::check::{ROUNDS, text};
use trellis_kube::run::{ConfigMapApp, FederationRun};
use trellis_train::submit::{Given, Location, Request, ServerAppChoice, Source, Submission, prepare};
use trellis_wire::fab::RUN_MARK;

/// Why a run cannot be submitted.
#[derive(Debug)]
pub enum Unsent {
    /// Succeeds only after a change of the resource or of an object that it refers to.
    Unfit(Vec<Diagnostic>),
    /// A retry may help.
    Later(String),
}

/// The submission of one attempt. `nodes`: the number of nodes that a native training waits for by default.
pub async fn submission(
    client: &Client,
    run: &FederationRun,
    mark: &str,
    nodes: Option<usize>,
) -> Result<Submission, Unsent> {
    let source = source(client, run).await?.with_key(RUN_MARK);
    let given = |place: String, key: &str, text: String| Given { written: place, key: key.to_owned(), text };
    let config = run.spec.config.iter().filter_map(|(key, value)| {
        let text = text(value)?;
        Some(given(format!("spec.config.{key}"), key, text))
    });
    let mut values: Vec<Given> = config.collect();
    values.extend(run.spec.rounds.map(|rounds| given("spec.rounds".to_owned(), ROUNDS[0], rounds.to_string())));
    values.push(given(RUN_MARK.to_owned(), RUN_MARK, mark.to_owned()));
    let request =
        Request { source, given: values, defaults: Default::default(), location: Location::SuperLink { nodes } };
    prepare(request).map_err(|problems| Unsent::Unfit(problems.into_iter().map(problem).collect()))
}

async fn source(client: &Client, run: &FederationRun) -> Result<Source, Unsent> {
    let app = &run.spec.app;
    match (&app.native, &app.catalogue, &app.config_map) {
        (Some(name), None, None) => {
            let name = name.strip_prefix("native:").unwrap_or(name);
            Source::built_in(name).map_err(|error| unfit("spec.app.native", error))
        }
        (None, Some(name), None) => catalogue(name),
        (None, None, Some(named)) => {
            let content = bundle(client, &run.namespace, named).await?;
            Source::bundle(&content).map_err(|error| unfit("spec.app.configMap", error))
        }
        _ => Err(Unsent::Unfit(Vec::new())),
    }
}

fn catalogue(name: &str) -> Result<Source, Unsent> {
    let Some(app) = trellis_catalogue::find(name) else {
        let names: Vec<&str> = trellis_catalogue::list().iter().map(|app| app.name.as_str()).collect();
        let what = format!("the catalogue has no app {name}");
        return Err(wrong("spec.app.catalogue", what, format!("there are {}", names.join(", "))));
    };
    let later = |error: String| Unsent::Later(format!("the app cannot be unpacked: {error}"));
    let directory = tempfile::tempdir().map_err(|error| later(error.to_string()))?;
    let place = directory.path().join(name);
    app.export(&place).map_err(|error| later(error.to_string()))?;
    Source::directory(&place, ServerAppChoice::Own).map_err(|error| unfit("spec.app.catalogue", error))
}

async fn bundle(client: &Client, namespace: &str, named: &ConfigMapApp) -> Result<Vec<u8>, Unsent> {
    let place = "spec.app.configMap";
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(&named.name).await.map_err(|error| Unsent::Later(error.to_string()))?;
    let Some(found) = found else {
        let what = format!("ConfigMap {} does not exist in this namespace", named.name);
        let to_do = format!("make it: kubectl create configmap {} --from-file=app.fab", named.name);
        return Err(wrong(place, what, to_do));
    };
    let mut data = found.binary_data.unwrap_or_default();
    let key = match &named.key {
        Some(key) => key.clone(),
        None if data.len() == 1 => data.keys().next().cloned().unwrap_or_default(),
        None => {
            let what = format!("the ConfigMap {} has {} files in its binaryData", named.name, data.len());
            return Err(wrong(place, what, "say which one in key".to_owned()));
        }
    };
    let keys: Vec<String> = data.keys().cloned().collect();
    let missing = || {
        let what = format!("the ConfigMap {} has no {key} in its binaryData", named.name);
        wrong(place, what, format!("there are: {}", keys.join(", ")))
    };
    data.remove(&key).map(|content| content.0).ok_or_else(missing)
}

fn wrong(place: &str, what: String, to_do: String) -> Unsent {
    Unsent::Unfit(vec![Diagnostic::error(place.to_owned(), what, to_do)])
}

fn unfit(place: &str, error: Diagnostic) -> Unsent {
    wrong(place, error.what, error.advice)
}

fn problem(error: Diagnostic) -> Diagnostic {
    let place = if error.place.is_empty() { "spec".to_owned() } else { error.place };
    Diagnostic { place, ..error }
}
