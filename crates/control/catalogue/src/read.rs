//! From the files that the program holds to the list of apps. What is wrong in there is found by the tests: nobody can change it
//! afterwards.

use std::collections::BTreeMap;

use include_dir::Dir;
use serde::Deserialize;
use trellis_wire::fab;

use crate::{App, File, Framework};

/// What all apps share. It becomes part of the package of each.
const SHARED: &str = "federated";
const PYPROJECT: &str = "pyproject.toml";
/// What Python leaves beside its sources.
const LEFTOVERS: &str = "__pycache__";

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Entry {
    frameworks: Vec<Framework>,
    uses_gpu: bool,
    needs_gpu: bool,
}

pub fn apps(all: &'static Dir<'static>) -> Vec<App> {
    let shared = all.get_dir(SHARED).expect("it is beside the apps");
    let mut apps: Vec<App> =
        all.dirs().filter(|directory| directory.path() != shared.path()).map(|own| app(own, shared)).collect();
    apps.sort_by(|one, other| one.name.cmp(&other.name));
    apps
}

fn app(own: &'static Dir<'static>, shared: &'static Dir<'static>) -> App {
    let name = own.path().to_str().expect("names of our own apps are plain").to_owned();
    let place = format!("{}/{SHARED}/", name.replace('-', "_"));
    let mut files = Vec::new();
    collect(own, own, "", &mut files);
    collect(shared, shared, &place, &mut files);
    files.sort_by(|one: &File, other| one.path.cmp(&other.path));
    let project = files.iter().find(|file| file.path == PYPROJECT).expect("every app has one").content;
    let project: toml::Table =
        str::from_utf8(project).ok().and_then(|text| text.parse().ok()).expect("it is TOML, which a test reads");
    let about = fab::metadata(&project).expect("it says what it is, which a test reads");
    let text = |path: &str| fab::find(&project, path).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    let entry: Entry = fab::find(&project, "tool.trellis.catalogue")
        .and_then(|entry| entry.clone().try_into().ok())
        .expect("it says what it needs, which a test reads");
    App {
        name,
        version: about.version,
        description: text("project.description"),
        frameworks: entry.frameworks,
        uses_gpu: entry.uses_gpu,
        needs_gpu: entry.needs_gpu,
        config: config(&project),
        files,
    }
}

fn config(project: &toml::Table) -> BTreeMap<String, toml::Value> {
    let table = fab::find(project, fab::CONFIG).and_then(toml::Value::as_table).cloned().unwrap_or_default();
    table.into_iter().collect()
}

fn collect(top: &Dir<'static>, directory: &'static Dir<'static>, place: &str, files: &mut Vec<File>) {
    for file in directory.files() {
        let path = file.path().strip_prefix(top.path()).expect("it is below the top");
        let path = path.to_str().expect("names of our own files are plain");
        files.push(File { path: format!("{place}{path}"), content: file.contents() });
    }
    for inner in directory.dirs().filter(|inner| !inner.path().ends_with(LEFTOVERS)) {
        collect(top, inner, place, files);
    }
}
