//! Legacy tokens: service account tokens in Secrets, which do not expire. This module records when
//! each was used last and since when that is recorded; a controller invalidates and deletes
//! generated ones that are not used any more.

use keelson_auth::service_account::{
    INVALID_SINCE_LABEL, LAST_USED_LABEL, ServiceAccountTokens, day,
};
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Map, Object, Str, Timestamp, Value, value};
use keelson_registry::options::{DeleteOptions, PatchForm};
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "kube-apiserver-legacy-service-account-token-tracking";
const SINCE: &str = "since";
const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_ANNOTATION: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID_ANNOTATION: &str = "kubernetes.io/service-account.uid";
/// How long an unused token is kept, and how long an invalidated one, as in
/// kube-controller-manager.
const CLEAN_UP_DAYS: i64 = 365;
const DAY_SECONDS: i64 = 86_400;
/// Time between clean-ups.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(86_400);
/// Delay after a failed clean-up, for example after a conflict with another write to a Secret.
const CLEAN_UP_RETRY: Duration = Duration::from_secs(5);
/// Delay after a label could not be written.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Labels the Secrets of used tokens with the day of their last use. Every server runs this until
/// it is dropped.
pub async fn track_legacy_uses(registry: Arc<Registry>, tokens: Arc<ServiceAccountTokens>) {
    let client = Client::api_server(&registry);
    loop {
        let (namespace, name) = tokens.next_legacy_use().await;
        if let Err(error) = mark_used(&client, &namespace, &name).await {
            let namespace = namespace.as_str();
            let name = name.as_str();
            tracing::debug!(%error, namespace, name, "last use of a legacy token not written");
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

async fn mark_used(client: &Client, namespace: &str, name: &str) -> Result<(), Failure> {
    let today = day(client.now());
    set_label(client, namespace, name, LAST_USED_LABEL, &today).await
}

async fn set_label(
    client: &Client,
    namespace: &str,
    name: &str,
    label: &str,
    value: &str,
) -> Result<(), Failure> {
    let Some(kind) = client.kind("", "secrets") else { return Ok(()) };
    let target = Target::of(&kind, namespace, name);
    let mut labels = Map::new();
    labels.insert(label, value);
    let patch = value!({"metadata": {"labels": (labels)}});
    ignore_terminating(client.patch(&target, Subresource::None, PatchForm::Merge, &patch).await)
}

/// Maintains the ConfigMap that contains the day since which the use of tokens is recorded. Runs
/// until it is dropped.
pub(crate) async fn track_since(registry: Arc<Registry>) {
    let client = Client::api_server(&registry);
    control_loop::run(&registry, TrackingStart { client }).await;
}

struct TrackingStart {
    client: Client,
}

impl ControlLoop for TrackingStart {
    /// There is only one ConfigMap.
    type Key = ();
    const NAME: &'static str = "legacy-service-account-token-tracking-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "configmaps")]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<()>) -> bool {
        if control_loop::may_concern(&events, NAMESPACE, CONFIG_MAP) {
            queue.add(());
        }
        false
    }

    async fn sync(&self, (): ()) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "configmaps") else { return Ok(None) };
        let target = Target::of(&kind, NAMESPACE, CONFIG_MAP);
        let known = self.client.get(&target).await?;
        let today = day(self.client.now());
        match known {
            None => {
                let mut map = Object::new();
                map.set_meta("name", CONFIG_MAP);
                map.set_meta("namespace", NAMESPACE);
                map.object_mut("data").insert(SINCE, today.as_str());
                ignore_terminating(self.client.create(&target, map).await)?;
            }
            Some(mut map) if seconds(map.str_at(&["data", SINCE])).is_none() => {
                map.object_mut("data").insert(SINCE, today.as_str());
                ignore_terminating(self.client.update(&target, Subresource::None, map).await)?;
            }
            Some(_) => {}
        }
        Ok(None)
    }
}

/// Returns the first second of a day, since 1970; `None` if the text is not a day.
fn seconds(day: &str) -> Option<i64> {
    Timestamp::parse(&format!("{day}T00:00:00Z")).ok().map(|time| time.seconds)
}

/// Invalidates and deletes tokens that are not used any more. Runs until it is dropped.
pub(crate) async fn clean(registry: Arc<Registry>) {
    let client = Client::new(&registry, "legacy-service-account-token-cleaner");
    let cleaner = Cleaner { client };
    loop {
        let pause = match cleaner.clean_up().await {
            Ok(()) => CLEAN_UP_INTERVAL,
            Err(error) => {
                tracing::warn!(%error, retry = ?CLEAN_UP_RETRY, "unused legacy tokens not cleaned up");
                CLEAN_UP_RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

struct Cleaner {
    client: Client,
}

/// What to do with a Secret.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Keep,
    /// Label the token as invalid from now on.
    Invalidate,
    Delete,
}

impl Cleaner {
    async fn clean_up(&self) -> Result<(), Failure> {
        let registry = &self.client.registry;
        let kinds = ["configmaps", "secrets", "serviceaccounts", "pods"]
            .map(|resource| self.client.kind("", resource));
        let [Some(maps), Some(secrets), Some(accounts), Some(pods)] = kinds else { return Ok(()) };
        let map = registry
            .cached(&maps, NAMESPACE, CONFIG_MAP)
            .map(|entry| maps.decode(&entry))
            .transpose()?;
        let since = map.as_ref().and_then(|map| seconds(map.str_at(&["data", SINCE])));
        let now = self.client.now();
        let oldest = now.seconds - CLEAN_UP_DAYS * DAY_SECONDS;
        // The use of tokens before tracking began is unknown.
        if since.is_none_or(|since| since > oldest) {
            return Ok(());
        }
        let mut mounted: HashSet<(Str, Str)> = HashSet::new();
        for entry in registry.cached_all(&pods).range("", "") {
            let pod = pods.decode(entry)?;
            let names = secret_volumes(&pod).map(|name| (pod.namespace().into(), name.into()));
            mounted.extend(names);
        }
        for entry in registry.cached_all(&secrets).range("", "") {
            if entry.field("type") != Some(SECRET_TYPE) {
                continue;
            }
            let secret = secrets.decode(entry)?;
            let owner = secret.annotation(ACCOUNT_ANNOTATION).unwrap_or_default();
            let account = registry
                .cached(&accounts, secret.namespace(), owner)
                .map(|entry| accounts.decode(&entry))
                .transpose()?;
            let is_mounted =
                mounted.contains(&(Str::new(secret.namespace()), Str::new(secret.name())));
            let is_generated = account.is_some_and(|account| is_generated(&secret, &account));
            if is_mounted || !is_generated {
                continue;
            }
            self.apply(&secret, action_for(&secret, oldest), now).await?;
        }
        Ok(())
    }

    async fn apply(&self, secret: &Object, action: Action, now: Timestamp) -> Result<(), Failure> {
        let namespace = secret.namespace();
        let name = secret.name();
        match action {
            Action::Keep => Ok(()),
            Action::Invalidate => {
                tracing::info!(namespace, name, "unused legacy token marked as invalid");
                set_label(&self.client, namespace, name, INVALID_SINCE_LABEL, &day(now)).await
            }
            Action::Delete => {
                let Some(kind) = self.client.kind("", "secrets") else { return Ok(()) };
                let target = Target::of(&kind, namespace, name);
                let options = DeleteOptions {
                    uid: Some(secret.uid().into()),
                    resource_version: Some(secret.resource_version().into()),
                    ..DeleteOptions::default()
                };
                tracing::info!(namespace, name, "unused legacy token deleted");
                ignore_terminating(self.client.delete(&target, &options).await)
            }
        }
    }
}

/// Whether kube-controller-manager generated the Secret for its service account, as it once did.
fn is_generated(secret: &Object, account: &Object) -> bool {
    let is_named = |reference: &Value| reference.str_at(&["name"]) == Some(secret.name());
    let uid = secret.annotation(ACCOUNT_UID_ANNOTATION).unwrap_or_default();
    (uid.is_empty() || uid == account.uid()) && account.array_at(&["secrets"]).iter().any(is_named)
}

/// Returns the names of the Secrets that a pod mounts.
fn secret_volumes(pod: &Object) -> impl Iterator<Item = &str> {
    let volumes = pod.array_at(&["spec", "volumes"]).iter();
    volumes.filter_map(|volume| volume.str_at(&["secret", "secretName"]))
}

/// Returns what to do with a Secret that no pod mounts. Tokens that were used or created after
/// `oldest` are kept.
fn action_for(secret: &Object, oldest: i64) -> Action {
    let created = Timestamp::parse(secret.creation_timestamp()).map_or(i64::MAX, |t| t.seconds);
    if created >= oldest || secret.deletion_timestamp().is_some() {
        return Action::Keep;
    }
    let oldest_day = day(Timestamp::new(oldest, 0));
    match secret.label(LAST_USED_LABEL) {
        // An unreadable day keeps the token.
        Some(used) if seconds(used).is_none() || used >= oldest_day.as_str() => {
            return Action::Keep;
        }
        _ => {}
    }
    match secret.label(INVALID_SINCE_LABEL) {
        Some(since) if seconds(since).is_some() => {
            if since >= oldest_day.as_str() {
                Action::Keep
            } else {
                Action::Delete
            }
        }
        _ => Action::Invalidate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_invalidated_after_a_year_without_use_and_deleted_a_year_later() {
        let oldest = seconds("2025-06-01").expect("a day");
        let check = |created: &str, used: &str, invalid: &str, want: Action| {
            let mut secret = Object::from_value(value!({
                "metadata": {"name": "s", "creationTimestamp": (format!("{created}T10:00:00Z"))}
            }))
            .expect("an object");
            for (label, text) in [(LAST_USED_LABEL, used), (INVALID_SINCE_LABEL, invalid)] {
                if !text.is_empty() {
                    secret.metadata_mut().object_at("labels").insert(label, text);
                }
            }
            assert_eq!(action_for(&secret, oldest), want, "{created} {used} {invalid}");
        };
        check("2025-07-01", "", "", Action::Keep);
        check("2024-07-01", "", "", Action::Invalidate);
        check("2024-07-01", "2025-06-01", "", Action::Keep);
        check("2024-07-01", "2025-05-31", "", Action::Invalidate);
        check("2024-07-01", "today", "", Action::Keep);
        check("2024-07-01", "2025-05-31", "soon", Action::Invalidate);
        check("2024-07-01", "2025-05-31", "2025-06-01", Action::Keep);
        check("2024-07-01", "2025-05-31", "2025-05-31", Action::Delete);
        check("2024-07-01", "2025-07-01", "2025-05-31", Action::Keep);
    }

    #[test]
    fn only_tokens_that_their_account_refers_to_are_generated() {
        let object = |value| Object::from_value(value).expect("an object");
        let account = object(value!({"metadata": {"uid": "u"}, "secrets": [{"name": "s"}]}));
        let secret = |name: &str, uid: &str| {
            object(value!({"metadata": {"name": (name), "annotations": {
                "kubernetes.io/service-account.uid": (uid)}}}))
        };
        assert!(is_generated(&secret("s", "u"), &account));
        assert!(!is_generated(&secret("t", "u"), &account));
        assert!(!is_generated(&secret("s", "other"), &account));
    }
}
