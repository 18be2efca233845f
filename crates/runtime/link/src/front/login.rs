//! The page on which a user approves the login of a `flwr` command line with the token of an account. The command line
//! then gets its own tokens.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use trellis_core::account::Permission;
use trellis_front::Payload;
use trellis_front::http::with_type;

use super::admission::UNKNOWN_SENDER_TIMEOUT;
use crate::api::account::{Approval, authenticate};
use crate::link::Link;

/// Maximum size of the form: a code and a token are short.
const MAX_FORM_BYTES: usize = 4096;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:10vh auto;padding:0 1rem}\
    input{font:inherit;width:100%;padding:.5rem;margin:.25rem 0 1rem;box-sizing:border-box}\
    button{font:inherit;padding:.5rem 1.5rem}.bad{color:#a00}.good{color:#060}";

pub async fn page(link: &Link, request: Request<Incoming>) -> Response<Payload> {
    match *request.method() {
        Method::GET | Method::HEAD => {
            let code = request.uri().query().and_then(|query| field(query.as_bytes(), "code")).unwrap_or_default();
            html(StatusCode::OK, &form(&code, ""))
        }
        Method::POST => {
            let body = Limited::new(request.into_body(), MAX_FORM_BYTES).collect();
            match tokio::time::timeout(UNKNOWN_SENDER_TIMEOUT, body).await {
                Ok(Ok(body)) => approve(link, &body.to_bytes()),
                Ok(Err(_)) => html(StatusCode::PAYLOAD_TOO_LARGE, &form("", "The form is too long.")),
                Err(_) => html(StatusCode::REQUEST_TIMEOUT, &form("", "The form did not arrive in time.")),
            }
        }
        _ => html(StatusCode::METHOD_NOT_ALLOWED, &form("", "This page is for a form.")),
    }
}

fn approve(link: &Link, body: &Bytes) -> Response<Payload> {
    let code = field(body, "code").unwrap_or_default();
    let token = field(body, "token").unwrap_or_default();
    let approved = authenticate(link, token.trim(), Permission::View).and_then(|who| {
        let approval = Approval { account: who.id.clone(), ttl_s: None };
        link.logins.approve(&code, approval, link.now()).map(|()| who)
    });
    match approved {
        Ok(who) => {
            let name = escaped(&who.name);
            html(
                StatusCode::OK,
                &format!("<p class=good>You are logged in as <b>{name}</b>. You can close this page.</p>"),
            )
        }
        Err(refusal) => html(StatusCode::FORBIDDEN, &form(&code, &refusal.text)),
    }
}

fn form(code: &str, problem: &str) -> String {
    let (code, problem) = (escaped(code), escaped(problem));
    format!(
        "<p class=bad>{problem}</p><p>A command line requests a login. Continue only if you started it.</p>\
         <form method=post action=/login><label>Code<input name=code value=\"{code}\" required></label>\
         <label>Token of your account<input name=token type=password autocomplete=current-password required></label>\
         <button>Log in</button></form>"
    )
}

fn html(status: StatusCode, body: &str) -> Response<Payload> {
    let text = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Trellis login</title><style>{STYLE}</style><h1>Trellis</h1>{body}</html>"
    );
    let mut response = with_type(HeaderValue::from_static("text/html; charset=utf-8"), Payload::whole(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    // Not `no-referrer`: browsers would then submit forms with the Origin `null`.
    headers.insert("referrer-policy", HeaderValue::from_static("same-origin"));
    let policy = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'";
    headers.insert("content-security-policy", HeaderValue::from_static(policy));
    response
}

/// Returns a field of a form or a query.
fn field(form: &[u8], name: &str) -> Option<String> {
    form.split(|byte| *byte == b'&').find_map(|pair| {
        let (key, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
        (key == name.as_bytes()).then(|| unescaped(&value[1..]))
    })
}

fn unescaped(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.iter();
    while let Some(byte) = rest.next() {
        let digits = rest.as_slice().get(..2).and_then(|digits| str::from_utf8(digits).ok());
        match (byte, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(decoded)) => {
                bytes.push(decoded);
                rest.nth(1);
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_fields_are_decoded() {
        let form = b"code=AB%2bC+D&token=t%C3%A4%&x";
        assert_eq!(field(form, "code").as_deref(), Some("AB+C D"));
        assert_eq!(field(form, "token").as_deref(), Some("t\u{e4}%"));
        assert_eq!((field(form, "x"), field(form, "y")), (None, None));
    }

    #[test]
    fn user_input_is_escaped() {
        let shown = form("\"><script>", "<b>");
        assert!(!shown.contains("<script>") && !shown.contains("<b>"), "{shown}");
    }
}
