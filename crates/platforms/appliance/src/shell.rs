//! What other programs are told of the variables: the script for one-apps, and the inputs of templates. Text from the table only;
//! no value of a VM ever comes here.

use crate::context::single_quoted;
use crate::settings::Role;
use crate::variables::{Kind, PREFIX, Status, VARIABLES, Variable};

/// Where the image has the program.
const PROGRAM: &str = "/usr/bin/trellis";

/// One input of a VM template, or of a role or service of OneFlow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserInput {
    /// `ONEAPP_FL_NUM_ROUNDS`
    pub name: String,
    /// `O|number|Rounds of a run||3`
    pub line: String,
    /// What the CONTEXT of the template says for it: `$ONEAPP_FL_NUM_ROUNDS`.
    pub context: String,
}

/// The inputs of a template of that role, in the order of the table. All are optional: what is not given has its default.
pub fn user_inputs(role: Role) -> Vec<UserInput> {
    asked(role).map(|variable| user_input(variable, false)).collect()
}

/// One input; `mandatory` where a template cannot do without, as a site without OneGate needs the SuperLink's address.
pub fn user_input(variable: &Variable, mandatory: bool) -> UserInput {
    let name = format!("{PREFIX}{}", variable.name);
    let need = if mandatory { "M" } else { "O" };
    let kind = if variable.secret { "password" } else { variable.kind.input_type() };
    let options = match variable.kind {
        Kind::Choice(names) if !variable.secret => names.join(","),
        _ => String::new(),
    };
    let line = format!("{need}|{kind}|{}|{options}|{}", variable.about, variable.default);
    UserInput { context: format!("${name}"), name, line }
}

fn asked(role: Role) -> impl Iterator<Item = &'static Variable> {
    VARIABLES
        .iter()
        .filter(move |variable| variable.asked && variable.is_for(role) && variable.status == Status::Effective)
}

/// `/etc/one-appliance/service.d/appliance.sh`: what one-apps asks for, and nothing that decides.
pub fn appliance_sh(role: Role) -> String {
    let title = match role {
        Role::SuperLink => "Flower SuperLink",
        Role::SuperNode => "Flower SuperNode",
        Role::Gateway => "Gateway between Flower sites",
    };
    let name = format!("Service {title} - Trellis");
    let mut text = String::from(
        "#!/usr/bin/env bash\n# Made by: trellis appliance vars -o shell. Changes belong into its table of variables.\n\n",
    );
    for (variable, value) in [
        ("ONE_SERVICE_NAME", name.as_str()),
        ("ONE_SERVICE_VERSION", env!("CARGO_PKG_VERSION")),
        ("ONE_SERVICE_SHORT_DESCRIPTION", title),
        ("ONE_SERVICE_DESCRIPTION", "Federated learning with Flower: all settings are variables of the context."),
    ] {
        text.push_str(&format!("{variable}={}\n", single_quoted(value)));
    }
    text.push_str("ONE_SERVICE_BUILD=\"${ONE_SERVICE_BUILD:-$(date +%s)}\"\nONE_SERVICE_RECONFIGURABLE=true\n\n");
    text.push_str("# Name, stage, description, input\nONE_SERVICE_PARAMS=(\n");
    for variable in asked(role) {
        let input = user_input(variable, false);
        let fields = [input.name.as_str(), variable.stage.name(), variable.about, &input.line].map(single_quoted);
        text.push_str(&format!("    {}\n", fields.join(" ")));
    }
    text.push_str(")\n");
    let install = format!("install --role {} \"$@\"", role.name());
    for (stage, words) in
        [("install", install.as_str()), ("configure", "configure \"$@\""), ("bootstrap", "bootstrap"), ("help", "help")]
    {
        text.push_str(&format!("\nservice_{stage}()\n{{\n    {PROGRAM} appliance {words}\n}}\n"));
    }
    text.push_str("\n# It is called after every stage, also those that went well.\nservice_cleanup()\n{\n    :\n}\n");
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn inputs_have_five_fields_and_an_offered_default() {
        for role in Role::ALL {
            for input in user_inputs(role) {
                let fields: Vec<&str> = input.line.split('|').collect();
                let [need, kind, about, options, default] = fields[..] else { panic!("{}", input.line) };
                assert!(need == "O" && !about.is_empty(), "{}", input.line);
                assert_eq!(kind == "list", !options.is_empty(), "{}", input.line);
                assert!(kind != "list" || options.split(',').any(|option| option == default), "{}", input.line);
                assert!(kind != "boolean" || ["YES", "NO"].contains(&default), "{}", input.line);
                assert_eq!(input.context, format!("${}", input.name));
            }
        }
        let rounds = user_inputs(Role::SuperLink).into_iter().find(|input| input.name == "ONEAPP_FL_NUM_ROUNDS");
        assert_eq!(rounds.map(|input| input.line).as_deref(), Some("O|number|Rounds of a run||3"));
        let address =
            VARIABLES.iter().find(|variable| variable.name == "FL_SUPERLINK_ADDRESS").expect("it is declared");
        assert!(user_input(address, true).line.starts_with("M|text|"));
    }

    /// Sourced as the framework does it: with `set -e`, and asked for what the framework reads.
    #[test]
    fn the_script_says_to_bash_what_the_table_says() {
        for role in Role::ALL {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("appliance.sh");
            std::fs::write(&path, appliance_sh(role)).expect("a script");
            let check = Command::new("bash").arg("-n").arg(&path).status().expect("bash runs");
            assert!(check.success(), "{}", appliance_sh(role));
            let ask = "set -e; . \"$1\"; service_cleanup; type -t service_install service_configure service_bootstrap service_help; \
                       echo \"$ONE_SERVICE_RECONFIGURABLE\"; printf '%s\\n' \"${ONE_SERVICE_PARAMS[@]}\"";
            let told = Command::new("bash").args(["-c", ask, "ask"]).arg(&path).output().expect("bash runs");
            let told = String::from_utf8(told.stdout).expect("text");
            let mut expected = vec!["function".to_owned(); 4];
            expected.push("true".to_owned());
            for (variable, input) in asked(role).zip(user_inputs(role)) {
                expected.extend([input.name, variable.stage.name().to_owned(), variable.about.to_owned(), input.line]);
            }
            assert_eq!(told.lines().collect::<Vec<_>>(), expected);
        }
    }
}
