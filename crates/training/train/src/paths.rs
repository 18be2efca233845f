//! Paths in the settings of a run. A run in the process of its own user may use any path. A run submitted to a SuperLink may
//! only use paths below the directory of models.

use std::io;
use std::path::{Path, PathBuf};

use trellis_diagnostic::Diagnostic;
use trellis_wire::fab::{self, Config, check_path, path_settings};

/// Checks the paths of a submitted run. Values from `defaults` are the operator's and may be any path.
pub fn check(config: &Config, defaults: &Config, models_dir: &Path) -> Result<(), Vec<Diagnostic>> {
    let given = path_settings(config).filter(|(setting, _)| config.get(*setting) != defaults.get(*setting));
    let errors: Vec<Diagnostic> = given.filter_map(|(setting, path)| outside(setting, path, models_dir)).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn outside(setting: &'static str, path: &str, models_dir: &Path) -> Option<Diagnostic> {
    let advice = "give a path below the SuperLink's directory of models, relative to it";
    if let Err(fab::OutsideModels { path, .. }) = check_path(setting, path) {
        return Some(Diagnostic::error(setting, format!("{path:?} is not below the directory of models"), advice));
    }
    // `RUN@ROUND` refers to a round in the run's directory.
    let name = path.split_once('@').map_or(path, |(run, _)| run);
    let below = |name: &str| is_below(models_dir, &models_dir.join(name));
    match below(name).and_then(|is_below| Ok(is_below && below(path)?)) {
        Ok(true) => None,
        Ok(false) => Some(Diagnostic::error(setting, format!("{path:?} leads out of the directory of models"), advice)),
        Err(error) => Some(Diagnostic::error(setting, format!("{path:?} cannot be checked: {error}"), advice)),
    }
}

/// Whether the existing part of `path` is below `directory` after all symbolic links are resolved.
fn is_below(directory: &Path, path: &Path) -> io::Result<bool> {
    let directory = existing(directory)?;
    Ok(existing(path)?.starts_with(&directory))
}

/// The canonical path of the existing part of `path`.
fn existing(path: &Path) -> io::Result<PathBuf> {
    for ancestor in path.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
        match ancestor.canonicalize() {
            Ok(real) => return Ok(real),
            // A dangling symbolic link counts as existing: a write would follow it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && ancestor.symlink_metadata().is_err() => {}
            Err(error) => return Err(error),
        }
    }
    Path::new(".").canonicalize()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use trellis_wire::proto::{Scalar, scalar};

    use super::*;

    fn config(setting: &str, path: &str) -> Config {
        let value = Scalar { scalar: Some(scalar::Scalar::String(path.to_owned())) };
        [(setting.to_owned(), value)].into_iter().collect()
    }

    #[test]
    fn a_submitted_run_uses_only_what_is_below_the_directory_of_models() {
        let root = tempfile::tempdir().unwrap();
        let models = root.path().join("models");
        std::fs::create_dir_all(models.join("1234/round-000001")).unwrap();
        std::fs::write(models.join("first.npz"), "").unwrap();
        std::fs::write(root.path().join("secret.npz"), "").unwrap();
        symlink("..", models.join("up")).unwrap();
        std::fs::create_dir(models.join("a")).unwrap();
        symlink("..", models.join("a@b")).unwrap();
        symlink("/nowhere/at/all", models.join("dangling")).unwrap();
        symlink("first.npz", models.join("same")).unwrap();
        symlink(&models, root.path().join("linked")).unwrap();
        let secret = root.path().join("secret.npz").display().to_string();
        for (path, good) in [
            ("first.npz", true),
            ("same", true),
            ("1234", true),
            ("1234@1", true),
            ("1234/round-000001", true),
            ("new/directory", true),
            (&secret, false),
            ("../secret.npz", false),
            ("up/secret.npz", false),
            ("up@1", false),
            ("a@b/secret.npz", false),
            ("dangling", false),
            ("dangling/new", false),
        ] {
            for setting in fab::PATH_SETTINGS {
                let config = config(setting, path);
                for models in [&models, &root.path().join("linked")] {
                    let checked = check(&config, &Config::default(), models);
                    assert_eq!(checked.is_ok(), good, "{setting} = {path}: {checked:?}");
                }
                assert_eq!(check(&config, &config, &models), Ok(()), "the operator's own default");
            }
        }
    }
}
