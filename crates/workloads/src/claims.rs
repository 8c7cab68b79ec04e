//! Which objects belong to a controller: it adopts orphans that its selector matches and releases
//! objects that it does not match any more.

use crate::pod_control::controller_reference;
use keelson_loops::client::Client;
use keelson_meta::{Failure, Object, Reason, Status, Value, value};
use keelson_registry::options::PatchForm;
use keelson_registry::{Answer, Subresource, Target};
use keelson_resources::Kind;
use std::sync::Arc;

/// What a controller does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is the controller's already.
    Keep,
    /// It becomes the controller's.
    Adopt,
    /// It is the controller's no more.
    Release,
    /// It is not the controller's.
    Ignore,
}

/// Decides about an object; `is_match`: the controller's selector matches it.
pub(crate) fn decide(object: &Object, owner: &Object, is_match: bool) -> Claim {
    let is_owner_deleting = owner.deletion_timestamp().is_some();
    match object.controller().map(|one| one.str_at(&["uid"]).unwrap_or_default()) {
        Some(uid) if uid != owner.uid() => Claim::Ignore,
        Some(_) if is_match => Claim::Keep,
        Some(_) if is_owner_deleting => Claim::Ignore,
        Some(_) => Claim::Release,
        None if is_owner_deleting || !is_match || object.deletion_timestamp().is_some() => {
            Claim::Ignore
        }
        None => Claim::Adopt,
    }
}

/// Claims objects for one owner.
pub(crate) struct Claims<'a> {
    /// Acts as the control loop.
    pub client: &'a Client,
    /// The controller.
    pub owner: &'a Object,
    /// Where the controller is stored.
    pub owner_target: &'a Target,
    /// Finalizers that an adopted object gets and a released one loses.
    pub finalizers: &'a [&'a str],
}

impl Claims<'_> {
    /// Adopts and releases objects, and returns those that the owner has now. All objects are
    /// tried; the first error is returned.
    pub async fn claim(
        &self,
        kind: &Arc<Kind>,
        objects: Vec<Object>,
        is_match: impl Fn(&Object) -> bool,
    ) -> Result<Vec<Object>, Failure> {
        let mut claimed = vec![];
        let mut failed = None;
        let mut may_adopt: Option<Result<(), Failure>> = None;
        for object in objects {
            let result = match decide(&object, self.owner, is_match(&object)) {
                Claim::Ignore => Ok(None),
                Claim::Keep => Ok(Some(object)),
                Claim::Release => self.release(kind, &object).await.map(|()| None),
                Claim::Adopt => {
                    if may_adopt.is_none() {
                        may_adopt = Some(self.check_owner().await);
                    }
                    match &may_adopt {
                        Some(Err(error)) => Err(error.clone()),
                        _ => self.adopt(kind, object).await,
                    }
                }
            };
            match result {
                Ok(one) => claimed.extend(one),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(claimed), Err)
    }

    /// Reads the owner from the store: one that was deleted or replaced must not adopt.
    async fn check_owner(&self) -> Result<(), Failure> {
        let kind = self.owner.kind();
        let name = self.owner_target.key();
        let Some(fresh) = self.client.get(self.owner_target).await? else {
            return Err(self.owner_target.not_found());
        };
        let why = match fresh.deletion_timestamp() {
            _ if fresh.uid() != self.owner.uid() => {
                let got = fresh.uid();
                let wanted = self.owner.uid();
                format!("original {kind} {name} is gone: got uid {got}, wanted {wanted}")
            }
            Some(at) => format!("{name} has just been deleted at {at}"),
            None => return Ok(()),
        };
        // The change is on its way to this loop, so it is a conflict rather than an error.
        Err(Status::new(Reason::Conflict, why))
    }

    async fn adopt(&self, kind: &Arc<Kind>, object: Object) -> Result<Option<Object>, Failure> {
        let reference = controller_reference(self.owner);
        let mut patch = value!({"metadata": {
            "ownerReferences": [(reference)], "uid": (object.uid())
        }});
        if !self.finalizers.is_empty() {
            insert_metadata(&mut patch, "finalizers", self.finalizers);
        }
        self.patch(kind, &object, &patch).await
    }

    async fn release(&self, kind: &Arc<Kind>, object: &Object) -> Result<(), Failure> {
        let mut patch = value!({"metadata": {
            "ownerReferences": [{"$patch": "delete", "uid": (self.owner.uid())}],
            "uid": (object.uid())
        }});
        if !self.finalizers.is_empty() {
            insert_metadata(&mut patch, "$deleteFromPrimitiveList/finalizers", self.finalizers);
        }
        match self.patch(kind, object, &patch).await {
            // The object has no owner references, or it is another one of the same name.
            Err(error) if error.reason == Reason::Invalid => Ok(()),
            result => result.map(drop),
        }
    }

    /// Patches an object; `None` if it does not exist any more.
    async fn patch(
        &self,
        kind: &Arc<Kind>,
        object: &Object,
        patch: &Value,
    ) -> Result<Option<Object>, Failure> {
        let target = Target::of(kind, object.namespace(), object.name());
        let form = PatchForm::Strategic;
        match self.client.patch(&target, Subresource::None, form, patch).await {
            Ok(response) => match response.answer {
                Answer::Entry(entry) => kind.decode(&entry).map(Some),
                Answer::Object(object) => Ok(Some(object)),
                Answer::Success(_) => Ok(None),
            },
            Err(error) if error.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn insert_metadata(patch: &mut Value, name: &'static str, items: &[&str]) {
    let items: Vec<Value> = items.iter().map(|item| Value::from(*item)).collect();
    if let Some(metadata) = patch.as_object_mut() {
        metadata.object_at("metadata").insert(name, items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_keeps_adopts_and_releases() {
        let object = |controller: Option<&str>, is_deleting: bool| {
            let mut object = Object::new();
            if let Some(uid) = controller {
                let owners = vec![value!({"uid": uid, "controller": true})];
                object.metadata_mut().insert("ownerReferences", owners);
            }
            if is_deleting {
                object.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
            }
            object
        };
        let check = |controller, is_deleting, is_owner_deleting, is_match, wanted| {
            let mut owner = object(None, is_owner_deleting);
            owner.set_meta("uid", "me");
            let claim = decide(&object(controller, is_deleting), &owner, is_match);
            assert_eq!(
                claim, wanted,
                "{controller:?} {is_deleting} {is_owner_deleting} {is_match}"
            );
        };
        check(Some("me"), false, false, true, Claim::Keep);
        check(Some("me"), true, true, true, Claim::Keep);
        check(Some("me"), false, false, false, Claim::Release);
        check(Some("me"), false, true, false, Claim::Ignore);
        check(Some("other"), false, false, true, Claim::Ignore);
        check(None, false, false, true, Claim::Adopt);
        check(None, false, false, false, Claim::Ignore);
        check(None, true, false, true, Claim::Ignore);
        check(None, false, true, true, Claim::Ignore);
    }
}
