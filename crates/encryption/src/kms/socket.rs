//! [`Socket`]: calls of a plug-in, with a time limit.

use crate::config::KmsConfig;
use keelson_egress::GrpcPeer;
use prost::Message;
use std::fmt;
use std::time::Duration;
use tonic::Status;

/// The socket of a plug-in.
pub(super) struct Socket {
    peer: GrpcPeer,
    time_max: Duration,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peer.fmt(f)
    }
}

impl Socket {
    pub fn new(config: &KmsConfig) -> Result<Socket, String> {
        Ok(Socket { peer: GrpcPeer::at_socket(&config.socket)?, time_max: config.time_max })
    }

    /// Calls `path`, such as `/v2.KeyManagementService/Status`.
    pub async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.peer.call(path, request, tokio::time::Instant::now() + self.time_max).await
    }
}
