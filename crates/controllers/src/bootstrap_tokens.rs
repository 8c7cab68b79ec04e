//! The loops for bootstrap tokens: the cleaner deletes expired tokens; the signer signs the
//! ConfigMap `kube-public/cluster-info` with each token, so that a new node can verify it.

use keelson_auth::BootstrapToken;
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Map, Object, Str, Timestamp, Value};
use keelson_records::Entry;
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const INFO_NAMESPACE: &str = "kube-public";
const INFO: &str = "cluster-info";
const KUBECONFIG: &str = "kubeconfig";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

/// Runs the cleaner until it is dropped.
pub(crate) async fn clean(registry: Arc<Registry>) {
    let client = Client::new(&registry, "token-cleaner");
    control_loop::run(&registry, Cleaner { client }).await;
}

/// Runs the signer until it is dropped.
pub(crate) async fn sign(registry: Arc<Registry>) {
    let client = Client::new(&registry, "bootstrap-signer");
    control_loop::run(&registry, Signer { client }).await;
}

fn is_token(entry: &Entry) -> bool {
    entry.namespace() == NAMESPACE && entry.field("type") == Some(SECRET_TYPE)
}

fn is_expired(token: &BootstrapToken, now: Timestamp) -> bool {
    token.expires.is_some_and(|end| end <= now)
}

struct Cleaner {
    client: Client,
}

impl ControlLoop for Cleaner {
    /// The name of a Secret.
    type Key = Str;
    const NAME: &'static str = "token-cleaner-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "secrets")]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(_, all) => {
                    let tokens = all.range("kube-system/", "").filter(|entry| is_token(entry));
                    queue.extend(tokens.map(|entry| entry.name().into()));
                }
                InformerEvent::Put { entry, .. } if is_token(entry) => {
                    queue.add(entry.name().into());
                }
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, name: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "secrets") else { return Ok(None) };
        let known = self.client.registry.cached(&kind, NAMESPACE, &name);
        let Some(secret) = known.map(|entry| kind.decode(&entry)).transpose()? else {
            return Ok(None);
        };
        let token = BootstrapToken::read(&secret);
        let Some(end) = token.and_then(|token| token.expires) else { return Ok(None) };
        let left = end.since(self.client.now()).0;
        if left > 0 {
            return Ok(Some(Duration::from_nanos(left.unsigned_abs())));
        }
        let options = DeleteOptions { uid: Some(secret.uid().into()), ..DeleteOptions::default() };
        let target = Target::of(&kind, NAMESPACE, &name);
        ignore_terminating(self.client.delete(&target, &options).await)?;
        Ok(None)
    }
}

struct Signer {
    client: Client,
}

impl ControlLoop for Signer {
    /// There is only one ConfigMap.
    type Key = ();
    const NAME: &'static str = "bootstrap-signer-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "secrets"), ("", "configmaps")]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<()>) -> bool {
        let is_info = |entry: &Entry| entry.namespace() == INFO_NAMESPACE && entry.name() == INFO;
        let concerns = |event: &InformerEvent| match event {
            InformerEvent::Listed(..) => true,
            InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. } => {
                is_token(entry) || is_info(entry)
            }
            InformerEvent::Withdrawn(_) => false,
        };
        if events.iter().any(concerns) {
            queue.add(());
        }
        false
    }

    async fn sync(&self, (): ()) -> Result<Option<Duration>, Failure> {
        let (Some(secrets), Some(maps)) =
            (self.client.kind("", "secrets"), self.client.kind("", "configmaps"))
        else {
            return Ok(None);
        };
        let registry = &self.client.registry;
        let known = registry.cached(&maps, INFO_NAMESPACE, INFO);
        let Some(mut info) = known.map(|entry| maps.decode(&entry)).transpose()? else {
            return Ok(None);
        };
        let kubeconfig = info.str_at(&["data", KUBECONFIG]).to_owned();
        if kubeconfig.is_empty() {
            return Ok(None);
        }
        let all = registry.cached_all(&secrets);
        let stored = all
            .range("kube-system/", "")
            .filter(|entry| is_token(entry))
            .filter_map(|entry| secrets.decode(entry).ok());
        let (signatures, next) = signatures(stored, &kubeconfig, self.client.now());
        let data = info.object_mut("data");
        let before = data.clone();
        data.retain(|name, _| !name.starts_with(SIGNATURE_PREFIX));
        for (name, signature) in signatures.iter() {
            data.insert(name.clone(), signature.clone());
        }
        if *data != before {
            let target = Target::of(&maps, INFO_NAMESPACE, INFO);
            ignore_terminating(self.client.update(&target, Subresource::None, info).await)?;
        }
        Ok(next)
    }
}

/// Returns the signatures by valid tokens, and the time until the first of these expires.
fn signatures(
    stored: impl Iterator<Item = Object>,
    kubeconfig: &str,
    now: Timestamp,
) -> (Map, Option<Duration>) {
    let mut signatures = Map::new();
    let mut next = None::<Duration>;
    for secret in stored {
        let token = BootstrapToken::read(&secret).filter(|token| token.signs);
        let Some(token) = token.filter(|token| !is_expired(token, now)) else { continue };
        let Some(signature) = token.sign(&secret, kubeconfig) else { continue };
        signatures.insert(format!("{SIGNATURE_PREFIX}{}", token.id), Value::from(signature));
        if let Some(end) = token.expires {
            let left = Duration::from_nanos(end.since(now).0.unsigned_abs());
            next = Some(next.map_or(left, |next| next.min(left)));
        }
    }
    (signatures, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use keelson_meta::value;

    #[test]
    fn cluster_info_is_signed_by_valid_tokens() {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let secret = |id: &str, signs: &str, expires: &str| {
            let secret = value!({
                "metadata": {"name": (format!("bootstrap-token-{id}")), "namespace": "kube-system"},
                "type": SECRET_TYPE,
                "data": {"token-id": (encode(id)), "token-secret": (encode("0123456789abcdef")),
                    "usage-bootstrap-signing": (encode(signs)), "expiration": (encode(expires))}
            });
            Object::from_value(secret).expect("a map")
        };
        let now = Timestamp::parse("2026-01-01T00:00:00Z").expect("a time");
        let stored = [
            secret("abcdef", "true", ""),
            secret("soon00", "true", "2026-01-01T00:01:00Z"),
            secret("late00", "true", "2025-01-01T00:00:00Z"),
            secret("other0", "false", ""),
        ];
        let (signed, next) = signatures(stored.into_iter(), "test", now);
        let names: Vec<&str> = signed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["jws-kubeconfig-abcdef", "jws-kubeconfig-soon00"]);
        assert_eq!(next, Some(Duration::from_secs(60)));
        // Of the header {"alg":"HS256","kid":"abcdef"} and the text.
        let signature = signed.get("jws-kubeconfig-abcdef").and_then(Value::as_str);
        let header = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..";
        assert!(signature.is_some_and(|text| text.starts_with(header)), "{signature:?}");
    }
}
