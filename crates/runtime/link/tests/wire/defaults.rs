//! Defaults of runs: what a run is given, and what its log says about it.

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
async fn runs_begin_with_the_defaults_for_the_keys_of_their_app() {
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
        let told = if runs[&run_id].override_config == values(given) {
            String::new()
        } else {
            log.message().await.unwrap().unwrap().log_output
        };
        (runs[&run_id].override_config.clone(), told)
    };

    let (config, told) = start(&[], KEYS).await;
    assert_eq!(config, values(&[("rounds", Scalar::Sint64(9)), ("lr", Scalar::Double(1.0))]));
    assert!(told.contains("Defaults of this SuperLink: lr = 1, rounds = 9."), "{told}");
    assert!(told.contains("do not fit the app, and are left out: name."), "{told}");

    let (config, told) = start(&[("rounds", Scalar::Sint64(5))], KEYS).await;
    assert_eq!(config, values(&[("rounds", Scalar::Sint64(5)), ("lr", Scalar::Double(1.0))]));
    assert!(told.contains("Defaults of this SuperLink: lr = 1."), "{told}");

    let (config, told) = start(&[], "").await;
    assert_eq!((config.len(), told.as_str()), (0, ""), "an app without keys is left alone");
    link.stop().await;
}
