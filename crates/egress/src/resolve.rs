//! Resolves names to addresses that may be dialled.

use crate::error::Cause;
use keelson_meta::ip::is_global_unicast;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

/// Maximum addresses of one name that are tried.
pub(crate) const ADDRESSES_MAX: usize = 8;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Resolves hosts that DNS does not know, such as the services of a cluster.
pub trait Resolver: Send + Sync {
    /// Resolves `host:port`. The error text is shown to clients.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Resolved, String>>;
}

/// Knows no host: nothing is resolved but by DNS.
pub(crate) struct NoServices;

impl Resolver for NoServices {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, Result<Resolved, String>> {
        Box::pin(async move { Err(format!("{host} is no service")) })
    }
}

/// The result of a [`Resolver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Addresses to try in turn.
    Addresses(Vec<SocketAddr>),
    /// A name to look up in DNS.
    Name {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Where a name may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Anywhere.
    Anywhere,
    /// Not to loopback or link-local addresses. A literal address is intended by the administrator,
    /// so it is not checked.
    NotLocal,
    /// Only to global unicast addresses, by all that it resolves to.
    GlobalUnicast,
}

/// Resolves a name with the system's resolver and checks the addresses.
pub(crate) async fn lookup(host: &str, port: u16, reach: Reach) -> Result<Vec<SocketAddr>, Cause> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        let address = SocketAddr::new(ip, port);
        return match reach {
            Reach::GlobalUnicast if !is_global_unicast(ip) => Err(Cause::NotAllowed),
            _ => Ok(vec![address]),
        };
    }
    let found = match tokio::net::lookup_host((host, port)).await {
        Ok(found) => found.take(ADDRESSES_MAX).collect::<Vec<_>>(),
        Err(error) => return Err(Cause::Resolve(lookup_failed(host, &error.to_string()))),
    };
    if found.is_empty() {
        return Err(Cause::Resolve(lookup_failed(host, "")));
    }
    match reach {
        Reach::Anywhere => Ok(found),
        Reach::NotLocal => checked(host, found),
        Reach::GlobalUnicast if found.iter().all(|address| is_global_unicast(address.ip())) => {
            Ok(found)
        }
        Reach::GlobalUnicast => Err(Cause::NotAllowed),
    }
}

/// Rejects names that resolve to loopback or link-local addresses, which include the metadata
/// services of clouds. Names of this host may resolve to loopback.
fn checked(host: &str, mut found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Cause> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_own = host == "localhost" || host.ends_with(".localhost");
    let first = found[0];
    found.retain(|address| !is_local(address.ip()) || (is_own && is_loopback(address.ip())));
    if found.is_empty() { Err(Cause::Forbidden(first)) } else { Ok(found) }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn is_local(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_link_local
}

/// Returns the text of Go's resolver, which contains the name server.
fn lookup_failed(host: &str, detail: &str) -> String {
    let server = std::fs::read_to_string("/etc/resolv.conf").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("nameserver"))?;
        line.trim().parse::<IpAddr>().ok()
    });
    let why =
        if detail.contains("emporary failure") { "server misbehaving" } else { "no such host" };
    match server {
        Some(server) => {
            format!("dial tcp: lookup {host} on {}: {why}", SocketAddr::new(server, 53))
        }
        None => format!("dial tcp: lookup {host}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, addresses: &[&str], want: &[&str]) {
        let parse = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|ip| SocketAddr::new(ip.parse().expect("an address"), 443)).collect()
        };
        let got = checked(host, parse(addresses)).unwrap_or_default();
        assert_eq!(got, parse(want), "{host}");
    }

    #[test]
    fn loopback_and_metadata_service_addresses_are_forbidden() {
        check("hook.example", &["10.0.0.1", "127.0.0.1"], &["10.0.0.1"]);
        check("hook.example", &["169.254.169.254"], &[]);
        check("hook.example", &["fe80::1", "::1", "::ffff:127.0.0.1", "0.0.0.0"], &[]);
        check("localhost", &["::1", "127.0.0.1"], &["::1", "127.0.0.1"]);
        check("localhost", &["169.254.169.254"], &[]);
        check("a.LOCALHOST.", &["127.0.0.1"], &["127.0.0.1"]);
    }
}
