//! Upgrades that are passed through: what client and far side speak is not looked at (apimachinery
//! `util/proxy/upgradeaware.go`).

use crate::body::Body;
use crate::far_side::{FarEnd, upgrade_by};
use crate::outcome::Outcome;
use crate::request_head::RequestHead;
use crate::respond::{self, OwnHeaders, Reply};
use crate::throttle::Throttled;
use crate::upgrade::Tunnel;
use http::{HeaderValue, Response, header};
use keelson_egress::{Cause, Error, Phase, StreamedResponse, UpgradeAnswer, Upgraded};
use keelson_meta::{Failure, Reason, Status};
use keelson_streams::handshake;
use std::io;
use std::num::NonZeroU64;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Size of the buffer of a connection, in each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Upgrades the far side, then the client, and passes on what both send.
pub(crate) async fn run(head: &RequestHead, far_end: FarEnd) -> Result<Outcome, Failure> {
    let mut headers = head.headers.clone();
    // Go's client names itself where the client does not.
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static("Go-http-client/1.1"));
    let request = far_end.request(head, headers)?;
    let answer = far_end.client.request_upgrade(request, upgrade_by()).await;
    let answer = answer.map_err(|error| unreachable_far_side(&error))?;
    switch(answer, far_end.bytes_per_second_max)
}

/// Passes the answer of a far side on, and what both send if it has switched: so many bytes a
/// second at most in each direction.
pub(crate) fn switch(
    answer: UpgradeAnswer,
    bytes_per_second_max: Option<NonZeroU64>,
) -> Result<Outcome, Failure> {
    match answer {
        UpgradeAnswer::Switched(switched, far) => {
            let reply = switched.map(|()| Body::empty());
            let far = Throttled::new(far, bytes_per_second_max);
            let run = move |near| Box::pin(splice(near, far)) as _;
            Ok(Outcome::Tunnel(Tunnel { reply, run: Box::new(run) }))
        }
        UpgradeAnswer::Refused(answer) => refused(answer).map(Outcome::Reply),
    }
}

/// Returns the answer of a far side that did not switch. A redirect is never followed and never
/// sent to the client, who would take it to another place with his credentials.
pub(crate) fn refused(answer: Response<StreamedResponse>) -> Result<Reply, Failure> {
    let code = answer.status().as_u16();
    if code < 400 {
        return Err(Status::new(Reason::Unknown, handshake::invalid_upgrade_response(code)));
    }
    let mut reply = respond::passed_on(answer);
    reply.extensions_mut().insert(OwnHeaders::None);
    respond::close(&mut reply);
    Ok(reply)
}

/// Returns the failure for a far side that could not be upgraded.
pub(crate) fn unreachable_far_side(error: &Error) -> Failure {
    let why = match &error.cause {
        Cause::NotAllowed => return Status::bad_request("address not allowed"),
        _ if error.phase == Phase::Connect => format!("error dialing backend: {error}"),
        Cause::Closed | Cause::Cut => Cause::Cut.to_string(),
        _ => error.to_string(),
    };
    Status::new(Reason::Unknown, why)
}

/// Passes bytes on in both directions until one side has ended; then the other is closed, too.
async fn splice(near: impl AsyncRead + AsyncWrite + Unpin, far: Throttled<Upgraded>) {
    let (mut near_reader, mut near_writer) = tokio::io::split(near);
    let (mut far_reader, mut far_writer) = tokio::io::split(far);
    let ended = tokio::select! {
        ended = copy(&mut near_reader, &mut far_writer) => ended,
        ended = copy(&mut far_reader, &mut near_writer) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "upgraded connection ended");
    }
    let _ = near_writer.shutdown().await;
    let _ = far_writer.shutdown().await;
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer).await? {
            0 => return to.flush().await,
            bytes => {
                to.write_all(&buffer[..bytes]).await?;
                to.flush().await?;
            }
        }
    }
}
