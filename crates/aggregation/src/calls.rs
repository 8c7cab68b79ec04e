//! [`calls`]: the requests of control loops to the servers behind this one.

use crate::asker::{self, Identities};
use crate::peer::{peer, user_headers};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use keelson_egress::{Egress, Request};
use keelson_meta::Value;
use keelson_registry::{RemoteAnswer, RemoteCall, RemoteCalls};
use keelson_schema::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a server may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Of objects in lists, metadata is enough.
const ACCEPT: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Returns what sends the requests of control loops.
pub fn calls(egress: Arc<Egress>, identities: Identities) -> RemoteCalls {
    Arc::new(move |call| {
        let egress = egress.clone();
        let identities = identities.clone();
        Box::pin(async move { send(&egress, &identities, call).await })
    })
}

async fn send(egress: &Egress, identities: &Identities, call: RemoteCall) -> RemoteAnswer {
    let peer = egress.located(peer(&call.server, identities())).await?;
    let client = egress.client(&peer).map_err(|error| error.to_string())?;
    let mut headers = HeaderMap::new();
    user_headers(&mut headers, &call.user)?;
    headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPT));
    let mut body = vec![];
    if !call.body.is_null() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        json::write_value(&call.body, &mut body);
    }
    let method = Method::from_bytes(call.method.as_bytes()).map_err(|error| error.to_string())?;
    let request = Request { method, path: call.path, headers, body: Bytes::from(body) };
    let deadline = Instant::now() + ANSWER_TIME_MAX;
    let answer = client.send(&request, ANSWER_BYTES_MAX, deadline).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let status = answer.status.as_u16();
    let read = move || asker::parse(&answer.body).unwrap_or_default();
    let body: Value = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
    Ok((status, body))
}
