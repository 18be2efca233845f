//! systemd units. Values are quoted so that they cannot add directives. Pure.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Program, Recipe};
use crate::place::{Place, USER};
use crate::settings::Role;

/// The value cannot be represented in a unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {unit} has a control character, which systemd cannot represent")]
pub struct Unrepresentable {
    pub unit: String,
    pub what: String,
}

/// `trellis-superlink.service`
pub fn name(program: &Program) -> String {
    format!("trellis-{}.service", program.name)
}

/// Unit of a program.
pub fn render(program: &Program, recipe: &Recipe, place: &Place) -> Result<String, Unrepresentable> {
    let unit = name(program);
    let say = |what: &str, text: &str, dollars: bool| {
        let unrepresentable = || Unrepresentable { unit: unit.clone(), what: what.to_owned() };
        quoted(text, dollars).ok_or_else(unrepresentable)
    };
    let mut text = format!(
        "# Files: {:016x}\n[Unit]\nDescription={}\nWants=network-online.target\nAfter=network-online.target nftables.service trellis-agent.service\n\
         StartLimitIntervalSec=0\n\n[Service]\nType=exec\n",
        recipe.digest(),
        program.description
    );
    for command in &program.before {
        let words: Result<Vec<_>, _> =
            command.iter().map(|word| say("a command before the start", word, true)).collect();
        let _ = writeln!(text, "ExecStartPre=-{}", words?.join(" "));
    }
    if program.name == Role::SuperLink.name() {
        // After a reboot the unit may start before the agent, so it loads the firewall rules first.
        let rules = say("the firewall's file", &place.firewall().display().to_string(), true)?;
        let _ = writeln!(text, "ExecStartPre=+/usr/sbin/nft -f {rules}");
    }
    let path = program.path.display().to_string();
    let words = std::iter::once(&path).chain(&program.args);
    let words: Result<Vec<_>, _> = words.map(|word| say("an argument", word, true)).collect();
    let _ = writeln!(text, "ExecStart={}", words?.join(" "));
    for (name, value) in &program.env {
        let _ = writeln!(text, "Environment={}", say("the environment", &format!("{name}={value}"), false)?);
    }
    if let Some(log) = &program.log {
        let log = log.display().to_string().replace('%', "%%");
        let _ = writeln!(text, "StandardOutput=truncate:{log}\nStandardError=inherit");
    }
    text.push_str("Restart=always\nRestartSec=2\nKillMode=mixed\nTimeoutStopSec=30\nUMask=0077\nLimitNOFILE=1048576\n");
    if !program.as_root {
        text.push_str(&hardened(recipe, place, &say)?);
    }
    text.push_str("\n[Install]\nWantedBy=multi-user.target\n");
    Ok(text)
}

fn hardened(
    recipe: &Recipe,
    place: &Place,
    say: &impl Fn(&str, &str, bool) -> Result<String, Unrepresentable>,
) -> Result<String, Unrepresentable> {
    let mut text = format!(
        "User={USER}\nGroup={USER}\nNoNewPrivileges=yes\nCapabilityBoundingSet=\nAmbientCapabilities=\n\
         ProtectSystem=strict\nProtectHome=yes\nPrivateTmp=yes\nProtectKernelTunables=yes\nProtectKernelModules=yes\n\
         ProtectControlGroups=yes\nRestrictSUIDSGID=yes\nRestrictNamespaces=yes\nLockPersonality=yes\n\
         RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\nSystemCallArchitectures=native\n"
    );
    for path in &recipe.directories {
        let _ = writeln!(text, "ReadWritePaths={}", say("a directory", &path.display().to_string(), false)?);
    }
    let hidden = say("a directory", &place.authority().display().to_string(), false)?;
    let _ = writeln!(text, "InaccessiblePaths=-{hidden}");
    Ok(text)
}

/// Quotes a value as one word. `None` if systemd cannot represent it.
fn quoted(text: &str, dollars: bool) -> Option<String> {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            letter if letter.is_control() => return None,
            '"' | '\\' => quoted.extend(['\\', letter]),
            '%' => quoted.push_str("%%"),
            '$' if dollars => quoted.push_str("$$"),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    Some(quoted)
}

/// Unit of the agent.
pub fn agent(place: &Place) -> String {
    let program = place.program.display();
    format!(
        "[Unit]\nDescription=Agent of the Trellis appliance\nWants=network-online.target\nAfter=network-online.target\n\
         StartLimitIntervalSec=0\n\n[Service]\nType=exec\nExecStartPre=\"{program}\" appliance state-disk\n\
         ExecStart=\"{program}\" appliance agent --supervisor systemd\n\
         Restart=always\nRestartSec=5\nKillMode=mixed\nTimeoutStopSec=30\nUMask=0077\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

/// Unit for machines without one-apps. It ends the boot when the agent reports success. The agent reads the context itself,
/// so the unit does not.
pub fn appliance(place: &Place) -> String {
    let program = place.program.display();
    format!(
        "[Unit]\nDescription=Trellis appliance, as the context says\nWants=network-online.target\n\
         After=network-online.target one-context.service\nConditionPathExists=!/etc/one-appliance/service\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=\"{program}\" appliance bootstrap\nTimeoutStartSec=600\nUMask=0077\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

/// Units of a recipe, by path.
pub fn all(recipe: &Recipe, place: &Place) -> Result<Vec<(PathBuf, String)>, Unrepresentable> {
    let unit = |program: &Program| Ok((place.units().join(name(program)), render(program, recipe, place)?));
    recipe.programs.iter().map(unit).collect()
}
