//! A run that is submitted again after a lost answer.

use std::collections::BTreeSet;

use trellis_link::config::Limits;
use trellis_wire::fab::RUN_MARK;
use trellis_wire::proto::scalar::Scalar;
use trellis_wire::proto::*;

use super::peer::{TestLink, config, fab_with};

const KEYS: &str = "\n[tool.flwr.app.config]\ntrellis-run=''\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_a_mark_is_started_once() {
    let link = TestLink::start(config(Limits::default())).await;
    let start = async |mark: &str| {
        let value = trellis_wire::proto::Scalar { scalar: Some(Scalar::String(mark.to_owned())) };
        let request = StartRunRequest {
            fab: Some(Fab { content: fab_with(KEYS), ..Default::default() }),
            federation: "default".into(),
            override_config: [(RUN_MARK.to_owned(), value)].into(),
            ..Default::default()
        };
        link.control().await.start_run(request).await.unwrap().into_inner().run_id.unwrap()
    };
    // Concurrently, to detect a race between query and insert.
    let (one, two, three, four) = tokio::join!(start("u.1.1"), start("u.1.1"), start("u.1.1"), start("u.1.2"));
    assert_eq!(BTreeSet::from([one, two, three]).len(), 1);
    assert_ne!(one, four);
    link.control().await.stop_run(StopRunRequest { run_id: one }).await.unwrap();
    assert_eq!(start("u.1.1").await, one, "also after its end");
    let all = link.control().await.list_runs(ListRunsRequest::default()).await.unwrap().into_inner().run_dict;
    assert_eq!(all.len(), 2);
    link.stop().await;
}
