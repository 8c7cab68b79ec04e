//! [`GrpcPeer`]: gRPC calls without TLS to a process that may start later or restart, over a Unix
//! domain socket or TCP.

use http::uri::PathAndQuery;
use keelson_meta::status::quote;
use prost::Message;
use std::error::Error;
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Delay between two attempts to connect.
const CONNECT_RETRY_DELAY: Duration = Duration::from_millis(100);
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A process behind a Unix domain socket or an address. The connection is made by the first call,
/// and again when it is lost.
pub struct GrpcPeer {
    path: String,
    channel: Channel,
}

impl fmt::Debug for GrpcPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrpcPeer({})", self.path)
    }
}

impl GrpcPeer {
    /// Returns the process at a socket path, or in the abstract namespace (`@name`). Does not
    /// connect yet.
    pub fn at_socket(path: &str) -> Result<GrpcPeer, String> {
        // The kernel's form of an abstract name begins with a zero byte.
        let url = match path.strip_prefix('@') {
            Some(name) => format!("unix:\0{name}"),
            None => format!("unix:{path}"),
        };
        let dialed = Endpoint::from_shared(url)
            .and_then(|made| made.user_agent("keelson"))
            .map_err(|error| format!("while dialing grpc socket at {}: {error}", quote(path)))?;
        Ok(GrpcPeer { path: path.to_owned(), channel: dialed.connect_lazy() })
    }

    /// Returns the process at `host:port`, without TLS. Does not connect yet.
    pub fn at_address(address: &str) -> Result<GrpcPeer, String> {
        let path = format!("http://{address}");
        let dialed =
            Endpoint::from_shared(path.clone()).and_then(|made| made.user_agent("keelson"));
        let channel = dialed.map_err(|error| error.to_string())?.connect_lazy();
        Ok(GrpcPeer { path, channel })
    }

    /// Makes a call. Retries until the process answers, which needs a call that can be repeated
    /// safely, or `until`.
    pub async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        until: Instant,
    ) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        loop {
            let response = timeout_at(until, self.call_once(path, request.clone())).await;
            let Ok(response) = response else {
                return Err(Status::deadline_exceeded("context deadline exceeded"));
            };
            let Err(error) = response else { return response };
            // A status from the process has no source.
            let Some(cause) = deepest_cause(&error) else { return Err(error) };
            if Instant::now() + CONNECT_RETRY_DELAY >= until {
                let path = &self.path;
                let why = format!(
                    "connection error: desc = \"transport: Error while dialing: dial unix \
                     {path}: {cause}\""
                );
                return Err(Status::deadline_exceeded(why));
            }
            sleep(CONNECT_RETRY_DELAY).await;
        }
    }

    async fn call_once<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client =
            Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        client.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let response = client.unary(tonic::Request::new(request), path, codec).await?;
        Ok(response.into_inner())
    }
}

/// Returns the transport error of a call; `None` when the peer answered.
fn deepest_cause(error: &Status) -> Option<String> {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.last().map(ToString::to_string)
}

/// Formats a status as gRPC for Go does.
#[must_use]
pub fn grpc_error_text(status: &Status) -> String {
    let code = grpc_code_name(status.code());
    format!("rpc error: code = {code} desc = {}", status.message())
}

/// Returns the name that Go has for a code.
pub fn grpc_code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}
