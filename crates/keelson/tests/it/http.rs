//! A server for tests, and a client of it.

use keelson::{AdmissionChain, Builder, Keelson};
use tokio::runtime::Runtime;

pub use keelson_testkit::http::{Client, POLL_TIMEOUT, Response, revision_of};

/// Returns a builder without controllers. No loop creates service accounts, so the plug-in for
/// them is off.
pub fn without_controllers() -> Builder {
    without_service_accounts().no_controllers()
}

/// Returns the builder of a server in memory whose pods need no service account.
pub fn without_service_accounts() -> Builder {
    let off = ["ServiceAccount".to_owned()];
    let admission = AdmissionChain::new(&[], &off).expect("there is such a plug-in");
    Keelson::builder().with(|builder| builder.admission.chain = admission)
}

/// A running server and the threads that it runs on.
pub struct Server {
    runtime: Runtime,
    pub keelson: Keelson,
}

impl Server {
    /// Starts what the builder describes.
    pub fn start(builder: Builder) -> Server {
        let runtime = Runtime::new().expect("a runtime");
        let keelson = runtime.block_on(builder.start()).expect("the server starts");
        Server { runtime, keelson }
    }

    /// Starts what the builder describes, without TLS and with the token `t`.
    pub fn start_plain(builder: Builder) -> Server {
        Server::start(builder.plain_http().token("t", "admin"))
    }

    /// Returns a client of this server.
    pub fn client(&self) -> Client {
        Client { address: self.keelson.address() }
    }

    /// Runs a future on the server's runtime.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Stops the server and waits for its end.
    pub fn stop(self) {
        self.runtime.block_on(self.keelson.stop());
    }
}
