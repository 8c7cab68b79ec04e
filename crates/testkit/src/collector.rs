//! [`TraceCollector`]: a collector of OpenTelemetry for spans.

use crate::grpc::GrpcServer;
use keelson_traces::otlp::{ExportRequest, ExportResponse, WireSpan};
use prost::Message;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a test waits for spans.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A running collector. Dropping it stops it.
pub struct TraceCollector {
    received: Arc<(Mutex<Vec<CollectedSpan>>, Condvar)>,
    _server: GrpcServer,
}

/// A span with the scope that it came under.
#[derive(Clone, Debug)]
pub struct CollectedSpan {
    /// The scope.
    pub scope: String,
    /// The attributes of the program that sent it.
    pub program: Vec<String>,
    /// The span.
    pub span: WireSpan,
}

impl TraceCollector {
    /// Starts a collector at this socket.
    ///
    /// # Panics
    ///
    /// If the socket cannot be opened.
    #[must_use]
    pub fn start(socket: &Path) -> TraceCollector {
        let received: Arc<(Mutex<Vec<CollectedSpan>>, Condvar)> = Arc::default();
        let into = received.clone();
        let answer = move |call: &str, body: &[u8]| {
            if call != "Export" {
                return Err(format!("no call {call}"));
            }
            let request = ExportRequest::decode(body).map_err(|error| error.to_string())?;
            let (spans, arrived) = &*into;
            spans.lock().unwrap_or_else(PoisonError::into_inner).extend(collected(request));
            arrived.notify_all();
            Ok(ExportResponse::default().encode_to_vec())
        };
        TraceCollector { received, _server: GrpcServer::start(socket, Arc::new(answer)) }
    }

    /// Waits until the spans that were received satisfy a condition, and returns them.
    ///
    /// # Panics
    ///
    /// If they do not in time.
    #[must_use]
    pub fn wait_until(&self, is_complete: impl Fn(&[CollectedSpan]) -> bool) -> Vec<CollectedSpan> {
        let (spans, arrived) = &*self.received;
        let spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = arrived.wait_timeout_while(spans, WAIT_MAX, |spans| !is_complete(spans));
        let (spans, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "the spans did not come: {spans:?}");
        spans.clone()
    }
}

fn collected(request: ExportRequest) -> impl Iterator<Item = CollectedSpan> {
    request.resource_spans.into_iter().flat_map(|sent| {
        let program: Vec<String> = sent
            .resource
            .map(|resource| resource.attributes)
            .unwrap_or_default()
            .into_iter()
            .map(|attribute| attribute.key)
            .collect();
        sent.scope_spans.into_iter().flat_map(move |scoped| {
            let scope = scoped.scope.map(|scope| scope.name).unwrap_or_default();
            let program = program.clone();
            scoped.spans.into_iter().map(move |span| CollectedSpan {
                scope: scope.clone(),
                program: program.clone(),
                span,
            })
        })
    })
}
