//! The cluster authentication trust controller, which every kube-apiserver runs: publishes in the
//! ConfigMap `kube-system/extension-apiserver-authentication` which CAs sign client certificates
//! and which headers a front proxy sets. Extension API servers read it.
//!
//! Several servers may share the ConfigMap: each adds what it trusts, and removes only expired CAs
//! (kube-apiserver `clusterauthenticationtrust`).

use keelson_auth::{FrontProxy, x509};
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Map, Object};
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "client-ca-file";
const FRONT_PROXY_CA: &str = "requestheader-client-ca-file";
const UID_HEADERS: &str = "requestheader-uid-headers";
/// Time between checks for expired CAs.
const RESYNC: Duration = Duration::from_secs(60);

/// The client certificates and front proxies that the server trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTrust {
    /// The CAs of client certificates, in PEM; empty: none.
    pub client_ca: String,
    /// The CAs of front proxies, in PEM, and the headers with the user.
    pub front_proxy: Option<(String, Arc<FrontProxy>)>,
}

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>, mut trust: watch::Receiver<ClientTrust>) {
    loop {
        let client = Client::api_server(&registry);
        let trusts = AuthenticationTrust { client, trust: trust.borrow_and_update().clone() };
        tokio::select! {
            () = control_loop::run(&registry, trusts) => return,
            changed = trust.changed() => if changed.is_err() { std::future::pending().await },
        }
    }
}

struct AuthenticationTrust {
    client: Client,
    trust: ClientTrust,
}

impl ControlLoop for AuthenticationTrust {
    /// There is only one ConfigMap.
    type Key = ();
    const NAME: &'static str = "cluster-authentication-trust-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "configmaps")]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<()>) -> bool {
        if self.trust != ClientTrust::default()
            && control_loop::may_concern(&events, NAMESPACE, CONFIG_MAP)
        {
            queue.add(());
        }
        false
    }

    async fn sync(&self, (): ()) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "configmaps") else { return Ok(None) };
        let target = Target::of(&kind, NAMESPACE, CONFIG_MAP);
        let known = self.client.get(&target).await?;
        let is_new = known.is_none();
        let mut map = known.unwrap_or_else(|| {
            let mut map = Object::new();
            map.set_meta("name", CONFIG_MAP);
            map.set_meta("namespace", NAMESPACE);
            map
        });
        let before = map.get("data").and_then(|data| data.as_object()).cloned().unwrap_or_default();
        let data = merged_data(&before, &self.trust, self.client.now().seconds);
        if data == before {
            return Ok(Some(RESYNC));
        }
        map.root.insert("data", data);
        if is_new {
            ignore_terminating(self.client.create(&target, map).await)?;
        } else {
            ignore_terminating(self.client.update(&target, Subresource::None, map).await)?;
        }
        Ok(Some(RESYNC))
    }
}

/// Merges the data of the ConfigMap with what this server trusts.
fn merged_data(before: &Map, trust: &ClientTrust, now: i64) -> Map {
    let mut data = before.clone();
    let mut authorities = |key: &str, pem: &str| {
        let known = before.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        let merged = merge_bundles(known, pem, now);
        if !merged.is_empty() {
            data.insert(key, merged);
        }
    };
    authorities(CLIENT_CA, &trust.client_ca);
    let Some((pem, proxy)) = &trust.front_proxy else { return data };
    authorities(FRONT_PROXY_CA, pem);
    let lists = [
        ("requestheader-allowed-names", &proxy.allowed_names),
        ("requestheader-extra-headers-prefix", &proxy.extra_header_prefixes),
        ("requestheader-group-headers", &proxy.group_headers),
        (UID_HEADERS, &proxy.uid_headers),
        ("requestheader-username-headers", &proxy.username_headers),
    ];
    for (key, names) in lists {
        let known = before.get(key).and_then(|value| value.as_str()).unwrap_or("[]");
        // An unreadable list counts as empty.
        let mut all: Vec<String> = serde_json::from_str(known).unwrap_or_default();
        for name in names {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        // As upstream, which knows this list for a shorter time than the others.
        if all.is_empty() && key == UID_HEADERS {
            continue;
        }
        data.insert(key, serde_json::json!(all).to_string());
    }
    data
}

/// Merges two PEM bundles, without duplicates and expired certificates.
fn merge_bundles(first: &str, second: &str, now: i64) -> String {
    let mut certificates: Vec<Vec<u8>> = vec![];
    for certificate in x509::certificates(first).into_iter().chain(x509::certificates(second)) {
        let is_expired = x509::validity(&certificate).is_none_or(|v| v.not_after < now);
        if !is_expired && !certificates.contains(&certificate) {
            certificates.push(certificate);
        }
    }
    certificates.iter().map(|certificate| x509::pem(certificate)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_headers_are_there_when_empty_but_that_of_uids() {
        let proxy = Arc::new(FrontProxy::default());
        let trust =
            ClientTrust { client_ca: String::new(), front_proxy: Some((String::new(), proxy)) };
        let data = merged_data(&Map::new(), &trust, 0);
        let empty = |key: &str| data.get(key).and_then(|value| value.as_str()) == Some("[]");
        assert!(empty("requestheader-allowed-names") && empty("requestheader-group-headers"));
        assert!(data.get(UID_HEADERS).is_none(), "{data:?}");
    }
}
