//! The `authorizer` variable of policies. The caller provides an [`Authorizer`] for the user of the
//! request; expressions build the [`Check`].

use keelson_meta::Str;
use std::fmt;
use std::sync::Arc;

/// Answers authorization checks for the user of a request.
pub trait Authorizer: Send + Sync {
    /// Returns the decision for a check.
    fn authorize(&self, check: &Check) -> Decision;
}

/// An authorization check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Namespace and name of a service account, when the check is not for the user of the request.
    pub service_account: Option<(Str, Str)>,
    /// The verb.
    pub verb: Str,
    /// What the verb applies to.
    pub target: CheckTarget,
}

/// What a check applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckTarget {
    /// A non-resource path.
    Path(Str),
    /// A resource. Fields that the expression does not set are empty.
    Resource(Box<Resource>),
}

impl Default for CheckTarget {
    fn default() -> Self {
        CheckTarget::Path(Str::default())
    }
}

/// The resource attributes of a check.
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

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The reason of the authorizer.
    pub reason: String,
    /// The error of the authorizer.
    pub error: Option<String>,
}

/// A value of the authorizer library: an authorizer, an unfinished check, or a decision.
#[derive(Clone)]
pub struct AuthorizerVal<'a> {
    pub(crate) authorizer: &'a dyn Authorizer,
    pub(crate) kind: AuthorizerValKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AuthorizerValKind {
    Authorizer(Option<(Str, Str)>),
    Path(Option<(Str, Str)>, Str),
    Group(Option<(Str, Str)>, Str),
    Resource(Option<(Str, Str)>, Arc<Resource>),
    Decision(Arc<Decision>),
}

impl fmt::Debug for AuthorizerVal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl PartialEq for AuthorizerVal<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl AuthorizerVal<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            AuthorizerValKind::Authorizer(_) => "kubernetes.authorization.Authorizer",
            AuthorizerValKind::Path(..) => "kubernetes.authorization.PathCheck",
            AuthorizerValKind::Group(..) => "kubernetes.authorization.GroupCheck",
            AuthorizerValKind::Resource(..) => "kubernetes.authorization.ResourceCheck",
            AuthorizerValKind::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}
