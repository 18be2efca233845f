//! What can be run without bringing an app.

use trellis_api::{AppDescription, Apps, SettingDescription};
use trellis_native::builtins;
use trellis_spec::STRATEGIES;
use trellis_train::settings::SETTINGS;
use trellis_train::submit::NATIVE;

pub fn apps() -> Apps {
    let app = |app: &trellis_native::Description| AppDescription {
        name: format!("{NATIVE}{}", app.name),
        summary: app.summary.to_owned(),
        settings: app.settings.iter().map(of_app).collect(),
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

fn of_app(setting: &trellis_native::Setting) -> SettingDescription {
    SettingDescription {
        name: setting.name.to_owned(),
        help: setting.help.to_owned(),
        expects: String::new(),
        default: setting.default.to_owned(),
    }
}
