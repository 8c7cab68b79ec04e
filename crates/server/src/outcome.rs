//! What comes of a request: [`Outcome`], or the [`Refusal`] that ended it early.

use crate::app::App;
use crate::body::{Body, ChunkStream};
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};
use crate::upgrade::{Tunnel, Upgrade, UpgradedConnection};
use crate::websocket::{self, Framing};
use keelson_meta::Failure;

/// What a request led to.
pub(crate) enum Outcome {
    /// A response whose body is complete, or encoded while it is sent.
    Reply(Reply),
    /// Chunks that come as long as the stream lasts. They are messages if the client asks for a
    /// WebSocket.
    Stream(Stream),
    /// The connection goes on in another protocol.
    Tunnel(Tunnel),
}

/// A response that is a stream of chunks.
pub(crate) struct Stream {
    /// The media type over plain HTTP.
    pub media_type: &'static str,
    /// The body.
    pub chunks: ChunkStream,
    /// How the chunks become messages of a WebSocket; `None` if they are never sent over one.
    pub framing: Option<Framing>,
}

/// Why a request ended before its verb ran.
pub(crate) enum Refusal {
    /// The response is a Status.
    Failure(Failure),
    /// The response is this one, because upstream's has another form there.
    Reply(Box<Reply>),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal::Failure(failure)
    }
}

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Refusal {
        Refusal::Reply(Box::new(reply))
    }
}

impl Outcome {
    /// Makes the response. `upgrade` is the connection, if the client asks to change its protocol;
    /// what runs on it afterwards is returned, too.
    pub fn into_reply(
        self,
        app: &App,
        head: &RequestHead,
        upgrade: Option<Upgrade>,
    ) -> (Reply, Option<UpgradedConnection>) {
        let tunnel = match (self, upgrade.is_some() && head.is_websocket()) {
            (Outcome::Reply(reply), _) => return (reply, None),
            (Outcome::Stream(Stream { chunks, framing: Some(framing), .. }), true) => {
                match websocket::switch(app, head, chunks, framing) {
                    Ok(tunnel) => tunnel,
                    Err(refused) => return (*refused, None),
                }
            }
            (Outcome::Stream(Stream { media_type, chunks, .. }), _) => {
                return (respond::with_body(200, media_type, Body::Stream(chunks)), None);
            }
            (Outcome::Tunnel(tunnel), _) => tunnel,
        };
        match upgrade {
            Some(upgrade) => {
                let (reply, connection) = tunnel.switch(upgrade);
                (reply, Some(connection))
            }
            None => (respond::text(400, "the connection cannot be upgraded"), None),
        }
    }
}
