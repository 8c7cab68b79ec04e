//! The functions of the authorizer library.

use super::Implementation;
use crate::authorizer::{
    Authorizer, AuthorizerVal, AuthorizerValKind, Check, CheckTarget, Resource,
};
use crate::value::{EvalError, EvalResult, Opaque, Val};
use keelson_meta::{Str, names};
use std::sync::Arc;

macro_rules! authorizer_call {
    ($name:literal) => {
        Some(|args| match args {
            [Val::Opaque(opaque), rest @ ..] => match &**opaque {
                Opaque::Authorizer(val) => val.call($name, rest),
                _ => Err(EvalError::no_overload()),
            },
            _ => Err(EvalError::no_overload()),
        })
    };
}

pub(crate) fn function(name: &str) -> Option<Implementation> {
    match name {
        "path" => authorizer_call!("path"),
        "group" => authorizer_call!("group"),
        "serviceAccount" => authorizer_call!("serviceAccount"),
        "resource" => authorizer_call!("resource"),
        "subresource" => authorizer_call!("subresource"),
        "namespace" => authorizer_call!("namespace"),
        "name" => authorizer_call!("name"),
        "check" => authorizer_call!("check"),
        "fieldSelector" => authorizer_call!("fieldSelector"),
        "labelSelector" => authorizer_call!("labelSelector"),
        "errored" => authorizer_call!("errored"),
        "error" => authorizer_call!("error"),
        "allowed" => authorizer_call!("allowed"),
        "reason" => authorizer_call!("reason"),
        _ => None,
    }
}

impl<'a> Val<'a> {
    /// Returns the value of the `authorizer` variable.
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Val<'a> {
        AuthorizerVal { authorizer, kind: AuthorizerValKind::Authorizer(None) }.into_val()
    }

    /// Returns the value of the `authorizer.requestResource` variable.
    pub fn request_resource(authorizer: &'a dyn Authorizer, resource: Resource) -> Val<'a> {
        AuthorizerVal { authorizer, kind: AuthorizerValKind::Resource(None, Arc::new(resource)) }
            .into_val()
    }
}

impl<'a> AuthorizerVal<'a> {
    fn into_val(self) -> Val<'a> {
        Val::opaque(Opaque::Authorizer(self))
    }

    fn with(&self, kind: AuthorizerValKind) -> EvalResult<'a> {
        Ok(AuthorizerVal { authorizer: self.authorizer, kind }.into_val())
    }

    /// Calls a function of the library on this value.
    fn call(&self, function: &str, args: &[Val<'a>]) -> EvalResult<'a> {
        let text = |at: usize| {
            args.get(at).and_then(Val::as_str).map(Str::from).ok_or_else(EvalError::no_overload)
        };
        match (&self.kind, function) {
            (AuthorizerValKind::Authorizer(account), "path") => {
                let path = text(0)?;
                if path.trim().is_empty() {
                    return Err(EvalError::new("path must not be empty"));
                }
                self.with(AuthorizerValKind::Path(account.clone(), path))
            }
            (AuthorizerValKind::Authorizer(account), "group") => {
                self.with(AuthorizerValKind::Group(account.clone(), text(0)?))
            }
            (AuthorizerValKind::Authorizer(_), "serviceAccount") => {
                self.service_account(text(0)?, text(1)?)
            }
            (AuthorizerValKind::Group(account, group), "resource") => {
                let resource = text(0)?;
                if resource.trim().is_empty() {
                    return Err(EvalError::new("resource must not be empty"));
                }
                let group = group.clone();
                let resource = Resource { group, resource, ..Resource::default() };
                self.with(AuthorizerValKind::Resource(account.clone(), Arc::new(resource)))
            }
            (AuthorizerValKind::Path(account, path), "check") => {
                self.check(account, text(0)?, CheckTarget::Path(path.clone()))
            }
            (AuthorizerValKind::Resource(account, resource), "check") => {
                let target = CheckTarget::Resource(Box::new((**resource).clone()));
                self.check(account, text(0)?, target)
            }
            (AuthorizerValKind::Resource(account, resource), _) => {
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
                self.with(AuthorizerValKind::Resource(account.clone(), Arc::new(resource)))
            }
            (AuthorizerValKind::Decision(decision), _) => match function {
                "allowed" => Ok(Val::Bool(decision.allowed)),
                "reason" => Ok(Val::text(decision.reason.as_str())),
                "errored" => Ok(Val::Bool(decision.error.is_some())),
                "error" => Ok(Val::text(decision.error.as_deref().unwrap_or_default())),
                _ => Err(EvalError::no_overload()),
            },
            _ => Err(EvalError::no_overload()),
        }
    }

    fn service_account(&self, namespace: Str, name: Str) -> EvalResult<'a> {
        if !names::is_dns1123_subdomain(&name).is_empty() {
            return Err(EvalError::new("Invalid service account name"));
        }
        if !names::is_dns1123_label(&namespace).is_empty() {
            return Err(EvalError::new("Invalid service account namespace"));
        }
        self.with(AuthorizerValKind::Authorizer(Some((namespace, name))))
    }

    fn check(
        &self,
        account: &Option<(Str, Str)>,
        verb: Str,
        target: CheckTarget,
    ) -> EvalResult<'a> {
        let check = Check { service_account: account.clone(), verb, target };
        let decision = self.authorizer.authorize(&check);
        self.with(AuthorizerValKind::Decision(Arc::new(decision)))
    }
}
