//! The current span of a task.

use crate::finished::Kind;
use crate::span::Span;
use futures_util::future::Either;
use http::HeaderMap;
use tokio::task::futures::TaskLocalFuture;
use tokio::task_local;

task_local! {
    static CURRENT: Span;
}

/// The scope of steps within the server: the name that upstream's spans have.
pub const STEPS: &str = "k8s.io/component-base/tracing";
/// The scope of requests, received and sent: the name that upstream's spans have.
pub const HTTP: &str = "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp";

impl Span {
    /// Runs work whose spans are children of this one.
    pub fn scope<F: Future>(&self, work: F) -> Either<TaskLocalFuture<Span, F>, F> {
        // No async function: the future of one would hold the work twice.
        match self.is_some() {
            false => Either::Right(work),
            true => Either::Left(CURRENT.scope(self.clone(), work)),
        }
    }
}

/// Returns the current span; one that does nothing if there is none.
#[must_use]
pub fn current() -> Span {
    CURRENT.try_with(Span::clone).unwrap_or_default()
}

/// Starts a step of the current span's work.
#[must_use]
pub fn start(name: &'static str) -> Span {
    CURRENT.try_with(|span| span.child(name, STEPS, Kind::Internal)).unwrap_or_default()
}

/// Starts the span of a request to another process.
#[must_use]
pub fn start_client(name: &'static str, scope: &'static str) -> Span {
    CURRENT.try_with(|span| span.child(name, scope, Kind::Client)).unwrap_or_default()
}

/// Sets the headers of a request that is sent on behalf of a span.
pub fn propagate(span: &Span, headers: &mut HeaderMap) {
    if let Some(context) = span.context() {
        context.write_headers(headers);
    }
}

/// Lets work that goes on in a task of its own belong to the current span.
pub fn in_current<F: Future>(work: F) -> Either<TaskLocalFuture<Span, F>, F> {
    current().scope(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracer::Tracer;

    #[tokio::test]
    async fn spans_further_down_are_children_of_the_current_one() {
        let tracer = Tracer::new(1_000_000);
        let root = tracer.root("root", "test", Kind::Server);
        root.scope(async {
            let step = start("step");
            step.scope(async { drop(start_client("call", "test")) }).await;
        })
        .await;
        drop(start("outside"));
        drop(root);
        let spans = tracer.take(10);
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["call", "step", "root"]);
        assert_eq!(spans[0].parent, Some(spans[1].context.span_id));
        assert_eq!(spans[1].parent, Some(spans[2].context.span_id));
    }
}
