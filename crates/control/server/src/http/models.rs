//! Calls about the models of native runs: which there are, and the bytes of one.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH};
use http::{HeaderValue, StatusCode};
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use trellis_api::ModelFile;

use super::Api;
use super::call::{Answer, BYTES, Call, ok, typed};
use super::fault::Fault;
use super::list::{newest_first_key, page};

/// Read and sent at once.
const PIECE_BYTES: usize = 1 << 18;

pub async fn list(api: Arc<Api>, call: Call) -> Answer {
    let mut models = api.platform.models(call.part("federation")).await?;
    let key = |model: &ModelFile| newest_first_key(model.saved_at, &model.path);
    models.sort_by_cached_key(key);
    ok(&page(models, &call.query, key))
}

pub async fn download(api: Arc<Api>, call: Call) -> Answer {
    let federation = call.part("federation");
    let path = ["run", "checkpoint", "file"].map(|part| call.part(part)).join("/");
    let file = api.platform.model(federation, &path).await?;
    let bytes = file.metadata().map_err(|error| Fault::broken(&error))?.len();
    tracing::info!(federation, model = path, by = call.caller.name, "model downloaded");
    let pieces = stream::try_unfold(File::from_std(file), |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece).await?;
        Ok::<_, io::Error>((!piece.is_empty()).then(|| (Bytes::from(piece), file)))
    });
    let mut response = typed(StatusCode::OK, BYTES, Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, bytes.into());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}
