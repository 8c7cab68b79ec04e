//! The `authorizer` variable of policies: the caller says who asks, expressions say for what.

use keelson_meta::Str;
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
    pub(crate) authorizer: &'a dyn Authorizer,
    pub(crate) stage: Stage,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stage {
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

impl AuthorizerVal<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Stage::Path(..) => "kubernetes.authorization.PathCheck",
            Stage::Group(..) => "kubernetes.authorization.GroupCheck",
            Stage::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Stage::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}
