//! Built-in apps.

use trellis_api::{AppDescription, Apps, SettingDescription};
use trellis_native::{NODE_SETTINGS, builtins};
use trellis_spec::STRATEGIES;
use trellis_train::settings::{SETTINGS, find};
use trellis_train::submit::NATIVE;

pub fn apps() -> Apps {
    let app = |app: &trellis_native::Description| AppDescription {
        name: format!("{NATIVE}{}", app.name),
        summary: app.summary.to_owned(),
        settings: app.settings.iter().filter(|setting| is_of_runs(setting)).map(of_app).collect(),
    };
    let training = SETTINGS.iter().map(|setting| SettingDescription {
        name: setting.name.to_owned(),
        help: setting.help.to_owned(),
        expects: setting.kind.expected(),
        default: setting.default.to_owned(),
    });
    Apps {
        apps: builtins().iter().map(app).collect(),
        training: training.collect(),
        strategies: STRATEGIES.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// Whether a run may set it and it is not a setting of the training, which is listed separately.
fn is_of_runs(setting: &trellis_native::Setting) -> bool {
    !NODE_SETTINGS.contains(&setting.name) && find(setting.name).is_none()
}

fn of_app(setting: &trellis_native::Setting) -> SettingDescription {
    SettingDescription {
        name: setting.name.to_owned(),
        help: setting.help.to_owned(),
        expects: String::new(),
        default: setting.default.to_owned(),
    }
}
