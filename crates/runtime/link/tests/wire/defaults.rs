//! Defaults of runs: the configuration of a run, and the lines in its log.

use std::collections::BTreeMap;

use trellis_link::config::Limits;
use trellis_wire::proto::scalar::Scalar;
use trellis_wire::proto::*;

use super::peer::{TestLink, config, fab_with};

const KEYS: &str = "\n[tool.flwr.app.config]\nrounds=3\nlr=0.1\nname='a'\n";

fn values(pairs: &[(&str, Scalar)]) -> BTreeMap<String, trellis_wire::proto::Scalar> {
    let value = |scalar: &Scalar| trellis_wire::proto::Scalar { scalar: Some(scalar.clone()) };
    pairs.iter().map(|(key, scalar)| ((*key).to_owned(), value(scalar))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_get_defaults_for_the_keys_of_their_app() {
    let mut settings = config(Limits::default());
    let defaults = [("rounds", Scalar::Sint64(9)), ("lr", Scalar::Sint64(1)), ("other", Scalar::Bool(true))];
    settings.run_defaults = values(&[&defaults[..], &[("name", Scalar::Sint64(4))]].concat());
    let link = TestLink::start(settings).await;
    let start = async |given: &[(&str, Scalar)], keys: &str| {
        let fab = Fab { content: fab_with(keys), ..Default::default() };
        let override_config = values(given);
        let request =
            StartRunRequest { fab: Some(fab), federation: "default".into(), override_config, ..Default::default() };
        let mut control = link.control().await;
        let run_id = control.start_run(request).await.unwrap().into_inner().run_id.unwrap();
        let asked = ListRunsRequest { run_id: Some(run_id), ..Default::default() };
        let runs = control.list_runs(asked).await.unwrap().into_inner().run_dict;
        let mut log =
            control.stream_logs(StreamLogsRequest { run_id, ..Default::default() }).await.unwrap().into_inner();
        let reported = if runs[&run_id].override_config == values(given) {
            String::new()
        } else {
            log.message().await.unwrap().unwrap().log_output
        };
        (runs[&run_id].override_config.clone(), reported)
    };

    let (config, reported) = start(&[], KEYS).await;
    assert_eq!(config, values(&[("rounds", Scalar::Sint64(9)), ("lr", Scalar::Double(1.0))]));
    assert!(reported.contains("Defaults of this SuperLink: lr = 1, rounds = 9."), "{reported}");
    assert!(reported.contains("with a wrong type for the app, not applied: name."), "{reported}");

    let (config, reported) = start(&[("rounds", Scalar::Sint64(5))], KEYS).await;
    assert_eq!(config, values(&[("rounds", Scalar::Sint64(5)), ("lr", Scalar::Double(1.0))]));
    assert!(reported.contains("Defaults of this SuperLink: lr = 1."), "{reported}");

    let (config, reported) = start(&[], "").await;
    assert_eq!((config.len(), reported.as_str()), (0, ""), "an app without keys");
    link.stop().await;
}
