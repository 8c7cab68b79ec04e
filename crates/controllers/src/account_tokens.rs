//! The service account token controller: writes a token into Secrets of type
//! `kubernetes.io/service-account-token`, and deletes these Secrets with their service account.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_auth::service_account::ServiceAccountTokens;
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str};
use keelson_records::Entry;
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::sync::Arc;
use std::time::Duration;

const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
const NAME_ANNOTATION: &str = "kubernetes.io/service-account.name";
const UID_ANNOTATION: &str = "kubernetes.io/service-account.uid";

/// Runs until it is dropped.
pub(crate) async fn run(
    registry: Arc<Registry>,
    tokens: Arc<ServiceAccountTokens>,
    root_ca: Arc<str>,
) {
    let client = Client::manager(&registry);
    control_loop::run(&registry, AccountTokens { client, tokens, root_ca }).await;
}

struct AccountTokens {
    client: Client,
    tokens: Arc<ServiceAccountTokens>,
    root_ca: Arc<str>,
}

impl ControlLoop for AccountTokens {
    /// Namespace and name of a Secret.
    type Key = (Str, Str);
    const NAME: &'static str = "serviceaccount-token-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "secrets"), ("", "serviceaccounts")]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<(Str, Str)>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == "secrets" => {
                    queue.extend(all.range("", "").filter_map(key_of));
                }
                InformerEvent::Put { kind, entry, .. } if kind.gvr.resource == "secrets" => {
                    queue.extend(key_of(entry));
                }
                // The Secrets of a service account that was deleted or created again.
                InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. } => {
                    queue.extend(self.secrets_in(entry.namespace()));
                }
                InformerEvent::Listed(..) | InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, key: (Str, Str)) -> Result<Option<Duration>, Failure> {
        let (namespace, name) = key;
        let (Some(secrets), Some(accounts)) =
            (self.client.kind("", "secrets"), self.client.kind("", "serviceaccounts"))
        else {
            return Ok(None);
        };
        let target = Target::of(&secrets, &namespace, &name);
        let known = self.client.registry.cached(&secrets, &namespace, &name);
        let Some(secret) = known.map(|entry| secrets.decode(&entry)).transpose()? else {
            return Ok(None);
        };
        let owner = secret.annotation(NAME_ANNOTATION).unwrap_or_default();
        if secret.str_at(&["type"]) != SECRET_TYPE || owner.is_empty() {
            return Ok(None);
        }
        let account = self
            .client
            .registry
            .cached(&accounts, &namespace, owner)
            .map(|entry| accounts.decode(&entry))
            .transpose()?;
        let wanted = secret.annotation(UID_ANNOTATION).unwrap_or_default();
        let account = account.filter(|account| wanted.is_empty() || wanted == account.uid());
        let Some(account) = account else {
            let options = DeleteOptions {
                uid: Some(secret.uid().into()),
                resource_version: Some(secret.resource_version().into()),
                ..DeleteOptions::default()
            };
            ignore_terminating(self.client.delete(&target, &options).await)?;
            return Ok(None);
        };
        if let Some(completed) = self.completed(secret, &account) {
            ignore_terminating(self.client.update(&target, Subresource::None, completed).await)?;
        }
        Ok(None)
    }
}

fn key_of(entry: &Entry) -> Option<(Str, Str)> {
    let is_token = entry.field("type") == Some(SECRET_TYPE);
    is_token.then(|| (entry.namespace().into(), entry.name().into()))
}

impl AccountTokens {
    fn secrets_in(&self, namespace: &str) -> Vec<(Str, Str)> {
        let Some(kind) = self.client.kind("", "secrets") else { return vec![] };
        let all = self.client.registry.cached_all(&kind);
        all.range(&format!("{namespace}/"), "").filter_map(key_of).collect()
    }

    /// Returns the completed Secret; `None` if it is complete already.
    fn completed(&self, mut secret: Object, account: &Object) -> Option<Object> {
        let name = Str::new(secret.name());
        let mut changed = secret.annotation(UID_ANNOTATION) != Some(account.uid());
        let annotations = secret.metadata_mut().object_at("annotations");
        annotations.insert(UID_ANNOTATION, account.uid());
        let wanted = [("ca.crt", &*self.root_ca), ("namespace", account.namespace())];
        let data = secret.object_mut("data");
        for (name, text) in wanted {
            let text = STANDARD.encode(text);
            if data.get(name).and_then(|known| known.as_str()) != Some(&text) {
                data.insert(name, text);
                changed = true;
            }
        }
        let has_token = data.get("token").is_some_and(|token| !token.is_empty());
        if !has_token && let Some(token) = self.tokens.issue_legacy(account, &name) {
            data.insert("token", STANDARD.encode(token));
            changed = true;
        }
        changed.then_some(secret)
    }
}
