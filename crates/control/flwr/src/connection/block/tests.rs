use super::*;

fn entry<'a>(parent: &'a [&'a str], name: &'a str) -> Entry<'a> {
    let values = "address = '127.0.0.1:8000'\nroot-certificates = '/state/ca.crt'".parse().unwrap();
    Entry { parent, name, values }
}

const OURS: &str = "\
# Trellis wrote this connection, and takes it away with its federation.
[superlink.local]
address = \"127.0.0.1:8000\"
root-certificates = \"/state/ca.crt\"
";

/// Content that is not ours.
const THEIRS: &str =
    "# my own\n[superlink]\ndefault = 'far'   # the lab\n\n[superlink.far]\naddress = \"far:9093\" # gRPC\n";

fn added(text: &str) -> String {
    match put(text, &entry(&["superlink"], "local")) {
        Ok(Put::Added(text)) => text,
        other => panic!("{text:?}: {other:?}"),
    }
}

fn removed(text: &str) -> String {
    match remove(text, &entry(&["superlink"], "local")) {
        Ok(Removal::Removed(text)) => text,
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn a_connection_is_added_at_the_end_and_removed_there() {
    assert_eq!(added(""), OURS);
    assert_eq!(removed(OURS), "");
    let with = added(THEIRS);
    assert_eq!(with, format!("{THEIRS}\n{OURS}"));
    assert_eq!(put(&with, &entry(&["superlink"], "local")), Ok(Put::Unchanged));
    assert_eq!(removed(&with), THEIRS);
    assert_eq!(remove(THEIRS, &entry(&["superlink"], "local")), Ok(Removal::NotFound));
}

#[test]
fn a_connection_between_others_is_changed_in_place() {
    let after = "# of another tool\n[other]\nx = [\n  1,\n]\n";
    let old = OURS.replace("8000", "7000");
    let text = format!("{THEIRS}\n{old}federation = \"mine\"\n\n{after}");
    let Ok(Put::Changed(text)) = put(&text, &entry(&["superlink"], "local")) else { panic!("it was ours") };
    assert_eq!(text, format!("{THEIRS}\n{OURS}\n{after}"));
    assert_eq!(removed(&text), format!("{THEIRS}\n\n{after}"));
}

#[test]
fn the_apps_of_1_25() {
    let app = "[project]\nname = \"a\"\n[tool.flwr.app]\npublisher = \"x\"\n";
    let Ok(Put::Added(text)) = put(app, &entry(&["tool", "flwr", "federations"], "local")) else { panic!("no room") };
    assert!(text.ends_with(
        "\n[tool.flwr.federations.local]\naddress = \"127.0.0.1:8000\"\nroot-certificates = \"/state/ca.crt\"\n"
    ));
    let without = remove(&text, &entry(&["tool", "flwr", "federations"], "local"));
    assert_eq!(without, Ok(Removal::Removed(app.to_owned())));
}

#[test]
fn entries_of_others_are_not_changed() {
    let cases = [
        ("[superlink.local]\naddress = 'mine:9093'\n", EditError::Foreign),
        ("[superlink]\nlocal = 'x'\n", EditError::Foreign),
        ("superlink = { local = { address = 'mine:9093' } }\n", EditError::Unusual),
        ("superlink = { far = {} }\n", EditError::Unusual),
        ("superlink = 'x'\n", EditError::Unusual),
        ("[superlink]\nlocal.address = 'mine:9093'\n", EditError::Unusual),
        // The user removed the mark and edited the entry.
        ("[superlink.local]\naddress = '127.0.0.1:8000'\nroot-certificates = '/my/ca.crt'\n", EditError::Foreign),
    ];
    for (text, why) in cases {
        assert_eq!(put(text, &entry(&["superlink"], "local")), Err(why), "{text}");
        assert!(!matches!(remove(text, &entry(&["superlink"], "local")), Ok(Removal::Removed(_))), "{text}");
    }
    let Err(EditError::Unreadable(why)) = put("[superlink\n", &entry(&["superlink"], "local")) else {
        panic!("it was read")
    };
    assert!(why.contains("line 1"), "{why}");
}

#[test]
fn the_default_entry_of_flower_is_restored() {
    let defaults = [
        "address = \":local:\"\n",
        "options.num-supernodes = 10\noptions.backend.client-resources.num-cpus = 1\n\
         options.backend.client-resources.num-gpus = 0\n",
    ];
    for body in defaults {
        let before = format!(
            "[superlink]\ndefault = \"local\"\n\n[superlink.local]\n{body}\n[superlink.far]\naddress = \"x\"\n"
        );
        let Ok(Put::ReplacedDefault(text)) = put(&before, &entry(&["superlink"], "local")) else { panic!("{body}") };
        assert!(text.contains("#was: ") && text.contains("127.0.0.1:8000"), "{text}");
        // A further change keeps the replaced lines.
        let moved = text.replace("127.0.0.1:8000", "127.0.0.1:7000");
        let Ok(Put::Changed(text)) = put(&moved, &entry(&["superlink"], "local")) else { panic!("{moved}") };
        assert_eq!(removed(&text), before);
    }
    let other_name = "[superlink.lab]\naddress = ':local:'\n";
    assert_eq!(put(other_name, &entry(&["superlink"], "lab")), Err(EditError::Foreign));
}

/// Flower's command drops comments when it migrates settings of an app.
#[test]
fn a_file_that_lost_its_comments() {
    let bare: String = OURS.lines().skip(1).map(|line| format!("{line}\n")).collect();
    assert_eq!(removed(&bare), "");
    let Ok(Put::Changed(text)) = put(&bare, &entry(&["superlink"], "local")) else { panic!("not known again") };
    assert_eq!(text, OURS);
}

#[test]
fn names_that_need_quotes() {
    let Ok(Put::Added(text)) = put("", &entry(&["superlink"], "a.b")) else { panic!("no room") };
    assert!(text.contains("[superlink.\"a.b\"]\n"), "{text}");
    assert!(is_marked(&text, &["superlink"], "a.b") && !is_marked(&text, &["superlink"], "a"));
    assert_eq!(remove(&text, &entry(&["superlink"], "a.b")), Ok(Removal::Removed(String::new())));
    let spaced = OURS.replace("[superlink.local]", "  [ superlink . 'local' ] # here");
    assert_eq!(removed(&spaced), "");
}

#[test]
fn brackets_within_texts_are_no_headers() {
    let text = format!("{OURS}\n[notes]\nlong = '''\n[superlink.local]\n'''\n");
    assert_eq!(removed(&text), "\n[notes]\nlong = '''\n[superlink.local]\n'''\n");
    let hidden = format!("[notes]\nlong = '''\n[superlink.local]\n'''\n\n{OURS}");
    assert_eq!(remove(&hidden, &entry(&["superlink"], "local")), Err(EditError::Unusual));
}
