//! Signatures of apps: they arrive in the bundle of a run and are served next to the bundle that they cover.

use trellis_link::config::Limits;
use trellis_wire::fab::{App, SIGNATURES_FILE, Signature, VALID_LICENSE};
use trellis_wire::proto::{Fab, GetFabRequest, GetRunRequest, PullAppInputsRequest, RequestTokenRequest};

use super::peer::{TestLink, config};

const PROJECT: &str = "[project]\nname='app'\nversion='1'\n[tool.flwr.app]\npublisher='me'\n\
    [tool.flwr.app.components]\nserverapp='a:server'\nclientapp='a:client'\n";
const SIGNED: &str = "[ada]\nsignature = 'AAAA'\nsigned_at = 1760000000\n";

/// The FAB that a node receives for a run.
async fn served(link: &TestLink, app: &App) -> Fab {
    let run_id = link.start_run_of(app.bundle().unwrap().fab.content).await;
    let mut node = link.node().await;
    // Only a running run gives its FAB to nodes.
    let mut serverapp = link.app().await;
    let token = serverapp.request_token(RequestTokenRequest { run_id }).await.unwrap().into_inner().token;
    serverapp.pull_app_inputs(PullAppInputsRequest { token }).await.unwrap();
    let request = node.signed(GetRunRequest { node: node.reference(), run_id });
    let run = node.client.get_run(request).await.unwrap().into_inner().run.unwrap();
    let request = node.signed(GetFabRequest { node: node.reference(), hash_str: run.fab_hash.clone(), run_id });
    let fab = node.client.get_fab(request).await.unwrap().into_inner().fab.unwrap();
    assert_eq!(fab.hash_str, run.fab_hash);
    fab
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_in_a_bundle_become_verifications_of_the_unsigned_bundle() {
    let link = TestLink::start(config(Limits::default())).await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("pyproject.toml"), PROJECT).unwrap();
    std::fs::write(directory.path().join("a.py"), "").unwrap();
    let plain = App::read(directory.path()).unwrap();

    let unsigned = served(&link, &plain).await;
    assert_eq!(unsigned.verifications, [(VALID_LICENSE.to_owned(), "Valid".to_owned())].into());
    std::fs::write(directory.path().join(SIGNATURES_FILE), SIGNED).unwrap();
    // Signed after a first run, then submitted unsigned: the signature is still served.
    for app in [App::read(directory.path()).unwrap(), plain.clone()] {
        let fab = served(&link, &app).await;
        assert_eq!(fab.content, plain.bundle().unwrap().fab.content);
        let signature: Signature = serde_json::from_str(&fab.verifications["ada"]).unwrap();
        let expected: std::collections::BTreeMap<String, Signature> = toml::from_str(SIGNED).unwrap();
        assert_eq!((signature, fab.verifications.len()), (expected["ada"].clone(), 2));
    }
    link.stop().await;
}
