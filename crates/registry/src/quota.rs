//! Quotas: charged before an object is stored, and counted again by the server's own loop.

use crate::admission::Write;
use crate::options::WriteOptions;
use crate::registry::Registry;
use crate::verbs::Part;
use crate::verbs::update::Updated;
use keelson_admission::{Amounts, Stored, quota};
use keelson_auth::Permit;
use keelson_meta::{Failure, Map, Object, Quantity, Str, Value};
use std::pin::Pin;

impl Registry {
    /// Charges the quotas of the namespace for what is about to be stored, or refuses it.
    pub(crate) async fn charge(&self, write: &Write<'_>, obj: &Object) -> Result<(), Failure> {
        let on = self.options.admission.has(quota::NAME);
        if !on || !self.asked(write, quota::concerns) {
            return Ok(());
        }
        let namespace = &write.target.namespace;
        let mut due = vec![];
        for quota in Stored::list(self, "", "resourcequotas", namespace)? {
            if self.asked(write, |req| quota::charged(req, obj, &quota))?.is_some() {
                due.push(Str::new(quota.name()));
            }
        }
        if write.dry_run {
            return Ok(());
        }
        if due.is_empty() { Ok(()) } else { self.charge_each(due, write, obj).await }
    }

    /// Charges these quotas. In a box, because the change of a quota comes by here itself.
    fn charge_each<'a>(
        &'a self,
        due: Vec<Str>,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>> {
        Box::pin(async move {
            let permit = Permit::internal("system:apiserver");
            let options =
                WriteOptions { field_manager: "kube-apiserver".into(), ..WriteOptions::default() };
            for name in due {
                let quotas = self.target("", "resourcequotas", &write.target.namespace, &name);
                let make = |live: Option<&Object>| {
                    let mut object = live.cloned().ok_or_else(|| quotas.not_found())?;
                    let used = self.asked(write, |req| quota::charged(req, obj, &object))?;
                    if let Some(used) = used {
                        object.object_mut("status").insert("used", shown(used));
                    }
                    Ok(Updated { object, owned: false, warnings: vec![] })
                };
                match self.change(&permit, &quotas, Part::Status, &make, &options).await {
                    // A quota that is gone limits nothing.
                    Err(status) if status.code == 404 => {}
                    changed => drop(changed?),
                }
            }
            Ok(())
        })
    }

    /// Counts again what the objects of a namespace use up of a quota.
    pub async fn recount_quota(
        &self,
        permit: &Permit,
        namespace: &str,
        name: &str,
    ) -> Result<(), Failure> {
        let quotas = self.target("", "resourcequotas", namespace, name);
        let make = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| quotas.not_found())?;
            let hard = object.at(&["spec", "hard"]).cloned().unwrap_or_default();
            if !hard.is_empty() {
                object.object_mut("status").insert("hard", hard);
                let used = self.count(&object)?;
                object.object_mut("status").insert("used", shown(used));
            }
            Ok(Updated { object, owned: false, warnings: vec![] })
        };
        let options = WriteOptions {
            field_manager: "kube-controller-manager".into(),
            ..WriteOptions::default()
        };
        self.change(permit, &quotas, Part::Status, &make, &options).await.map(drop)
    }

    /// What is used up of a quota, of all that it limits.
    fn count(&self, quota: &Object) -> Result<Amounts, Failure> {
        let hard = quota.at(&["status", "hard"]).and_then(Value::as_object);
        let names = hard.into_iter().flat_map(Map::iter).map(|(what, _)| what.to_string());
        let mut used: Amounts = names.map(|what| (what, Quantity::default())).collect();
        for kind in self.kinds().filter(|kind| kind.namespaced) {
            let (group, resource) = (kind.gvr.group.as_str(), kind.gvr.resource.as_str());
            if !quota::tracks(quota, group, resource) {
                continue;
            }
            for obj in Stored::list(self, group, resource, quota.namespace())? {
                if !quota::matches(quota, group, resource, &obj) {
                    continue;
                }
                for (what, amount) in quota::usage(group, resource, &obj) {
                    if let Some(sum) = used.get_mut(&what) {
                        *sum = sum.add(&amount);
                    }
                }
            }
        }
        Ok(used)
    }
}

fn shown(amounts: Amounts) -> Value {
    let texts = amounts.into_iter().map(|(what, n)| (what.into(), n.to_string().into()));
    Value::Object(Map::from_iter(texts))
}
