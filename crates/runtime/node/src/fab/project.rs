//! The parts of an app's `pyproject.toml` that a node needs: its metadata, its ClientApp and its configuration.

use std::collections::BTreeMap;

use toml::Table;
use trellis_wire::fab::{self, BadFab, CONFIG, FabMetadata};
use trellis_wire::proto;

use super::{DefaultConfig, FabError};

const COMPONENTS: &str = "tool.flwr.app.components";

#[derive(Debug, PartialEq)]
pub struct Project {
    pub metadata: FabMetadata,
    /// `module:attribute`.
    pub client_app: String,
    pub config: DefaultConfig,
}

pub fn read(project: &Table) -> Result<Project, BadFab> {
    let metadata = fab::metadata(project)?;
    // Flower requires both, although a node needs only the ClientApp.
    component(project, "serverapp")?;
    let client_app = component(project, "clientapp")?;
    Ok(Project { metadata, client_app, config: fab::config(project)? })
}

/// A reference `module:attribute`; both may be dotted names.
fn component(project: &Table, name: &str) -> Result<String, BadFab> {
    let Some(value) = fab::find(project, &format!("{COMPONENTS}.{name}")) else {
        return Err(BadFab(format!("pyproject.toml lacks {COMPONENTS}.{name}")));
    };
    let parts = value.as_str().and_then(|text| text.split_once(':'));
    match parts {
        Some((module, attribute)) if is_dotted(module) && is_dotted(attribute) => Ok(format!("{module}:{attribute}")),
        _ => Err(BadFab(format!("{COMPONENTS}.{name} is {value}, which is not of the form \"module:attribute\""))),
    }
}

/// Dotted Python identifiers, which may contain letters of all languages.
fn is_dotted(text: &str) -> bool {
    text.split('.').all(|name| {
        !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

/// The configuration of a run: the app's own, with the overrides of the run. As in Flower, an override may change the type of a
/// value, but not add a key.
pub fn run_config(
    defaults: &DefaultConfig,
    overrides: &BTreeMap<String, proto::Scalar>,
) -> Result<BTreeMap<String, proto::Scalar>, FabError> {
    let mut config = defaults.clone();
    for (key, value) in overrides {
        if value.scalar.is_none() {
            return Err(FabError::Config(format!("the override of {key:?} has no value")));
        }
        let Some(place) = config.get_mut(key) else {
            return Err(FabError::Config(format!("{key:?} is overridden, but [{CONFIG}] has no such key")));
        };
        *place = value.clone();
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use trellis_wire::proto::scalar::Scalar;

    use super::*;

    const HEAD: &str = "[project]\nname='app'\nversion='1'\n[tool.flwr.app]\npublisher='me'\n";
    const PARTS: &str = "[tool.flwr.app.components]\nserverapp='a.s:app'\nclientapp='a.c:made.app'\n";

    fn parsed(text: &str) -> Result<Project, BadFab> {
        read(&text.parse().expect("the TOML of the test is valid"))
    }

    fn scalar(scalar: Scalar) -> proto::Scalar {
        proto::Scalar { scalar: Some(scalar) }
    }

    #[test]
    fn the_configuration_is_read() {
        let project = parsed(&format!("{HEAD}{PARTS}[tool.flwr.app.config]\nt.u=2\n")).unwrap();
        assert_eq!(project.client_app, "a.c:made.app");
        assert_eq!(project.config, [("t.u".to_owned(), scalar(Scalar::Sint64(2)))].into());
    }

    #[test]
    fn apps_that_flower_refuses_are_refused() {
        let cases = [
            (format!("{HEAD}[tool.flwr.app.components]\nclientapp='a:b'"), "lacks tool.flwr.app.components.serverapp"),
            (format!("{HEAD}[tool.flwr.app.components]\nserverapp='a:b'"), "lacks tool.flwr.app.components.clientapp"),
            (format!("{HEAD}config=3\n{PARTS}"), "is not a table"),
        ];
        for (text, part) in cases {
            let problem = parsed(&text).unwrap_err().to_string();
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn references_have_a_module_and_an_attribute() {
        let sound = ["client:app", "project.package.module:wrapper.app", "_a1:B", "köln:app"];
        let odd =
            ["", "client", ":app", "client:", "a b:app", "../x:app", "a..b:app", "a:1b", "a:b:c", "a;import os:b"];
        for (text, good) in sound.map(|text| (text, true)).into_iter().chain(odd.map(|text| (text, false))) {
            let parts = format!("[tool.flwr.app.components]\nserverapp='s:s'\nclientapp='{text}'");
            assert_eq!(parsed(&format!("{HEAD}{parts}")).is_ok(), good, "{text:?}");
        }
    }

    #[test]
    fn overrides_replace_and_never_add_keys() {
        let defaults = BTreeMap::from([
            ("rounds".to_owned(), scalar(Scalar::Sint64(3))),
            ("model.layers".to_owned(), scalar(Scalar::Sint64(2))),
        ]);
        let over = |key: &str, value| BTreeMap::from([(key.to_owned(), value)]);
        let fused = run_config(&defaults, &over("model.layers", scalar(Scalar::String("two".into())))).unwrap();
        assert_eq!(fused["model.layers"], scalar(Scalar::String("two".into())));
        assert_eq!(fused["rounds"], defaults["rounds"]);
        for (key, value) in [("model", scalar(Scalar::Bool(true))), ("rounds", proto::Scalar { scalar: None })] {
            let error = run_config(&defaults, &over(key, value)).unwrap_err();
            assert!(error.to_string().contains(&format!("{key:?}")), "{error}");
        }
    }
}
