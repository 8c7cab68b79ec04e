//! The parameters of a binding (apiserver `generic.CollectParams`).

use crate::attributes::Call;
use crate::configurations::policy::{ParamRef, Policy};
use keelson_meta::{Failure, GroupVersionKind, GroupVersionResource, Object, Status, Str};

/// A configuration error of a policy or binding.
#[derive(Debug)]
pub(super) enum ConfigError {
    /// In the policy.
    Policy(String),
    /// In the binding.
    Binding(String),
}

impl ConfigError {
    /// Returns the text of the message.
    pub fn message(&self) -> String {
        match self {
            ConfigError::Policy(why) => format!("failed to configure policy: {why}"),
            ConfigError::Binding(why) => format!("failed to configure binding: {why}"),
        }
    }
}

/// The parameter resource (`paramKind`) of a policy.
pub(super) struct ParamResource<'p> {
    kind: &'p GroupVersionKind,
    resource: GroupVersionResource,
    namespaced: bool,
}

impl<'p> ParamResource<'p> {
    /// Returns the resource of the policy's `paramKind`, if it has one.
    pub fn of(policy: &'p Policy, call: &Call<'_>) -> Result<Option<Self>, ConfigError> {
        let Some(kind) = &policy.param_kind else { return Ok(None) };
        let Some((resource, namespaced)) = call.api.resource_of(kind) else {
            let GroupVersionKind { group, version, kind } = kind;
            return Err(ConfigError::Policy(format!(
                "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
            )));
        };
        Ok(Some(ParamResource { kind, resource, namespaced }))
    }

    /// Returns the parameters that a binding selects; one `None` when the policy has no parameters.
    pub async fn collect(
        this: Option<&Self>,
        params: Option<&ParamRef>,
        call: &Call<'_>,
    ) -> Result<Vec<Option<Object>>, ConfigError> {
        let (Some(this), Some(params)) = (this, params) else { return Ok(vec![None]) };
        let found = this.find(params, call).await.map_err(ConfigError::Binding)?;
        if found.is_empty() && params.required {
            let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
            return Err(ConfigError::Binding(why.to_owned()));
        }
        Ok(found.into_iter().map(Some).collect())
    }

    async fn find(&self, params: &ParamRef, call: &Call<'_>) -> Result<Vec<Object>, String> {
        let namespace = self.namespace(params, call)?;
        let text = |failure: Failure| failure.message.clone();
        let mut found = match &params.selector {
            None => self.named(namespace, &params.name, call).await.map_err(text)?,
            Some(selector) => {
                let selector = selector.as_ref().map_err(Clone::clone)?;
                let group = &self.resource.group;
                let resource = &self.resource.resource;
                let mut all = call.api.list(group, resource, namespace).map_err(text)?;
                all.retain(|object| selector.matches_object(object));
                all
            }
        };
        for object in &mut found {
            self.as_named(object, call).await.map_err(text)?;
        }
        Ok(found)
    }

    fn namespace<'a>(&self, params: &'a ParamRef, call: &Call<'a>) -> Result<&'a str, String> {
        let namespace = params.namespace.as_str();
        let request_namespace = call.attributes.namespace;
        match (self.namespaced, namespace.is_empty()) {
            (false, true) => Ok(""),
            (false, false) => Err("paramRef.namespace must not be provided for a cluster-scoped \
                                   `paramKind`"
                .to_owned()),
            (true, false) => Ok(namespace),
            (true, true) if request_namespace.is_empty() => {
                Err("cannot use namespaced paramRef in policy binding that matches \
                     cluster-scoped resources"
                    .to_owned())
            }
            (true, true) => Ok(request_namespace),
        }
    }

    async fn named(
        &self,
        namespace: &str,
        name: &Str,
        call: &Call<'_>,
    ) -> Result<Vec<Object>, Failure> {
        let group = &self.resource.group;
        let resource = &self.resource.resource;
        let known = call.api.get(group, resource, namespace, name)?;
        if known.is_some() {
            return Ok(known.into_iter().collect());
        }
        // The object may have been created a moment ago.
        call.api.wait_for_latest().await?;
        Ok(call.api.get(group, resource, namespace, name)?.into_iter().collect())
    }

    /// Converts an object to the version of `paramKind`.
    async fn as_named(&self, object: &mut Object, call: &Call<'_>) -> Result<(), Failure> {
        let stored = object_kind(object)?;
        if stored != *self.kind {
            let taken = std::mem::take(object);
            *object = call.api.convert(taken, &stored, self.kind).await?;
        }
        Ok(())
    }
}

/// Returns the kind in `apiVersion` and `kind` of an object.
fn object_kind(object: &Object) -> Result<GroupVersionKind, Failure> {
    let version = keelson_meta::GroupVersion::parse(object.str_at(&["apiVersion"]))
        .ok_or_else(|| Status::internal("a parameter has no apiVersion"))?;
    Ok(version.kind(object.str_at(&["kind"])))
}
