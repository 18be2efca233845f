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
fn defaults_are_valid() {
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
fn defaults_are_those_of_flower() {
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

/// Environments and appliances have strings only, TOML has types, and both have their own names.
#[test]
fn all_forms_and_names_of_values_are_accepted() {
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
    assert_eq!(read("resume", Scalar::Sint64(123)).resume.as_deref(), Some("123"), "a run id is a number");
    assert_eq!(read("strategy", text("fed-adam")).strategy.name(), "FedAdam");
}

#[test]
fn parameters_are_passed_to_their_strategy() {
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
fn all_errors_are_reported_at_once() {
    let errors = problems(&[
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
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_strategy_requires_enough_nodes() {
    let bulyan = |nodes| {
        [("strategy", text("Bulyan")), ("num-malicious", text("1")), ("min-available-nodes", Scalar::Sint64(nodes))]
    };
    assert!(Settings::read(&config(&bulyan(7))).is_ok());
    let errors = problems(&bulyan(6));
    assert!(errors[0].contains("only with at least 7 nodes, not 6"), "{errors:?}");
    let errors = problems(&[
        ("strategy", text("FedXgbBagging")),
        ("dp", text("server-adaptive")),
        ("dp-noise-multiplier", text("0")),
    ]);
    assert!(errors[0].starts_with("dp: FedXgbBagging has trees"), "{errors:?}");
}

#[test]
fn privacy_depends_on_the_round() {
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
fn defaults_apply_to_missing_settings_only() {
    let mut config = config(&[("rounds", Scalar::Sint64(4)), ("mine", text("x"))]);
    let defaults = [("num-server-rounds", 9), ("min-fit-clients", 3), ("min-train-nodes", 3)];
    let defaults = self::config(&defaults.map(|(name, value)| (name, Scalar::Sint64(value))));
    let mut theirs = defaults.clone();
    theirs.insert("other".to_owned(), config["mine"].clone());
    assert_eq!(complete(&mut config, &theirs), ["min-train-nodes"]);
    assert_eq!(config.keys().map(String::as_str).collect::<Vec<_>>(), ["min-train-nodes", "mine", "rounds"]);
    assert_eq!(complete(&mut config, &theirs), [""; 0]);
}
