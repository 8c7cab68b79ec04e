//! [`Upgrade`]: a connection whose client asks to go on in another protocol (RFC 9110, section
//! 7.8).

use crate::context::RequestContext;
use crate::header_lists::is_upgrade;
use crate::peer::{Peer, shutdown_requested};
use crate::respond::Reply;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use keelson_store::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long an upgraded connection may take to end at a shutdown.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);

/// A request to go on in another protocol.
pub(crate) struct Upgrade {
    /// Resolves to the connection after the response 101 is sent.
    on: OnUpgrade,
    /// The client; it counts the connection until that is closed.
    peer: Arc<Peer>,
}

impl Upgrade {
    /// Takes the upgrade out of a request; `None` if it does not ask for one.
    pub fn of(request: &mut Request<Incoming>, peer: &Arc<Peer>) -> Option<Upgrade> {
        is_upgrade(request.headers()).then(|| {
            let on = hyper::upgrade::on(request);
            Upgrade { on, peer: peer.clone() }
        })
    }
}

/// A connection that leaves HTTP.
pub(crate) struct Tunnel {
    /// The response 101.
    pub reply: Reply,
    /// What runs on the connection afterwards, until it ends.
    pub run: Box<dyn FnOnce(TokioIo<Upgraded>) -> BoxFuture<'static, ()> + Send>,
}

impl Tunnel {
    /// Returns the response 101, and the connection to start after it.
    pub fn switch(self, upgrade: Upgrade) -> (Reply, UpgradedConnection) {
        let Tunnel { mut reply, run } = self;
        *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        (reply, UpgradedConnection { upgrade, run })
    }
}

/// A connection after its response 101.
pub(crate) struct UpgradedConnection {
    upgrade: Upgrade,
    run: Box<dyn FnOnce(TokioIo<Upgraded>) -> BoxFuture<'static, ()> + Send>,
}

impl UpgradedConnection {
    /// Runs in a task of its own until the connection ends, is evicted, its client has gone, or the
    /// server shuts down.
    /// The context is that of the request.
    pub fn start(self, context: RequestContext, mut shutdown: watch::Receiver<bool>) {
        let UpgradedConnection { upgrade, run } = self;
        tokio::spawn(async move {
            let _context = context;
            let Ok(upgraded) = upgrade.on.await else { return };
            let mut run = run(TokioIo::new(upgraded));
            tokio::select! {
                () = &mut run => {}
                () = upgrade.peer.slot.evicted() => {}
                () = upgrade.peer.gone() => {}
                () = shutdown_requested(&mut shutdown) => {
                    // It hears of the shutdown, too, and may say good-bye.
                    let _ = timeout(GOODBYE_TIME_MAX, run).await;
                }
            }
        });
    }
}
