//! [`SimulatedPorts`]: what answers at the ports of pods in which nothing runs.

use keelson_registry::hooks::{PodPort, PortHandler};
use keelson_store::BoxFuture;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::io::{AsyncWriteExt, DuplexStream, copy_bidirectional};
use tokio::net::TcpStream;

/// Ports that may be registered.
const PORTS_MAX: usize = 10_000;

/// The registered ports of a simulation. Clones are the same.
#[derive(Clone, Default)]
pub struct SimulatedPorts {
    handlers: Arc<RwLock<BTreeMap<PodPort, PortHandler>>>,
}

impl fmt::Debug for SimulatedPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<PodPort> = self.read(|handlers| handlers.keys().cloned().collect());
        f.debug_tuple("SimulatedPorts").field(&ports).finish()
    }
}

impl SimulatedPorts {
    fn read<T>(&self, read: impl FnOnce(&BTreeMap<PodPort, PortHandler>) -> T) -> T {
        read(&self.handlers.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut BTreeMap<PodPort, PortHandler>) -> T) -> T {
        write(&mut self.handlers.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets a function answer each connection to a port of a pod, which need not exist yet. It gets
    /// the connection, and the client sees its end when the function's future ends. It replaces
    /// what was registered before. Fails if there are too many.
    pub fn serve<F>(
        &self,
        place: (&str, &str, u16),
        handler: impl Fn(DuplexStream) -> F + Send + Sync + 'static,
    ) -> Result<(), String>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (namespace, pod, port) = place;
        let place = PodPort { namespace: namespace.into(), pod: pod.into(), port };
        let handler: PortHandler =
            Arc::new(move |connection| Box::pin(handler(connection)) as BoxFuture<'static, ()>);
        self.write(|handlers| {
            if handlers.len() >= PORTS_MAX && !handlers.contains_key(&place) {
                return Err(format!("more than {PORTS_MAX} ports are registered"));
            }
            handlers.insert(place, handler);
            Ok(())
        })
    }

    /// Passes the connections to a port of a pod on to an address of this machine. Other addresses
    /// are refused: a server must not connect to what only it can reach.
    pub fn forward(&self, place: (&str, &str, u16), to: SocketAddr) -> Result<(), String> {
        if !to.ip().is_loopback() {
            return Err(format!("{to} is not an address of this machine (127.0.0.1 or ::1)"));
        }
        self.serve(place, move |connection| pass_on(connection, to))
    }

    /// Removes what was registered. Returns whether there was something. Open connections stay.
    pub fn remove(&self, place: (&str, &str, u16)) -> bool {
        let (namespace, pod, port) = place;
        let place = PodPort { namespace: namespace.into(), pod: pod.into(), port };
        self.write(|handlers| handlers.remove(&place).is_some())
    }

    /// Returns what answers at a port.
    pub(crate) fn handler(&self, place: &PodPort) -> Option<PortHandler> {
        self.read(|handlers| handlers.get(place).cloned())
    }

    /// Whether anything is registered for a pod.
    pub(crate) fn has_any(&self, namespace: &str, pod: &str) -> bool {
        let first = PodPort { namespace: namespace.into(), pod: pod.into(), port: 0 };
        self.read(|handlers| {
            let next = handlers.range(first..).next();
            next.is_some_and(|(place, _)| place.namespace == namespace && place.pod == pod)
        })
    }
}

async fn pass_on(mut connection: DuplexStream, to: SocketAddr) {
    let passed = async {
        let mut socket = TcpStream::connect(to).await?;
        copy_bidirectional(&mut connection, &mut socket).await
    };
    if let Err(error) = passed.await {
        tracing::debug!(%error, %to, "connection to a registered port ended");
        // The client sees the end of the connection; there is nothing more to tell.
        let _ = connection.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_one_handler_and_only_loopback_is_passed_on_to() {
        let ports = SimulatedPorts::default();
        assert!(!ports.has_any("ns", "p"));
        let place = |port| PodPort { namespace: "ns".into(), pod: "p".into(), port };
        ports.serve(("ns", "p", 80), |_| async {}).expect("it is registered");
        let local = "127.0.0.1:1".parse().expect("an address");
        ports.forward(("ns", "p", 81), local).expect("it is registered");
        assert!(ports.has_any("ns", "p") && !ports.has_any("ns", "o") && !ports.has_any("a", "p"));
        assert!(ports.handler(&place(80)).is_some() && ports.handler(&place(82)).is_none());
        for other in ["10.0.0.1:80", "169.254.169.254:80", "0.0.0.0:80", "[::]:80", "8.8.8.8:53"] {
            let why = ports.forward(("ns", "p", 82), other.parse().expect("an address"));
            assert!(why.expect_err("not here").contains("is not an address of this machine"));
        }
        assert!(ports.remove(("ns", "p", 80)) && ports.remove(("ns", "p", 81)));
        assert!(!ports.has_any("ns", "p") && !ports.remove(("ns", "p", 80)));
    }
}
