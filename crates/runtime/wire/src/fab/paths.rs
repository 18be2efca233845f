//! Path settings of native runs on the SuperLink's machine. Submitted runs may only name paths below the models
//! directory. Pure: the caller that opens a path checks symbolic links.

use std::path::{Component, Path};

use super::Config;
use crate::proto::Scalar;
use crate::proto::scalar::Scalar::String as Text;

/// Settings whose value is a path or a run id.
pub const PATH_SETTINGS: [&str; 3] = ["checkpoint-path", "resume", "initial-model"];

/// A path outside the models directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{setting} = {path:?}: a run that is submitted to a SuperLink may only use paths below the SuperLink's directory of \
     models; give one that is relative to it, without \"..\""
)]
pub struct OutsideModels {
    pub setting: &'static str,
    pub path: String,
}

/// Returns the non-empty path settings in `config`.
pub fn path_settings(config: &Config) -> impl Iterator<Item = (&'static str, &str)> {
    PATH_SETTINGS.into_iter().filter_map(|setting| match config.get(setting) {
        Some(Scalar { scalar: Some(Text(path)) }) if !path.is_empty() => Some((setting, path.as_str())),
        _ => None,
    })
}

/// Checks one path of a submitted run lexically.
pub fn check_path(setting: &'static str, path: &str) -> Result<(), OutsideModels> {
    let stays = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    if Path::new(path).components().all(stays) && !path.contains('\0') {
        return Ok(());
    }
    Err(OutsideModels { setting, path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_models_directory_pass() {
        for good in ["1234", "1234@5", "1234/round-000005", "./first.npz", "mine/first.safetensors", "..first"] {
            assert_eq!(check_path("resume", good), Ok(()), "{good}");
        }
        for bad in ["/etc/passwd", "..", "../x", "a/../../x", "a/..", "a\0b"] {
            assert!(check_path("resume", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn path_settings_are_non_empty_strings() {
        let text = |text: &str| Scalar { scalar: Some(Text(text.to_owned())) };
        let switch = Scalar { scalar: Some(crate::proto::scalar::Scalar::Bool(true)) };
        let config =
            [("resume", switch), ("initial-model", text("a")), ("checkpoint-path", text("")), ("x", text("/"))];
        let config: Config = config.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(path_settings(&config).collect::<Vec<_>>(), [("initial-model", "a")]);
    }
}
