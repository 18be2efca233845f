//! Writes that may be sent again: an Idempotency-Key stands for one request of one caller. What was answered is remembered
//! for a day, refusals excepted: those may be tried again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trellis_clock::now_ms;
use trellis_digest::sha256_hex;

use super::Api;
use super::fault::{Fault, Kind};

/// Keys whose first request is being answered.
#[derive(Default)]
pub struct UnderWay(Mutex<HashSet<(String, String)>>);

/// What was asked, as far as repeating it goes.
pub struct Asked {
    caller: String,
    key: String,
    /// SHA-256 of where it went and what it said.
    content: String,
}

#[derive(Serialize, Deserialize)]
struct Remembered<T> {
    content: String,
    answer: T,
}

impl Asked {
    pub fn new(caller: &str, key: &str, place: &str, body: &[u8]) -> Asked {
        let whole = [place.as_bytes(), b"\n", body].concat();
        let content = sha256_hex(&whole);
        Asked { caller: caller.to_owned(), key: key.to_owned(), content }
    }
}

/// Does the work, unless it was done before. It is completed and remembered even if the caller goes away meanwhile.
pub async fn once<T, W>(api: Arc<Api>, asked: Asked, work: W) -> Result<T, Fault>
where
    T: Serialize + DeserializeOwned + Send + 'static,
    W: Future<Output = Result<T, Fault>> + Send + 'static,
{
    let Some(turn) = Turn::take(&api, &asked) else {
        let told = "A request with this Idempotency-Key is being answered. Send it again in a moment.";
        return Err(Fault::new(Kind::UNDER_WAY, told).retry_after(1));
    };
    let done = tokio::spawn(async move {
        let _turn = turn;
        carry_out(&api, &asked, work).await
    });
    done.await.map_err(|error| Fault::broken(&error))?
}

async fn carry_out<T, W>(api: &Api, asked: &Asked, work: W) -> Result<T, Fault>
where
    T: Serialize + DeserializeOwned,
    W: Future<Output = Result<T, Fault>>,
{
    let registry = api.platform.registry();
    if let Some(text) = registry.answered(&asked.caller, &asked.key, now_ms()).await? {
        let before: Remembered<T> = serde_json::from_str(&text).map_err(|error| Fault::broken(&error))?;
        if before.content == asked.content {
            return Ok(before.answer);
        }
        let told = "This Idempotency-Key came with another request before. Choose a new key for each run.";
        return Err(Fault::new(Kind::KEY_REUSED, told));
    }
    let remembered = Remembered { content: asked.content.clone(), answer: work.await? };
    let text = serde_json::to_string(&remembered).map_err(|error| Fault::broken(&error))?;
    if let Err(error) = registry.remember_answer(&asked.caller, &asked.key, &text, now_ms()).await {
        // It is done: to refuse now would make the caller do it again.
        tracing::error!("what was answered to an Idempotency-Key could not be remembered: {error}");
    }
    Ok(remembered.answer)
}

/// Ends when it is dropped.
struct Turn {
    api: Arc<Api>,
    key: (String, String),
}

impl Turn {
    fn take(api: &Arc<Api>, asked: &Asked) -> Option<Turn> {
        let key = (asked.caller.clone(), asked.key.clone());
        let free = api.under_way.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        free.then(|| Turn { api: Arc::clone(api), key })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.api.under_way.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
