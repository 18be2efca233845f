use super::*;
use trellis_wire::proto::scalar::Scalar;

fn request(source: Source, given: &[(&str, &str)], defaults: &[(&str, &str)], nodes: Option<usize>) -> Request {
    let given = given.iter().map(|(key, text)| Given {
        written: (*key).to_owned(),
        key: (*key).to_owned(),
        text: (*text).to_owned(),
    });
    let defaults = defaults.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
    Request { source, given: given.collect(), defaults: defaults.collect(), location: Location::SuperLink { nodes } }
}

fn value(submission: &Submission, key: &str) -> Option<Scalar> {
    submission.values.get(key).and_then(|value| value.scalar.clone())
}

/// A Flower app from a directory, packed like `flwr build` does.
fn bundle(server_app: &str) -> Bundle {
    let directory = tempfile::tempdir().unwrap();
    let project = format!(
        "[project]\nname='app'\nversion='1.0'\n[tool.flwr.app]\npublisher='me'\n[tool.flwr.app.components]\n\
         serverapp='{server_app}'\nclientapp='app:client'\n[tool.flwr.app.config]\nnum-server-rounds=3\nlr=0.1\n"
    );
    std::fs::write(directory.path().join("pyproject.toml"), project).unwrap();
    std::fs::write(directory.path().join("app.py"), "client = 1\n").unwrap();
    Source::directory(directory.path(), ServerAppChoice::Own).unwrap().into_bundle(false).unwrap()
}

#[test]
fn given_values_override_defaults_and_unknown_defaults_are_ignored() {
    let source = Source::built_in("mlp").unwrap();
    let given = [("rounds", "2"), ("hidden", "8")];
    let defaults = [("num-server-rounds", "9"), ("strategy", "FedAdam"), ("hidden", "64"), ("of-another-app", "1")];
    let submission = prepare(request(source, &given, &defaults, Some(3))).unwrap();
    assert_eq!(value(&submission, "num-server-rounds"), Some(Scalar::Sint64(2)));
    assert_eq!(value(&submission, "hidden"), Some(Scalar::Sint64(8)));
    assert_eq!(value(&submission, "strategy"), Some(Scalar::String("FedAdam".to_owned())));
    assert_eq!(value(&submission, "min-available-nodes"), Some(Scalar::Sint64(3)));
    assert_eq!(value(&submission, "of-another-app"), None);
    assert_eq!(submission.summary().split(", ").skip(1).collect::<Vec<_>>(), ["FedAdam", "2 rounds"]);
    assert_eq!(submission.sent(), submission.summary(), "both were given");
}

#[test]
fn a_bundle_is_sent_unchanged_unless_keys_must_be_added() {
    let native = bundle("trellis:native");
    let same = prepare(request(Source::bundle(&native.fab.content).unwrap(), &[("lr", "1")], &[], None)).unwrap();
    assert_eq!((same.sent().as_str(), same.summary().as_str()), ("me/app 1.0", "me/app 1.0, FedAvg, 3 rounds"));
    assert_eq!((same.bundle.fab.hash_str, same.training.is_some()), (native.fab.hash_str.clone(), true));
    let defaults = [("strategy", "FedAdam"), ("num-server-rounds", "7")];
    let other = prepare(request(Source::bundle(&native.fab.content).unwrap(), &[], &defaults, Some(2))).unwrap();
    assert_ne!(other.bundle.fab.hash_str, native.fab.hash_str);
    let training = other.training.as_ref().unwrap();
    assert_eq!((training.strategy.name(), training.rounds, training.train.min_available), ("FedAdam", 7, 2));
    let again = Source::bundle(&other.bundle.fab.content).unwrap();
    assert_eq!(again.app.bundle().unwrap().fab.hash_str, other.bundle.fab.hash_str, "it still has all files");
}

#[test]
fn a_server_app_in_python_receives_the_keys_of_its_app() {
    let python = bundle("app:server");
    let defaults = [("strategy", "FedAdam"), ("num-server-rounds", "7")];
    let sent = prepare(request(Source::bundle(&python.fab.content).unwrap(), &[], &defaults, Some(2))).unwrap();
    assert_eq!((sent.values.len(), value(&sent, "num-server-rounds")), (1, Some(Scalar::Sint64(7))));
    assert_eq!((sent.bundle.fab.hash_str, sent.training), (python.fab.hash_str.clone(), None));
    let wrong = prepare(request(Source::bundle(&python.fab.content).unwrap(), &[("lrr", "1")], &[], None)).unwrap_err();
    assert_eq!(wrong, [Diagnostic::error("lrr", "there is no such key", "did you mean lr?")]);
}

#[test]
fn all_errors_are_reported_at_once() {
    let given = [("rounds", "many"), ("hiden", "8"), ("dataset", "csv:x"), ("initial-model", "/first.npz")];
    let wrong = prepare(request(Source::built_in("mlp").unwrap(), &given, &[("dp", "perhaps")], None)).unwrap_err();
    let places: Vec<&str> = wrong.iter().map(|problem| problem.place.as_str()).collect();
    assert_eq!(places, ["rounds", "hiden", "initial-model", "training default dp", "dataset"]);
    assert!(Source::built_in("mpl").unwrap_err().advice.contains("native:mlp"));
    assert!(Source::bundle(b"no zip").unwrap_err().what.contains("not a zip"));
}

#[test]
fn a_signed_app_is_sent_unchanged_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let project = "[project]\nname='app'\nversion='1.0'\n[tool.flwr.app]\npublisher='me'\n[tool.flwr.app.components]\n\
                   serverapp='app:server'\nclientapp='app:client'\n[tool.flwr.app.config]\nlr=0.1\n";
    std::fs::write(directory.path().join("pyproject.toml"), project).unwrap();
    std::fs::write(directory.path().join("app-signatures.toml"), "[ada]\nsignature='AAAA'\nsigned_at=1\n").unwrap();
    let source = |choice| Source::directory(directory.path(), choice).unwrap();
    let whole = source(ServerAppChoice::Own).into_bundle(false).unwrap();
    // Neither the number of nodes nor a platform default is added.
    let defaults = [("strategy", "FedAdam"), ("lr", "1")];
    let sent = prepare(request(source(ServerAppChoice::Own), &[], &defaults, Some(2))).unwrap();
    assert_eq!((sent.bundle.fab.hash_str, sent.values.len()), (whole.fab.hash_str.clone(), 1));

    let wrong = prepare(request(source(ServerAppChoice::Native), &[("rounds", "2")], &[], None)).unwrap_err();
    assert_eq!(wrong.iter().map(|problem| problem.place.as_str()).collect::<Vec<_>>(), ["rounds", ""]);
    assert!(wrong[0].what.contains("the app is signed, and lacks the key num-server-rounds"), "{wrong:?}");
    let marked = Source::bundle(&whole.fab.content).unwrap().with_key("trellis-run");
    assert!(prepare(request(marked, &[], &[], None)).unwrap_err()[0].what.contains("would change"));
}

#[test]
fn the_apps_server_app_trains_unless_a_value_is_a_native_setting() {
    let directory = tempfile::tempdir().unwrap();
    let project = "[project]\nname='app'\nversion='1.0'\n[tool.flwr.app]\npublisher='me'\n[tool.flwr.app.components]\n\
                   serverapp='app:server'\nclientapp='app:client'\n[tool.flwr.app.config]\nlr=0.1\nmin-fit-clients=2\n";
    std::fs::write(directory.path().join("pyproject.toml"), project).unwrap();
    for (key, native) in [("lr", false), ("min-train-nodes", false), ("unknown", false), ("strategy", true)] {
        let given = [Given { written: String::new(), key: key.to_owned(), text: "1".to_owned() }];
        let source = Source::directory(directory.path(), ServerAppChoice::ByValues(&given)).unwrap();
        assert_eq!(source.native, native, "{key}");
    }
}
