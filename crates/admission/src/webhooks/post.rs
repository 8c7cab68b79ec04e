//! POSTs JSON to a webhook as client-go does, with client-go's error texts.

use super::response::status_message;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use keelson_egress::{Cause, Client, Error, Phase, Request, Response};
use keelson_meta::status::quote;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum length of a response body.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum retries of a call that is answered with `Retry-After`.
const RETRIES_MAX: usize = 10;

/// The endpoint of a call.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub client: &'a Arc<Client>,
    /// Path and query.
    pub path: &'a str,
    /// The URL as errors print it.
    pub url: &'a str,
    /// Which timeout ends the call.
    pub timer: Timer,
}

/// Which timeout ends a call. client-go words them differently.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A timeout of this call.
    Call,
    /// A timeout of the client.
    Client,
}

/// Sends a body; retries on `Retry-After` until the deadline.
pub(crate) async fn post(
    target: Target<'_>,
    body: Vec<u8>,
    timeout: Duration,
) -> Result<Response, String> {
    let deadline = Instant::now() + timeout;
    let request = Request {
        method: Method::POST,
        path: target.path.to_owned(),
        headers: headers(),
        body: body.into(),
    };
    let mut retries = 0;
    loop {
        let response = target
            .client
            .send(&request, ANSWER_BYTES_MAX, deadline)
            .await
            .map_err(|error| failure_text(target.url, target.timer, &error))?;
        let Some(wait) = retry_after(&response).filter(|_| retries < RETRIES_MAX) else {
            return Ok(response);
        };
        retries += 1;
        let until = Instant::now() + wait;
        if until >= deadline {
            tokio::time::sleep_until(deadline).await;
            return Err(format!("Post {}: context deadline exceeded", quote(target.url)));
        }
        tokio::time::sleep_until(until).await;
    }
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
    headers
}

fn failure_text(url: &str, timer: Timer, error: &Error) -> String {
    let why = match (&error.cause, timer, error.phase) {
        (Cause::Deadline, Timer::Client, Phase::Head) => {
            "net/http: request canceled (Client.Timeout exceeded while awaiting headers)".to_owned()
        }
        (Cause::Deadline, Timer::Client, Phase::Body) => {
            let cause = "Client.Timeout or context cancellation while reading body";
            format!("net/http: request canceled ({cause})")
        }
        _ => error.to_string(),
    };
    match error.phase {
        Phase::Connect | Phase::Head => format!("Post {}: {why}", quote(url)),
        Phase::Body => format!(
            "unexpected error when reading response body. Please retry. Original error: {why}"
        ),
    }
}

/// Returns the `Retry-After` of a 429 or 5xx response.
fn retry_after(response: &Response) -> Option<Duration> {
    let may = response.status == StatusCode::TOO_MANY_REQUESTS || response.status.is_server_error();
    let seconds = response.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    may.then_some(Duration::from_secs(seconds))
}

/// Returns the body of a successful response.
pub(crate) fn answered(response: &Response) -> Result<&[u8], String> {
    let content_type = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let code = response.status.as_u16();
    // Redirects are not followed.
    if !(200..=206).contains(&code) {
        return Err(status_message(code, content_type, &response.body));
    }
    if response.body.is_empty() {
        let content_type = content_type.unwrap_or("application/json");
        return Err(format!(
            "0-length response with status code: {code} and content type: {content_type}"
        ));
    }
    Ok(&response.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kube-apiserver 1.36 reports conversion webhooks by the timeout of their client, and
    /// admission webhooks by that of the call.
    #[test]
    fn a_timeout_is_reported_in_the_words_of_its_timer() {
        let check = |timer, phase, expected: &str| {
            let error = Error { phase, cause: Cause::Deadline };
            assert_eq!(failure_text("https://a/b?timeout=30s", timer, &error), expected);
        };
        let post = "Post \"https://a/b?timeout=30s\":";
        let read = "unexpected error when reading response body. Please retry. Original error:";
        let of_client = |why: &str| format!("net/http: request canceled ({why})");
        let awaiting = of_client("Client.Timeout exceeded while awaiting headers");
        let reading = of_client("Client.Timeout or context cancellation while reading body");
        check(Timer::Client, Phase::Head, &format!("{post} {awaiting}"));
        check(Timer::Client, Phase::Body, &format!("{read} {reading}"));
        check(Timer::Call, Phase::Head, &format!("{post} context deadline exceeded"));
        check(Timer::Call, Phase::Body, &format!("{read} context deadline exceeded"));
    }
}
