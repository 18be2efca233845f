//! Official Flower beside us: its Python, and what its command line knows of us.

use trellis_flower::Release;

use crate::doctor::check::Check;
use crate::doctor::facts::Connections;
use crate::python::FlwrHere;

pub fn python(found: Option<&FlwrHere>) -> Check {
    const INSTALL: &str = "pip install flwr, in the environment that is active when nodes start; native apps need none";
    let Some(here) = found else {
        return Check::warning("python", "there is no Python on PATH: only native apps can be run", INSTALL);
    };
    let place = here.interpreter.display();
    let answer = match &here.answer {
        Err(why) => {
            let fix = "repair that environment, or put another one first on PATH";
            return Check::problem("python", format!("{place}: {why}"), fix);
        }
        Ok(answer) => answer,
    };
    let python = format!("Python {} at {place}", answer.python);
    match (&answer.flwr, &answer.trouble, here.release()) {
        (None, ..) => Check::warning("python", format!("{python} has no flwr: only native apps can be run"), INSTALL),
        (Some(version), Some(trouble), _) => {
            let fix = format!("install it again: {place} -m pip install --force-reinstall flwr=={version}");
            Check::problem("python", format!("{python}: flwr {version} cannot be imported ({trouble})"), fix)
        }
        (Some(version), None, Some(release)) if release.is_supported() => {
            Check::ok("python", format!("flwr {version}, {python}"))
        }
        (Some(version), None, _) => {
            let (oldest, newest) = (Release::OLDEST.series(), Release::NEWEST.series());
            let found = format!("flwr {version}, {python}; known to work are {oldest} to {newest}");
            let end = Release::of(Release::NEWEST.minor + 1).series();
            Check::warning("python", found, format!("{place} -m pip install 'flwr>={oldest},<{end}'"))
        }
    }
}

pub fn connections(connections: &Connections) -> Check {
    let Some(path) = &connections.path else {
        let fix = "set FLWR_HOME to a directory of yours";
        return Check::warning(
            "flwr config",
            "neither FLWR_HOME nor HOME is set: flwr has no place for connections",
            fix,
        );
    };
    let place = path.display();
    match &connections.ours {
        None => Check::ok("flwr config", format!("{place} is not there yet; `trellis up` writes its connection to it")),
        Some(Err(why)) => {
            let first = why.lines().next().unwrap_or_default();
            let fix = format!("correct {place} or move it away: flwr refuses to work with it");
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
