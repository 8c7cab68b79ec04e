//! The way of a write through admission: what plug-ins are told of it, and what they may read.

use crate::kind::Target;
use crate::registry::Registry;
use crate::stamp;
use keelson_admission::{Operation, Request, Stored};
use keelson_auth::Permit;
use keelson_meta::{Failure, Object, Str};
use std::time::Duration;

/// How long a new pod waits for the service account that a control loop is about to make (upstream
/// asks ten times, up to 200 ms apart).
const ACCOUNT_WAIT: Duration = Duration::from_millis(1_500);

/// What a write tells of itself.
pub(crate) struct Write<'a> {
    pub permit: &'a Permit,
    pub target: &'a Target,
    pub operation: Operation,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The name that the client gave, or empty.
    pub name: &'a str,
    pub dry_run: bool,
    /// The stored object, in the storage version.
    pub old: Option<&'a Object>,
}

impl Registry {
    /// Lets plug-ins change the object of a write, which is in the storage version.
    pub(crate) async fn admit(
        &self,
        write: &Write<'_>,
        obj: &mut Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        self.settle(write, obj).await?;
        self.asked(write, |req| self.options.admission.admit(req, obj, warnings))
    }

    /// Asks plug-ins about the object as it would be stored.
    pub(crate) fn validate_admitted(
        &self,
        write: &Write<'_>,
        obj: &Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        self.asked(write, |req| self.options.admission.validate(req, obj, warnings))
    }

    /// Makes sure that what plug-ins will look for is there to be seen.
    async fn settle(&self, write: &Write<'_>, obj: &Object) -> Result<(), Failure> {
        let namespace = &write.target.namespace;
        let namespaces = self.objects(&self.target("", "namespaces", "", "").kind);
        let there = || namespace.is_empty() || namespaces.get(namespace).is_some();
        let chain = &self.options.admission;
        if !there() || chain.looks_around(write.target.gvr()) {
            self.fresh().await?;
        }
        let Some(account) = self.asked(write, |req| chain.awaited_account(req, obj)) else {
            return Ok(());
        };
        let accounts = self.target("", "serviceaccounts", namespace, account);
        let objects = self.objects(&accounts.kind);
        let mut progress = self.cache.progress();
        let appears = async {
            while objects.get(&accounts.key()).is_none() && there() {
                if progress.changed().await.is_err() {
                    return;
                }
            }
        };
        // Whether it came is for the plug-in to see.
        let _ = tokio::time::timeout(ACCOUNT_WAIT, appears).await;
        Ok(())
    }

    pub(crate) fn asked<T>(&self, write: &Write<'_>, ask: impl FnOnce(&Request<'_>) -> T) -> T {
        let generate_name = |base: &str| stamp::generated_name(self.clock.as_ref(), base);
        ask(&Request {
            operation: write.operation,
            gvr: write.target.gvr(),
            subresource: write.subresource,
            namespace: &write.target.namespace,
            name: write.name,
            user: write.permit.user(),
            dry_run: write.dry_run,
            old: write.old,
            stored: self,
            generate_name: &generate_name,
        })
    }
}

impl Stored for Registry {
    fn get(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure> {
        let Some(kind) = self.kind(group, resource) else {
            return Ok(None);
        };
        let entry = self.known_at(&kind, &kind.key(namespace, name))?;
        entry.map(|entry| kind.decode(&entry)).transpose()
    }

    fn list_with(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        words: &[&str],
    ) -> Result<Vec<Object>, Failure> {
        let Some(kind) = self.kind(group, resource) else {
            return Ok(vec![]);
        };
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        // What cannot be read, a limit say, must not count as absent.
        let snapshot = self.all_under(&kind, &prefix)?;
        let entries = snapshot.range(&prefix, "");
        let wanted = entries
            .filter(|entry| words.is_empty() || words.iter().any(|word| entry.has_text(word)));
        wanted.map(|entry| kind.decode(entry)).collect()
    }

    fn is_terminating(&self, namespace: &str) -> Option<bool> {
        let entry = self.objects(&*self.kind("", "namespaces")?).get(namespace)?;
        Some(entry.field("status.phase") == Some("Terminating"))
    }

    fn labels_of(&self, namespace: &str) -> Vec<(Str, Str)> {
        let kind = self.kind("", "namespaces");
        let Some(entry) = kind.and_then(|kind| self.objects(&kind).get(namespace)) else {
            return vec![];
        };
        let mut labels = Vec::with_capacity(entry.labels().len());
        labels.extend(entry.labels().map(|(key, value)| (key.into(), value.into())));
        labels
    }
}
