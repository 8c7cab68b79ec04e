//! Subresources that act on one object. The hooks of the kind implement them; this module checks
//! the permit and gives actions access to the verbs.

use crate::admission::AdmissionConfigs;
use crate::options::{DeleteOptions, Freshness, ListOptions, WriteOptions};
use crate::registry::Registry;
use crate::registry::hooks::{ActionRequest, ActionResponse, OwnedActionRequest};
use crate::target::{Answer, Target};
use crate::verbs::WriteResponse;
use crate::verbs::bodies::UpdateFn;
use crate::verbs::delete::Deleted;
use crate::verbs::list::List;
use crate::write::{Options, OwnKind, Subresource, Write};
use keelson_admission::Operation;
use keelson_auth::Permit;
use keelson_meta::{Failure, GroupVersionKind, Object, Status, Str};

impl OwnedActionRequest {
    /// Borrows the request.
    pub fn as_request(&self) -> ActionRequest<'_> {
        let OwnedActionRequest { registry, permit, target, options, row } = self;
        ActionRequest { registry, permit, target, options, row }
    }
}

impl Registry {
    /// Sets the defaults of a body for the action of a subresource that are not in its schema.
    pub fn fill_action_defaults(&self, target: &Target, subresource: &str, body: &mut Object) {
        let mut rows = self.hooks_of(&target.kind).actions.iter();
        if let Some(row) = rows.find(|row| row.name == subresource) {
            row.action.fill_defaults(body);
        }
    }

    /// Runs the action of a subresource, on a body with its defaults.
    pub async fn act(
        &self,
        permit: &Permit,
        target: &Target,
        subresource: &str,
        body: Object,
        options: &WriteOptions,
    ) -> Result<ActionResponse, Failure> {
        let mut rows = self.hooks_of(&target.kind).actions.iter();
        let row =
            rows.find(|row| row.name == subresource).ok_or_else(Status::method_not_allowed)?;
        target.assert_acted(permit, row.name, row.resource);
        row.action.act(ActionRequest { registry: self, permit, target, options, row }, body).await
    }
}

impl<'a> ActionRequest<'a> {
    /// Returns the write that admission sees: a create of an object of `kind`.
    pub fn write(&self, kind: &'a GroupVersionKind) -> Write<'a> {
        let resource = self
            .permit
            .attributes()
            .map(|given| &given.gvr)
            .filter(|given| Some(given.resource.as_str()) == self.row.resource);
        Write {
            permit: self.permit,
            target: self.target,
            operation: Operation::Create,
            subresource: if resource.is_some() { "" } else { self.row.name },
            name: &self.target.name,
            dry_run: self.options.dry_run,
            old: None,
            options: Options::Write(self.options),
            own: Some(OwnKind { kind, resource }),
        }
    }

    /// Whether the request is a create of the action's own resource (`bindings`), not of its
    /// subresource.
    pub fn is_alias(&self) -> bool {
        let given = self.permit.attributes().map(|given| given.gvr.resource.as_str());
        given.is_some() && given == self.row.resource
    }

    /// Runs mutating admission on the body.
    pub async fn admit(
        &self,
        write: &Write<'_>,
        body: &mut Object,
        warnings: &mut Vec<Str>,
    ) -> Result<AdmissionConfigs, Failure> {
        self.registry.admit(write, body, warnings).await
    }

    /// Runs validating admission on the body.
    pub async fn validate_admitted(
        &self,
        write: &Write<'_>,
        configs: &AdmissionConfigs,
        body: &Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        self.registry.validate_admitted(write, configs, body, warnings).await
    }

    /// Returns the latest state of an object.
    pub async fn read(&self, target: &Target) -> Result<Object, Failure> {
        match self.registry.read(target, Freshness::Latest).await? {
            Answer::Entry(entry) => target.kind.decode(&entry),
            Answer::Object(object) => Ok(object),
            Answer::Success(_) => Err(target.not_found()),
        }
    }

    /// Returns the objects of a kind in the namespace of a target.
    pub async fn list(&self, target: &Target) -> Result<List, Failure> {
        self.registry.list_unchecked(target, &ListOptions::default()).await
    }

    /// Like [`Registry::modify`], for any object that the action concerns.
    pub async fn change(
        &self,
        target: &Target,
        subresource: Subresource,
        make: UpdateFn<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        self.registry.change(self.permit, target, subresource, make, options).await
    }

    /// Deletes the object. Admission has seen the action and does not see the deletion.
    pub async fn delete(&self, options: &DeleteOptions) -> Result<Deleted, Failure> {
        self.registry.delete_admitted(self.permit, self.target, options).await
    }

    /// Runs an action of several keys in its own task, which completes even when the request is
    /// cancelled.
    pub async fn run_to_completion<T, F>(
        &self,
        action: impl FnOnce(OwnedActionRequest) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let permit = self.permit.clone();
        let target = self.target.clone();
        let options = self.options.clone();
        let row = self.row.clone();
        let run = |registry| action(OwnedActionRequest { registry, permit, target, options, row });
        self.registry.run_to_completion(run).await
    }
}
