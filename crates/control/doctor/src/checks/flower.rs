//! The official Flower: its Python, and the connections of its command.

use trellis_flower::Release;
use trellis_flwr::Installation;

use crate::check::Check;
use crate::facts::Connections;

pub fn python(found: Option<&Installation>) -> Check {
    const INSTALL: &str =
        "pip install flwr, in the environment that is active when nodes start; native apps do not need it";
    let Some(installation) = found else {
        return Check::warning("python", "there is no Python on PATH: only native apps can run", INSTALL);
    };
    let place = installation.interpreter.display();
    let answer = match &installation.answer {
        Err(why) => {
            let fix = "repair that environment, or put another one first on PATH";
            return Check::problem("python", format!("{place}: {why}"), fix);
        }
        Ok(answer) => answer,
    };
    let python = format!("Python {} at {place}", answer.python);
    match (&answer.flwr, &answer.error, installation.release()) {
        (None, ..) => Check::warning("python", format!("{python} has no flwr: only native apps can run"), INSTALL),
        (Some(version), Some(error), _) => {
            let fix = format!("install it again: {place} -m pip install --force-reinstall flwr=={version}");
            Check::problem("python", format!("{python}: flwr {version} cannot be imported ({error})"), fix)
        }
        (Some(version), None, Some(release)) if release.is_supported() => {
            Check::ok("python", format!("flwr {version}, {python}"))
        }
        (Some(version), None, _) => {
            let (oldest, newest) = (Release::OLDEST.series(), Release::NEWEST.series());
            let found = format!("flwr {version}, {python}; supported releases are {oldest} to {newest}");
            let end = Release::of(Release::NEWEST.minor + 1).series();
            Check::warning("python", found, format!("{place} -m pip install 'flwr>={oldest},<{end}'"))
        }
    }
}

pub fn connections(connections: &Connections) -> Check {
    let Some(path) = &connections.path else {
        let fix = "set FLWR_HOME to a directory that you own";
        return Check::warning("flwr config", "neither FLWR_HOME nor HOME is set: flwr has no configuration file", fix);
    };
    let place = path.display();
    match &connections.ours {
        None => {
            Check::ok("flwr config", format!("{place} does not exist yet; `trellis up` writes its connection there"))
        }
        Some(Err(why)) => {
            let first = why.lines().next().unwrap_or_default();
            let fix = format!("correct or remove {place}: flwr does not start with it");
            Check::problem("flwr config", format!("{place} cannot be read: {first}"), fix)
        }
        Some(Ok(names)) if names.is_empty() => {
            Check::ok("flwr config", format!("{place}, with no connection of Trellis"))
        }
        Some(Ok(names)) => {
            Check::ok("flwr config", format!("{place}, with {}: flwr run . {}", names.join(", "), names[0]))
        }
    }
}
