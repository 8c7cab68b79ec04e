//! [`Calls`]: the metrics `grpc_client_*` of kube-apiserver, which count calls to etcd.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt};
use keelson_metrics::{Counter, Description, Exposition, Series, SeriesMap};
use tonic::{Code, Status, Streaming};

/// More than the series of all methods of etcd with all codes.
const SERIES_MAX: usize = 1_000;
const UNARY: &str = "unary";
const STREAM: &str = "bidi_stream";
const LABELS: &[&str] = &["grpc_method", "grpc_service", "grpc_type"];

/// The calls of a client to the members of a cluster.
#[derive(Debug)]
pub struct Calls {
    /// By [`LABELS`].
    methods: SeriesMap<Messages>,
    /// By code and [`LABELS`].
    handled: SeriesMap<Counter>,
}

#[derive(Debug, Default)]
struct Messages {
    started: Counter,
    sent: Counter,
    received: Counter,
}

impl Default for Calls {
    fn default() -> Self {
        Calls { methods: SeriesMap::new(SERIES_MAX), handled: SeriesMap::new(SERIES_MAX) }
    }
}

impl Calls {
    /// Counts a call with one request, at its begin.
    pub(crate) fn unary(self: &Arc<Self>, path: &'static str) -> Call {
        let call = Call::begin(self, UNARY, path);
        call.messages.count(|messages| &messages.sent);
        call
    }

    /// Counts a stream, at its begin.
    pub(crate) fn stream(self: &Arc<Self>, path: &'static str) -> Call {
        Call::begin(self, STREAM, path)
    }

    /// Writes the metrics of all clients of a server.
    pub fn write(clients: &[Arc<Calls>], out: &mut Exposition<'_>) {
        let methods = |count: fn(&Messages) -> &Counter| {
            let all = clients.iter().flat_map(|calls| calls.methods.all());
            sums(all, |messages| count(messages).get())
        };
        let handled = clients.iter().flat_map(|calls| calls.handled.all());
        for (description, series) in [
            (&HANDLED, sums(handled, Counter::get)),
            (&RECEIVED, methods(|messages| &messages.received)),
            (&SENT, methods(|messages| &messages.sent)),
            (&STARTED, methods(|messages| &messages.started)),
        ] {
            let mut family = out.family(description);
            for (labels, count) in series {
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                family.value(&labels, count as f64);
            }
        }
    }
}

/// Adds up the series of several clients, by their labels.
fn sums<M>(
    all: impl Iterator<Item = Arc<Series<M>>>,
    count: impl Fn(&M) -> u64,
) -> BTreeMap<Vec<String>, u64> {
    let mut sums: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for series in all {
        let labels = series.values().into_iter().map(str::to_owned).collect();
        *sums.entry(labels).or_default() += count(&series.metrics);
    }
    sums
}

/// The messages of a method; `None`: there are too many series.
#[derive(Clone)]
struct MessagesOf(Option<Arc<Series<Messages>>>);

impl MessagesOf {
    fn count(&self, counter: fn(&Messages) -> &Counter) {
        if let Some(series) = &self.0 {
            counter(&series.metrics).increment();
        }
    }
}

/// A call that has begun. If it is dropped before its end, its time is over, or nobody wants its
/// stream any more.
pub(crate) struct Call {
    calls: Arc<Calls>,
    /// Method, service and type.
    labels: [&'static str; 3],
    messages: MessagesOf,
    is_ended: bool,
}

impl Call {
    fn begin(calls: &Arc<Calls>, kind: &'static str, path: &'static str) -> Call {
        let names = path.trim_start_matches('/').split_once('/');
        let (service, method) = names.unwrap_or(("", path));
        let labels = [method, service, kind];
        let messages = MessagesOf(calls.methods.get(&labels));
        messages.count(|messages| &messages.started);
        Call { calls: calls.clone(), labels, messages, is_ended: false }
    }

    /// Counts a response, or the error that ends the call.
    pub fn answered<T>(&mut self, response: &Result<T, Status>) {
        match response {
            Ok(_) => {
                self.messages.count(|messages| &messages.received);
                if self.labels[2] == UNARY {
                    self.end(Code::Ok);
                }
            }
            Err(error) => self.end(error.code()),
        }
    }

    /// Returns the requests of a stream, which are counted.
    pub fn sending<Q>(
        &self,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> impl Stream<Item = Q> + Send + 'static {
        let messages = self.messages.clone();
        requests.inspect(move |_| messages.count(|messages| &messages.sent))
    }

    fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        let [method, service, kind] = self.labels;
        if let Some(series) = self.calls.handled.get(&[code_name(code), method, service, kind]) {
            series.metrics.increment();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let code = if self.labels[2] == UNARY { Code::DeadlineExceeded } else { Code::Cancelled };
        self.end(code);
    }
}

/// The responses of a stream, which are counted.
pub(crate) struct Responses<A> {
    inner: Streaming<A>,
    call: Call,
}

impl<A> Responses<A> {
    pub fn new(inner: Streaming<A>, call: Call) -> Responses<A> {
        Responses { inner, call }
    }
}

impl<A> Stream for Responses<A> {
    type Item = Result<A, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.inner.poll_next_unpin(cx);
        match &polled {
            Poll::Ready(Some(response)) => self.call.answered(response),
            Poll::Ready(None) => self.call.end(Code::Ok),
            Poll::Pending => {}
        }
        polled
    }
}

static HANDLED: Description = Description::counter(
    "grpc_client_handled_total",
    "Calls to etcd that ended, by code.",
    &["grpc_code", "grpc_method", "grpc_service", "grpc_type"],
);
static RECEIVED: Description =
    Description::counter("grpc_client_msg_received_total", "Messages of etcd.", LABELS);
static SENT: Description =
    Description::counter("grpc_client_msg_sent_total", "Messages to etcd.", LABELS);
static STARTED: Description =
    Description::counter("grpc_client_started_total", "Calls to etcd that began.", LABELS);

/// Returns Go's name of a code.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
