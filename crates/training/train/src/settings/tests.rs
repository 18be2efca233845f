use trellis_wire::proto::scalar::Scalar;

use super::*;

fn config(pairs: &[(&str, Scalar)]) -> BTreeMap<String, proto::Scalar> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), proto::Scalar { scalar: Some(value.clone()) })).collect()
}

fn text(text: &str) -> Scalar {
    Scalar::String(text.to_owned())
}

fn problems(pairs: &[(&str, Scalar)]) -> Vec<String> {
    Settings::read(&config(pairs)).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn every_default_is_one_of_its_kind() {
    for setting in SETTINGS {
        assert!(setting.default.is_empty() || setting.kind.parse(setting.default).is_some(), "{}", setting.name);
        assert!(!setting.help.is_empty() && setting.help.len() < 100, "{}", setting.name);
        for name in setting.aliases.iter().chain([&setting.name]) {
            let owners = SETTINGS.iter().filter(|other| other.name == *name || other.aliases.contains(name));
            assert_eq!(owners.count(), 1, "{name}");
        }
    }
}

#[test]
fn nothing_given_is_as_in_flower() {
    let settings = Settings::read(&BTreeMap::new()).unwrap();
    assert_eq!((settings.strategy, settings.rounds), (Strategy::FedAvg, 3));
    let sampling = Sampling { fraction: 1.0, min_nodes: 2, min_available: 2, over_selection: 0.0 };
    assert_eq!((settings.train, settings.evaluate), (sampling, sampling));
    assert_eq!(settings.round_timeout, Duration::from_secs(3600));
    assert!(settings.accept_failures && !settings.compat && settings.dp.is_none() && settings.patience.is_none());
    assert_eq!(settings.checkpoints, Some(Checkpoints { every: 5, keep: 3, directory: None }));
    assert_eq!((settings.weighted_by.as_str(), settings.seed, settings.target), ("num-examples", None, None));
    assert!(settings.notes.is_empty());
}

/// Environments and appliances know texts only, TOML knows types, and both have names of their own.
#[test]
fn values_are_taken_in_every_form_and_by_every_name() {
    for (pairs, expected) in [
        (vec![("min-fit-clients", Scalar::Sint64(7))], 7),
        (vec![("min-train-nodes", text(" 7 "))], 7),
        (vec![("min-train-nodes", Scalar::Double(7.0))], 7),
        (vec![("min-train-nodes", Scalar::Uint64(7)), ("min-fit-clients", text("7"))], 7),
        (vec![("min-train-nodes", text(""))], 2),
    ] {
        assert_eq!(Settings::read(&config(&pairs)).unwrap().train.min_nodes, expected, "{pairs:?}");
    }
    let read = |name: &str, value| Settings::read(&config(&[(name, value)])).unwrap();
    assert!(!read("accept-failures", text("NO")).accept_failures);
    assert!(!read("accept-failures", Scalar::Bool(false)).accept_failures);
    assert_eq!(read("seed", Scalar::Sint64(-1)).seed, Some(u64::MAX));
    assert_eq!(read("seed", text("18446744073709551615")).seed, Some(u64::MAX));
    assert_eq!(read("resume", Scalar::Sint64(123)).resume.as_deref(), Some("123"), "an id of a run is a number");
    assert_eq!(read("strategy", text("fed-adam")).strategy.name(), "FedAdam");
}

#[test]
fn parameters_go_to_their_strategy() {
    let number = Scalar::Double;
    let read = |pairs: &[(&str, Scalar)]| Settings::read(&config(pairs)).unwrap();
    let adam = read(&[("strategy", text("FedAdam")), ("eta", number(0.5)), ("tau", number(1e-9))]);
    assert_eq!(adam.strategy, Strategy::FedAdam { eta: 0.5, beta_1: 0.9, beta_2: 0.99, tau: 1e-9 });
    let yogi = read(&[("strategy", text("FedYogi"))]);
    assert_eq!(yogi.strategy, Strategy::FedYogi { eta: 0.01, beta_1: 0.9, beta_2: 0.99, tau: 1e-3 });
    let krum = read(&[
        ("strategy", text("Krum")),
        ("num-malicious", Scalar::Sint64(1)),
        ("min-available-clients", Scalar::Sint64(5)),
        ("trim-beta", number(0.1)),
        ("metrics-port", Scalar::Sint64(9101)),
    ]);
    assert_eq!(krum.strategy, Strategy::Krum { num_malicious: 1 });
    let metrics = "metrics-port has no effect: the SuperLink serves the metrics of all runs, at /metrics";
    assert_eq!(krum.notes, ["trim-beta has no effect with Krum", metrics]);
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let told = problems(&[
        ("strategy", text("FedSomething")),
        ("num-server-rounds", Scalar::Sint64(0)),
        ("fraction-train", Scalar::Double(1.5)),
        ("round-timeout", text("soon")),
        ("compat", Scalar::Sint64(2)),
        ("seed", text("lucky")),
        ("target-metric", text("accuracy")),
        ("dp", text("server-fixed")),
        ("min-train-nodes", Scalar::Sint64(3)),
        ("min-fit-clients", Scalar::Sint64(4)),
        ("local-epochs", text("this is the app's")),
    ]);
    let expected = [
        "compat: \"2\" cannot be used (to do: write true or false, or leave it out for false)",
        "fraction-train: \"1.5\" cannot be used (to do: write a number from 0 to 1, or leave it out for 1.0)",
        "min-train-nodes: it is the same setting as min-fit-clients, which is given too (to do: leave one of them out)",
        "num-server-rounds: \"0\" cannot be used (to do: write a whole number from 1, or leave it out for 3)",
        "round-timeout: \"soon\" cannot be used (to do: write a number above 0, or leave it out for 3600)",
        "strategy: \"FedSomething\" cannot be used (to do: write one of FedAvg, ",
        "dp-noise-multiplier: it is missing: privacy is as strong as its noise (to do: give a number from 0)",
        "dp-clipping-norm: it is missing: it is the limit of an update's norm (to do: give a number above 0)",
        "seed: \"lucky\" cannot be used (to do: write a whole number, or leave it out)",
        "target-value: it is missing: target-metric is given without it (to do: give a number)",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}");
    }
}

#[test]
fn a_strategy_gets_the_nodes_that_it_needs() {
    let bulyan = |nodes| {
        [("strategy", text("Bulyan")), ("num-malicious", text("1")), ("min-available-nodes", Scalar::Sint64(nodes))]
    };
    assert!(Settings::read(&config(&bulyan(7))).is_ok());
    let told = problems(&bulyan(6));
    assert!(told[0].contains("only among 7 nodes or more, not 6"), "{told:?}");
    let told = problems(&[
        ("strategy", text("FedXgbBagging")),
        ("dp", text("server-adaptive")),
        ("dp-noise-multiplier", text("0")),
    ]);
    assert!(told[0].starts_with("dp: FedXgbBagging has trees"), "{told:?}");
}

#[test]
fn privacy_knows_its_round() {
    let settings = Settings::read(&config(&[
        ("dp", text("client-fixed")),
        ("dp-noise-multiplier", Scalar::Double(1.5)),
        ("dp-clipping-norm", Scalar::Sint64(2)),
    ]))
    .unwrap();
    let expected = Privacy::ClientFixed { noise_multiplier: 1.5, clipping_norm: 2.0, num_sampled: 9 };
    assert_eq!(settings.privacy(9), Some(expected));
}

#[test]
fn a_command_line_is_read_with_care() {
    let own = |name: &str| name == "local-epochs" || name == "roundz";
    let pairs = ["num-server-rounds=5", "strategy=fedavg", "local-epochs=2", "roundz=3", "my-flag=x=y"];
    let read = from_pairs(&pairs, own).unwrap();
    let expected = config(&[
        ("num-server-rounds", Scalar::Sint64(5)),
        ("strategy", text("FedAvg")),
        ("local-epochs", text("2")),
        ("roundz", text("3")),
        ("my-flag", text("x=y")),
    ]);
    assert_eq!(read, expected);
    let told = from_pairs(&["num-server-round=5", "min_train_nodes=2", "seed", "patience=-1", "tau=1", "tau=2"], own);
    let told: Vec<String> = told.unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "num-server-round: there is no such setting (to do: did you mean num-server-rounds?)",
            "min_train_nodes: there is no such setting (to do: did you mean min-train-nodes?)",
            "seed: it is no setting (to do: write name=value)",
            "patience: \"-1\" cannot be used (to do: write a whole number from 0)",
            "tau: it is given twice (to do: leave one of them out)",
        ]
    );
}

#[test]
fn defaults_are_for_settings_that_are_not_there() {
    let of = |pairs: &[&str]| from_pairs(pairs, |name| name == "mine").unwrap();
    let mut config = of(&["rounds=4", "mine=x"]);
    let defaults = of(&["num-server-rounds=9", "min-fit-clients=3", "min-train-nodes=3"]);
    let mut theirs = defaults.clone();
    theirs.insert("other".to_owned(), config["mine"].clone());
    assert_eq!(complete(&mut config, &theirs), ["min-train-nodes"]);
    assert_eq!(config.keys().map(String::as_str).collect::<Vec<_>>(), ["min-train-nodes", "mine", "rounds"]);
    assert_eq!(complete(&mut config, &theirs), [""; 0]);
}
