//! systemd unit that brings a tunnel up at boot, and down at shutdown.

/// `up` and `down` are commands in order.
pub fn unit(description: &str, up: &[Vec<String>], down: &[Vec<String>]) -> String {
    let plain: String = description.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut text = format!(
        "[Unit]\nDescription={}\nWants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\n",
        plain.replace('%', "%%")
    );
    let mut lines = |key: &str, commands: &[Vec<String>]| {
        for command in commands {
            let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
            text += &format!("{key}={}\n", words.join(" "));
        }
    };
    lines("ExecStart", up);
    lines("ExecStop", down);
    text += "\n[Install]\nWantedBy=multi-user.target\n";
    text
}

/// Quotes an argument: systemd would expand `%`, `$` and backslashes.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for letter in word.chars() {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            '%' | '$' => text.extend([letter, letter]),
            '\n' => text.push_str("\\n"),
            letter if letter.is_control() => text += &format!("\\x{:02x}", u32::from(letter)),
            letter => text.push(letter),
        }
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_has_its_commands_in_order_and_nothing_else() {
        let command = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
        let made = unit(
            "Tunnel of 100%\nsites",
            &[command("ip|link|add"), command("echo|a b\"$x%\n")],
            &[command("ip|link|delete")],
        );
        assert_eq!(
            made,
            "[Unit]\nDescription=Tunnel of 100%% sites\nWants=network-online.target\nAfter=network-online.target\n\n\
             [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=ip link add\nExecStart=echo \"a b\\\"$$x%%\\n\"\n\
             ExecStop=ip link delete\n\n[Install]\nWantedBy=multi-user.target\n"
        );
    }
}
