use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use trellis_flower::Release;

use super::*;

fn connection() -> Connection {
    Connection {
        control: Some("127.0.0.1:9093".to_owned()),
        http: Some("127.0.0.1:8000".to_owned()),
        root_certificates: Some("PEM".to_owned()),
        ..Default::default()
    }
}

fn done(written: &Written) -> Vec<&Outcome> {
    written.changes.iter().map(|change| &change.done).collect()
}

#[test]
fn a_new_file_is_created_and_removed_with_the_connection() {
    let home = tempfile::tempdir().unwrap();
    let (flwr, ca) = (home.path().join("flwr"), home.path().join("ca.crt"));
    let written = write(Some(&flwr), None, "local", &connection(), Some(&ca), None).unwrap();
    assert_eq!(done(&written), [&Outcome::Added]);
    let text = fs::read_to_string(flwr.join("config.toml")).unwrap();
    let expected = format!(
        "{NEW_FILE}\n[superlink]\ndefault = \"local\"\n\n{}\n[superlink.local]\naddress = \"127.0.0.1:8000\"\n\
         root-certificates = \"{}\"\n",
        block::MARK,
        ca.display()
    );
    assert_eq!(text, expected);
    assert_eq!(ours(&text), Ok(vec!["local".to_owned()]));
    let again = write(Some(&flwr), None, "local", &connection(), Some(&ca), None).unwrap();
    assert_eq!(done(&again), [&Outcome::Unchanged]);
    let removed = remove(Some(&flwr), None, "local", Some(&ca)).unwrap();
    assert_eq!(done(&removed), [&Outcome::Removed]);
    assert!(!flwr.join("config.toml").exists());
    assert_eq!(done(&remove(Some(&flwr), None, "local", Some(&ca)).unwrap()), [&Outcome::NotThere]);
}

#[test]
fn links_and_permissions_of_files_are_kept() {
    let home = tempfile::tempdir().unwrap();
    let (real, link) = (home.path().join("dotfiles.toml"), home.path().join("config.toml"));
    fs::write(&real, "[superlink]\n").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&real, &link).unwrap();
    let written = write(Some(home.path()), None, "local", &connection(), Some(Path::new("/ca.crt")), None).unwrap();
    assert!(written.is_ready());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(fs::read_to_string(&real).unwrap().contains("[superlink.local]"));
}

#[test]
fn a_file_that_cannot_be_changed_is_reported_with_the_lines_to_add() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config.toml");
    fs::write(&config, "[superlink\n").unwrap();
    let written = write(Some(home.path()), None, "local", &connection(), Some(Path::new("/ca.crt")), None).unwrap();
    assert!(!written.is_ready());
    let text = written.lines().join("\n");
    assert!(text.contains("no valid TOML") && text.contains("    [superlink.local]\n    address"), "{text}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "[superlink\n");
    assert!(!remove(Some(home.path()), None, "local", None).unwrap().is_ready());
}

#[test]
fn the_values_of_a_connection() {
    let ca = Path::new("/ca.crt");
    let text = |connection: &Connection, ca| values(connection, ca).map(|values| values.to_string());
    assert_eq!(
        text(&connection(), Some(ca)).unwrap(),
        "address = \"127.0.0.1:8000\"\nroot-certificates = \"/ca.crt\"\n"
    );
    let insecure = Connection { insecure: true, ..connection() };
    assert_eq!(text(&insecure, Some(ca)).unwrap(), "address = \"127.0.0.1:8000\"\ninsecure = true\n");
    let by_system = Connection { root_certificates: None, http: None, ..connection() };
    assert_eq!(text(&by_system, None).unwrap(), "address = \"127.0.0.1:9093\"\n");
    assert_eq!(text(&connection(), None), Err(Error::NoCertificates));
    assert_eq!(text(&Connection::default(), None), Err(Error::NoAddress));
    assert_eq!(write(None, None, "default", &connection(), Some(ca), None), Err(Error::ReservedName));
}

#[test]
fn apps_that_read_connections() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (Release::read("1.25.0"), Release::read("1.42.0.dev1"));
    let found = |text: &str, release| {
        fs::write(directory.path().join("pyproject.toml"), text).unwrap();
        app_here(directory.path(), release).is_some()
    };
    assert_eq!(app_here(&directory.path().join("nowhere"), old), None);
    assert!(!found("[project]\nname = 'x'\n", old));
    assert!(!found("[tool.flwr.app\n", old));
    let app = "[tool.flwr.app]\npublisher = 'x'\n";
    assert_eq!([old, new, None].map(|release| found(app, release)), [true, false, false]);
    let with = format!("{app}[tool.flwr.federations]\ndefault = 'x'\n");
    assert_eq!([old, new, None].map(|release| found(&with, release)), [true, false, true]);
}

#[test]
fn entries_in_apps_are_added_and_removed_and_other_lines_stay() {
    let home = tempfile::tempdir().unwrap();
    let (here, ca) = (Some(home.path()), Some(Path::new("/ca.crt")));
    let app = home.path().join("pyproject.toml");
    let bare = "[tool.flwr.app]\npublisher = 'x'\n";
    let own = format!("{bare}\n[tool.flwr.federations]\ndefault = 'far'\n[tool.flwr.federations.far]\naddress = 'x'\n");
    for (before, ours) in [
        (bare, "[tool.flwr.federations]\ndefault = \"lab\"\nlab = { address = \"127.0.0.1:8000\""),
        (own.as_str(), "[tool.flwr.federations.lab]\naddress = \"127.0.0.1:8000\"\n"),
    ] {
        fs::write(&app, before).unwrap();
        write(here, here, "lab", &connection(), ca, None).unwrap();
        let text = fs::read_to_string(&app).unwrap();
        assert!(text.starts_with(before) && text.contains(ours), "{text}");
        let moved = Connection { http: Some("127.0.0.1:7000".to_owned()), ..connection() };
        assert_eq!(done(&write(here, here, "lab", &moved, ca, None).unwrap()), [&Outcome::Changed, &Outcome::Changed]);
        assert_eq!(
            done(&write(here, here, "lab", &moved, ca, None).unwrap()),
            [&Outcome::Unchanged, &Outcome::Unchanged]
        );
        assert_eq!(done(&write(here, here, "ward", &moved, ca, None).unwrap()), [&Outcome::Added, &Outcome::Added]);
        for name in ["ward", "lab"] {
            assert_eq!(done(&remove(here, here, name, None).unwrap()), [&Outcome::Removed, &Outcome::Removed]);
        }
        assert_eq!(fs::read_to_string(&app).unwrap(), before);
    }
}

#[test]
fn a_token_is_stored_and_removed_with_the_connection_for_every_release() {
    let home = tempfile::tempdir().unwrap();
    let (flwr, app) = (home.path().join("flwr"), home.path().join("app"));
    fs::create_dir(&app).unwrap();
    let project = "[tool.flwr.app]\npublisher = \"me\"\n";
    fs::write(app.join("pyproject.toml"), project).unwrap();
    let (ca, token) = (Path::new("/ca.crt"), Token::parse("hush").unwrap());
    let written = write(Some(&flwr), Some(&app), "local", &connection(), Some(ca), Some(&token)).unwrap();
    assert!(written.is_ready(), "{written:?}");
    assert!(!written.lines().join("\n").contains("hush"));
    let kept = fs::read_to_string(flwr.join("credentials.yaml")).unwrap();
    assert!(kept.contains("127.0.0.1:8000.oidc-access-token: aHVzaA=="), "{kept}");
    let older = fs::read_to_string(app.join("pyproject.toml")).unwrap();
    assert!(older.contains("enable-account-auth = true"), "{older}");
    assert!(app.join(".flwr/.credentials/local.json").is_file());
    assert!(!fs::read_to_string(flwr.join("config.toml")).unwrap().contains("enable-account-auth"));

    // The token of an address is removed when the address changes.
    let moved = Connection { http: Some("127.0.0.1:7000".to_owned()), ..connection() };
    write(Some(&flwr), Some(&app), "local", &moved, Some(ca), Some(&token)).unwrap();
    let kept = fs::read_to_string(flwr.join("credentials.yaml")).unwrap();
    assert!(kept.contains("127.0.0.1:7000.") && !kept.contains("127.0.0.1:8000."), "{kept}");

    assert!(remove(Some(&flwr), Some(&app), "local", Some(ca)).unwrap().is_ready());
    assert_eq!(fs::read_dir(&flwr).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(app.join("pyproject.toml")).unwrap(), project);
    assert!(!app.join(".flwr").exists());
}

#[test]
fn entries_are_removed_from_all_apps() {
    let home = tempfile::tempdir().unwrap();
    let (flwr, project) = (home.path().join("flwr"), "[tool.flwr.app]\npublisher = \"me\"\n");
    let apps = ["one", "two"].map(|name| home.path().join(name));
    for app in &apps {
        fs::create_dir(app).unwrap();
        fs::write(app.join(PYPROJECT), project).unwrap();
        assert!(
            write(Some(&flwr), Some(app), "local", &connection(), Some(Path::new("/ca.crt")), None).unwrap().is_ready()
        );
        assert_ne!(fs::read_to_string(app.join(PYPROJECT)).unwrap(), project);
    }
    // A deleted app does not prevent the removal from others.
    let lost = home.path().join("lost");
    write(Some(&flwr), Some(&lost), "local", &connection(), Some(Path::new("/ca.crt")), None).unwrap();
    fs::remove_dir_all(&lost).unwrap();
    let removed = remove(Some(&flwr), None, "local", Some(Path::new("/ca.crt"))).unwrap();
    assert!(removed.is_ready(), "{removed:?}");
    for app in &apps {
        assert_eq!(fs::read_to_string(app.join(PYPROJECT)).unwrap(), project);
    }
    assert_eq!(fs::read_dir(&flwr).unwrap().count(), 0);
}
