//! The page: what `web/dist` held when the program was built. Paths that the page knows by itself get its index; nothing
//! below `/api` or `/assets` does.

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Method, StatusCode};
use include_dir::{Dir, include_dir};
use trellis_digest::{hex, sha256};

use super::guard::{nothing_here, only_read};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../../web/dist");

const INDEX: &str = "index.html";
/// Their names change with their content.
const HASHED: &str = "assets/";
/// Everything that the page loads is ours, and nothing is written into it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub async fn serve(request: Request) -> Response {
    let path = request.uri().path().trim_start_matches('/');
    if path == "api" || path.starts_with("api/") {
        return nothing_here(request.uri().path());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return only_read(request.method());
    }
    let file = match FILES.get_file(path) {
        Some(file) => file,
        None if path.starts_with(HASHED) || path.rsplit('/').next().is_some_and(|name| name.contains('.')) => {
            return nothing_here(request.uri().path());
        }
        None => match FILES.get_file(INDEX) {
            Some(index) => index,
            None => return nothing_here(request.uri().path()),
        },
    };
    let name = file.path().to_str().unwrap_or(INDEX);
    let tag = tag(file.contents());
    let known = request.headers().get(IF_NONE_MATCH).is_some_and(|given| given.as_bytes() == tag.as_bytes());
    let mut response =
        if known { StatusCode::NOT_MODIFIED.into_response() } else { Response::new(Body::from(file.contents())) };
    let headers = response.headers_mut();
    let lasts = if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(lasts));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(name)));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    response
}

fn tag(content: &[u8]) -> String {
    format!("\"{}\"", hex(&sha256(content)[..8]))
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(path: &str) -> Response {
        serve(Request::get(path).body(Body::empty()).unwrap()).await
    }

    #[tokio::test]
    async fn paths_of_the_page_get_its_index() {
        for path in ["/", "/federations/lab", "/index.html"] {
            let response = get(path).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            assert_eq!(response.headers()[CONTENT_TYPE], "text/html; charset=utf-8", "{path}");
            assert_eq!(response.headers()[CACHE_CONTROL], "no-cache", "{path}");
        }
    }

    #[tokio::test]
    async fn what_is_missing_is_not_taken_for_a_page() {
        for path in ["/api", "/api/v1/nonsense", "/assets/gone.js", "/assets/gone", "/../secret.txt", "/robots.txt"] {
            assert_eq!(get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[tokio::test]
    async fn nobody_is_sent_what_they_have() {
        let tag = get("/").await.headers()[ETAG].clone();
        let again = Request::get("/").header(IF_NONE_MATCH, tag).body(Body::empty()).unwrap();
        assert_eq!(serve(again).await.status(), StatusCode::NOT_MODIFIED);
    }

    #[tokio::test]
    async fn a_page_is_only_read() {
        let response = serve(Request::post("/").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
