//! Sends ended spans to a collector: OTLP over gRPC, in batches as OpenTelemetry's batch processor
//! makes them.

use crate::start_error::StartError;
use crate::supervisor::Loops;
use crate::tracing_config::TracingOptions;
use keelson_egress::{GrpcPeer, grpc_error_text};
use keelson_traces::Tracer;
use keelson_traces::otlp::{ExportRequest, ExportResponse};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Longest time that an ended span waits (`OTEL_BSP_SCHEDULE_DELAY`).
const DELAY_MAX: Duration = Duration::from_secs(5);
/// Most spans in a message (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`).
const BATCH_SPANS_MAX: usize = 512;
/// How long a message is tried to be sent (`OTEL_EXPORTER_OTLP_TIMEOUT`).
const SEND_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the last spans are tried to be sent when the server stops.
const LAST_TIME_MAX: Duration = Duration::from_secs(1);
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Sends spans to a collector.
pub(crate) struct TraceExport {
    tracer: Arc<Tracer>,
    collector: GrpcPeer,
    /// Tells servers apart.
    instance: String,
}

impl TracingOptions {
    /// Returns the tracer, and starts the loop that sends what it records.
    pub(crate) fn start(
        &self,
        instance: String,
        loops: &mut Loops,
    ) -> Result<Arc<TraceExport>, StartError> {
        let collector = collector(&self.endpoint).map_err(|why| {
            StartError::new(format!("--tracing-config-file: endpoint {}: {why}", self.endpoint))
        })?;
        let tracer = Tracer::new(self.samples_per_million);
        let export = Arc::new(TraceExport { tracer, collector, instance });
        let sending = export.clone();
        loops.run("trace-export", move || sending.clone().run());
        Ok(export)
    }
}

/// Returns the collector of an endpoint whose form was checked.
fn collector(endpoint: &str) -> Result<GrpcPeer, String> {
    if let Some(path) = endpoint.strip_prefix("unix-abstract:") {
        return GrpcPeer::at_socket(&format!("@{}", path.trim_start_matches("//")));
    }
    if let Some(path) = endpoint.strip_prefix("unix:") {
        return GrpcPeer::at_socket(path.strip_prefix("//").unwrap_or(path));
    }
    let address = endpoint.strip_prefix("dns:").unwrap_or(endpoint);
    GrpcPeer::at_address(address.trim_start_matches('/'))
}

impl TraceExport {
    /// Returns what records spans.
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    async fn run(self: Arc<Self>) {
        loop {
            // Many spans are sent at once, few after a while.
            let _ = timeout(DELAY_MAX, self.tracer.until_many_wait()).await;
            self.send(SEND_TIME_MAX).await;
        }
    }

    /// Sends what is left when the server stops.
    pub async fn shutdown(&self) {
        let _ = timeout(LAST_TIME_MAX, self.send(LAST_TIME_MAX)).await;
    }

    /// Sends all ended spans. What cannot be sent in time is lost, and said in the log.
    async fn send(&self, time_max: Duration) {
        let dropped = self.tracer.take_dropped();
        if dropped > 0 {
            tracing::warn!(dropped, "spans were dropped: more ended than the collector takes");
        }
        loop {
            let spans = self.tracer.take(BATCH_SPANS_MAX);
            if spans.is_empty() {
                return;
            }
            let count = spans.len();
            let program =
                [("service.instance.id", self.instance.as_str()), ("service.name", "apiserver")];
            let request = ExportRequest::new(&program, spans);
            let until = Instant::now() + time_max;
            let sent = self.collector.call::<_, ExportResponse>(EXPORT, request, until).await;
            if let Err(error) = sent {
                let error = grpc_error_text(&error);
                tracing::error!(error, spans = count, "spans were not sent");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endpoints_are_addresses_and_sockets() {
        for (endpoint, want) in [
            ("localhost:4317", "GrpcPeer(http://localhost:4317)"),
            ("dns:///otel:1", "GrpcPeer(http://otel:1)"),
            ("unix:///run/otel.sock", "GrpcPeer(/run/otel.sock)"),
            ("unix-abstract:otel", "GrpcPeer(@otel)"),
        ] {
            let peer = collector(endpoint).expect("it is valid");
            assert_eq!(format!("{peer:?}"), want);
        }
    }
}
