//! The `authorizer` variable of policies: the caller says who asks, expressions say for what.

use crate::value::{EvalError, Evaluated, Opaque, Val};
use keelson_meta::{Str, names};
use std::fmt;
use std::sync::Arc;

/// Answers checks; made by the caller for the user of a request.
pub trait Authorizer: Send + Sync {
    /// May the user do this?
    fn authorize(&self, check: &Check) -> Decision;
}

/// What is asked of an [`Authorizer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Another user than that of the request: the namespace and name of a service account.
    pub service_account: Option<(Str, Str)>,
    /// The verb.
    pub verb: Str,
    /// What the verb is for.
    pub target: Target,
}

/// What a verb is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path that is no resource.
    Path(Str),
    /// A resource; empty texts where nothing was said.
    Resource(Box<Resource>),
}

impl Default for Target {
    fn default() -> Self {
        Target::Path(Str::default())
    }
}

/// A resource that a check is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Resource {
    pub group: Str,
    pub resource: Str,
    pub subresource: Str,
    pub namespace: Str,
    pub name: Str,
    pub field_selector: Str,
    pub label_selector: Str,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the user may.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong while asking.
    pub error: Option<String>,
}

/// A value of the authorizer library.
#[derive(Clone)]
pub struct AuthorizerVal<'a> {
    authorizer: &'a dyn Authorizer,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    Authorizer(Option<(Str, Str)>),
    Path(Option<(Str, Str)>, Str),
    Group(Option<(Str, Str)>, Str),
    Resource(Option<(Str, Str)>, Arc<Resource>),
    Decision(Arc<Decision>),
}

impl fmt::Debug for AuthorizerVal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt(f)
    }
}

impl PartialEq for AuthorizerVal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.stage == other.stage
    }
}

impl<'a> Val<'a> {
    /// The `authorizer` variable.
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Val<'a> {
        AuthorizerVal { authorizer, stage: Stage::Authorizer(None) }.into_val()
    }

    /// The `authorizer.requestResource` variable.
    pub fn request_resource(authorizer: &'a dyn Authorizer, resource: Resource) -> Val<'a> {
        AuthorizerVal { authorizer, stage: Stage::Resource(None, Arc::new(resource)) }.into_val()
    }
}

impl<'a> AuthorizerVal<'a> {
    fn into_val(self) -> Val<'a> {
        Val::opaque(Opaque::Authorizer(self))
    }

    fn with(&self, stage: Stage) -> Evaluated<'a> {
        Ok(AuthorizerVal { authorizer: self.authorizer, stage }.into_val())
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Stage::Path(..) => "kubernetes.authorization.PathCheck",
            Stage::Group(..) => "kubernetes.authorization.GroupCheck",
            Stage::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Stage::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// Calls a function of the library on this value.
    pub(crate) fn call(&self, function: &str, args: &[Val<'a>]) -> Evaluated<'a> {
        let text = |at: usize| {
            args.get(at).and_then(Val::as_str).map(Str::from).ok_or_else(EvalError::no_overload)
        };
        match (&self.stage, function) {
            (Stage::Authorizer(account), "path") => {
                let path = text(0)?;
                if path.trim().is_empty() {
                    return Err(EvalError::new("path must not be empty"));
                }
                self.with(Stage::Path(account.clone(), path))
            }
            (Stage::Authorizer(account), "group") => {
                self.with(Stage::Group(account.clone(), text(0)?))
            }
            (Stage::Authorizer(_), "serviceAccount") => self.service_account(text(0)?, text(1)?),
            (Stage::Group(account, group), "resource") => {
                let resource = text(0)?;
                if resource.trim().is_empty() {
                    return Err(EvalError::new("resource must not be empty"));
                }
                let group = group.clone();
                let resource = Resource { group, resource, ..Resource::default() };
                self.with(Stage::Resource(account.clone(), Arc::new(resource)))
            }
            (Stage::Path(account, path), "check") => {
                self.check(account, text(0)?, Target::Path(path.clone()))
            }
            (Stage::Resource(account, resource), "check") => {
                let target = Target::Resource(Box::new((**resource).clone()));
                self.check(account, text(0)?, target)
            }
            (Stage::Resource(account, resource), _) => {
                let mut resource = (**resource).clone();
                let part = match function {
                    "subresource" => &mut resource.subresource,
                    "namespace" => &mut resource.namespace,
                    "name" => &mut resource.name,
                    "fieldSelector" => &mut resource.field_selector,
                    "labelSelector" => &mut resource.label_selector,
                    _ => return Err(EvalError::no_overload()),
                };
                *part = text(0)?;
                self.with(Stage::Resource(account.clone(), Arc::new(resource)))
            }
            (Stage::Decision(decision), _) => match function {
                "allowed" => Ok(Val::Bool(decision.allowed)),
                "reason" => Ok(Val::text(decision.reason.as_str())),
                "errored" => Ok(Val::Bool(decision.error.is_some())),
                "error" => Ok(Val::text(decision.error.as_deref().unwrap_or_default())),
                _ => Err(EvalError::no_overload()),
            },
            _ => Err(EvalError::no_overload()),
        }
    }

    fn service_account(&self, namespace: Str, name: Str) -> Evaluated<'a> {
        if !names::is_dns1123_subdomain(&name).is_empty() {
            return Err(EvalError::new("Invalid service account name"));
        }
        if !names::is_dns1123_label(&namespace).is_empty() {
            return Err(EvalError::new("Invalid service account namespace"));
        }
        self.with(Stage::Authorizer(Some((namespace, name))))
    }

    fn check(&self, account: &Option<(Str, Str)>, verb: Str, target: Target) -> Evaluated<'a> {
        let check = Check { service_account: account.clone(), verb, target };
        let decision = self.authorizer.authorize(&check);
        self.with(Stage::Decision(Arc::new(decision)))
    }
}
