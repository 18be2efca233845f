use super::*;

fn wish<'a>(parent: &'a [&'a str], name: &'a str) -> Wish<'a> {
    let values = "address = '127.0.0.1:8000'\nroot-certificates = '/state/ca.crt'".parse().unwrap();
    Wish { parent, name, values }
}

const OURS: &str = "\
# Trellis wrote this connection, and takes it away with its federation.
[superlink.local]
address = \"127.0.0.1:8000\"
root-certificates = \"/state/ca.crt\"
";

/// What others wrote comes before and after; ours is put after it and taken from anywhere.
const THEIRS: &str =
    "# my own\n[superlink]\ndefault = 'far'   # the lab\n\n[superlink.far]\naddress = \"far:9093\" # gRPC\n";

fn added(text: &str) -> String {
    match put(text, &wish(&["superlink"], "local")) {
        Ok(Put::Added(text)) => text,
        other => panic!("{text:?}: {other:?}"),
    }
}

fn left(text: &str) -> String {
    match take(text, &wish(&["superlink"], "local")) {
        Ok(Taken::Left(text)) => text,
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn a_connection_is_put_at_the_end_and_taken_from_there() {
    assert_eq!(added(""), OURS);
    assert_eq!(left(OURS), "");
    let with = added(THEIRS);
    assert_eq!(with, format!("{THEIRS}\n{OURS}"));
    assert_eq!(put(&with, &wish(&["superlink"], "local")), Ok(Put::Unchanged));
    assert_eq!(left(&with), THEIRS);
    assert_eq!(take(THEIRS, &wish(&["superlink"], "local")), Ok(Taken::Nothing));
}

#[test]
fn a_connection_between_others_changes_where_it_is() {
    let after = "# of another tool\n[other]\nx = [\n  1,\n]\n";
    let old = OURS.replace("8000", "7000");
    let text = format!("{THEIRS}\n{old}federation = \"mine\"\n\n{after}");
    let Ok(Put::Changed(text)) = put(&text, &wish(&["superlink"], "local")) else { panic!("it was ours") };
    assert_eq!(text, format!("{THEIRS}\n{OURS}\n{after}"));
    assert_eq!(left(&text), format!("{THEIRS}\n\n{after}"));
}

#[test]
fn the_apps_of_1_25() {
    let app = "[project]\nname = \"a\"\n[tool.flwr.app]\npublisher = \"x\"\n";
    let Ok(Put::Added(text)) = put(app, &wish(&["tool", "flwr", "federations"], "local")) else { panic!("no room") };
    assert!(text.ends_with(
        "\n[tool.flwr.federations.local]\naddress = \"127.0.0.1:8000\"\nroot-certificates = \"/state/ca.crt\"\n"
    ));
    let taken = take(&text, &wish(&["tool", "flwr", "federations"], "local"));
    assert_eq!(taken, Ok(Taken::Left(app.to_owned())));
}

#[test]
fn what_is_not_ours_stays() {
    let cases = [
        ("[superlink.local]\naddress = 'mine:9093'\n", Hindrance::TakenByOthers),
        ("[superlink]\nlocal = 'x'\n", Hindrance::TakenByOthers),
        ("superlink = { local = { address = 'mine:9093' } }\n", Hindrance::Unusual),
        ("superlink = { far = {} }\n", Hindrance::Unusual),
        ("superlink = 'x'\n", Hindrance::Unusual),
        ("[superlink]\nlocal.address = 'mine:9093'\n", Hindrance::Unusual),
        // Edited, and made his own by removing the mark.
        ("[superlink.local]\naddress = '127.0.0.1:8000'\nroot-certificates = '/my/ca.crt'\n", Hindrance::TakenByOthers),
    ];
    for (text, why) in cases {
        assert_eq!(put(text, &wish(&["superlink"], "local")), Err(why), "{text}");
        assert!(!matches!(take(text, &wish(&["superlink"], "local")), Ok(Taken::Left(_))), "{text}");
    }
    let Err(Hindrance::Unreadable(why)) = put("[superlink\n", &wish(&["superlink"], "local")) else {
        panic!("it was read")
    };
    assert!(why.contains("line 1"), "{why}");
}

#[test]
fn the_usual_entry_of_flower_comes_back() {
    let usual = [
        "address = \":local:\"\n",
        "options.num-supernodes = 10\noptions.backend.client-resources.num-cpus = 1\n\
         options.backend.client-resources.num-gpus = 0\n",
    ];
    for body in usual {
        let before = format!(
            "[superlink]\ndefault = \"local\"\n\n[superlink.local]\n{body}\n[superlink.far]\naddress = \"x\"\n"
        );
        let Ok(Put::InsteadOfUsual(text)) = put(&before, &wish(&["superlink"], "local")) else { panic!("{body}") };
        assert!(text.contains("#was: ") && text.contains("127.0.0.1:8000"), "{text}");
        // Changed once more it is still remembered.
        let moved = text.replace("127.0.0.1:8000", "127.0.0.1:7000");
        let Ok(Put::Changed(text)) = put(&moved, &wish(&["superlink"], "local")) else { panic!("{moved}") };
        assert_eq!(left(&text), before);
    }
    let other_name = "[superlink.lab]\naddress = ':local:'\n";
    assert_eq!(put(other_name, &wish(&["superlink"], "lab")), Err(Hindrance::TakenByOthers));
}

/// As Flower's command leaves the file when it has moved settings of an app there.
#[test]
fn a_file_that_lost_its_comments() {
    let bare: String = OURS.lines().skip(1).map(|line| format!("{line}\n")).collect();
    assert_eq!(left(&bare), "");
    let Ok(Put::Changed(text)) = put(&bare, &wish(&["superlink"], "local")) else { panic!("not known again") };
    assert_eq!(text, OURS);
}

#[test]
fn names_that_need_quotes() {
    let Ok(Put::Added(text)) = put("", &wish(&["superlink"], "a.b")) else { panic!("no room") };
    assert!(text.contains("[superlink.\"a.b\"]\n"), "{text}");
    assert!(is_marked(&text, &["superlink"], "a.b") && !is_marked(&text, &["superlink"], "a"));
    assert_eq!(take(&text, &wish(&["superlink"], "a.b")), Ok(Taken::Left(String::new())));
    let spaced = OURS.replace("[superlink.local]", "  [ superlink . 'local' ] # here");
    assert_eq!(left(&spaced), "");
}

#[test]
fn brackets_within_texts_are_no_headers() {
    let text = format!("{OURS}\n[notes]\nlong = '''\n[superlink.local]\n'''\n");
    assert_eq!(left(&text), "\n[notes]\nlong = '''\n[superlink.local]\n'''\n");
    let hidden = format!("[notes]\nlong = '''\n[superlink.local]\n'''\n\n{OURS}");
    assert_eq!(take(&hidden, &wish(&["superlink"], "local")), Err(Hindrance::Unusual));
}
