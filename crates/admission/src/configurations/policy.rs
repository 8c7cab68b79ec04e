//! [`Policy`] and [`Binding`], parsed when they change. Expressions are compiled on first use.

use super::match_resources::MatchResources;
use crate::match_conditions::MatchConditions;
use keelson_auth::long_work;
use keelson_cel::admission::{Compiler, Expression, Purpose};
use keelson_cel::{CompositedVariables, Version};
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, GroupVersion, GroupVersionKind, Object, Reason, Str, Value};
use std::sync::{Arc, OnceLock};

/// A ValidatingAdmissionPolicy or MutatingAdmissionPolicy.
#[derive(Debug)]
pub(crate) struct Policy {
    pub name: Str,
    pub constraints: MatchResources,
    pub param_kind: Option<GroupVersionKind>,
    /// `failurePolicy: Ignore`.
    pub ignores_failures: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub reinvoked: bool,
    spec: Value,
    compiled: OnceLock<Compiled>,
}

/// The expressions of a policy.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub variables: CompositedVariables,
    pub conditions: MatchConditions,
    pub validations: Vec<Validation>,
    /// Keys and expressions of audit annotations.
    pub audits: Vec<(Str, Expression)>,
    pub mutations: Vec<Mutation>,
    /// Whether an expression reads `namespaceObject`.
    pub reads_namespace: bool,
}

/// One of `validations`.
#[derive(Debug)]
pub(crate) struct Validation {
    pub expression: Expression,
    pub message_expression: Option<Expression>,
    pub message: Str,
    pub reason: Reason,
}

/// One of `mutations`.
#[derive(Debug)]
pub(crate) enum Mutation {
    JsonPatch(Expression),
    ApplyConfiguration(Expression),
}

/// The validation actions of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    pub fn name(self) -> &'static str {
        match self {
            Action::Deny => "Deny",
            Action::Warn => "Warn",
            Action::Audit => "Audit",
        }
    }
}

/// A binding of either kind.
#[derive(Debug)]
pub(crate) struct Binding {
    pub name: Str,
    pub policy: Str,
    pub resources: Option<MatchResources>,
    pub params: Option<ParamRef>,
    pub actions: Vec<Action>,
}

/// `paramRef`.
#[derive(Debug)]
pub(crate) struct ParamRef {
    /// Empty when a selector is used.
    pub name: Str,
    /// Empty: the namespace of the request.
    pub namespace: Str,
    pub selector: Option<Result<Selector, String>>,
    /// `parameterNotFoundAction: Deny`.
    pub required: bool,
}

impl Policy {
    pub fn new(object: Object) -> Policy {
        let spec = object.get("spec").cloned().unwrap_or_default();
        let text = |name: &str| spec.str_at(&[name]).unwrap_or_default();
        let param_kind = spec.get("paramKind").filter(|kind| !kind.is_null()).map(|kind| {
            let text = |name: &str| kind.str_at(&[name]).unwrap_or_default();
            GroupVersion::parse(text("apiVersion")).unwrap_or_default().kind(text("kind"))
        });
        Policy {
            name: object.name().into(),
            constraints: MatchResources::new(spec.get("matchConstraints").unwrap_or(&Value::Null)),
            param_kind,
            ignores_failures: text("failurePolicy") == "Ignore",
            reinvoked: text("reinvocationPolicy") == "IfNeeded",
            spec,
            compiled: OnceLock::new(),
        }
    }

    /// Returns the expressions, compiled once, for the first user who needs them. A compile error
    /// is returned on evaluation.
    pub async fn compiled(self: &Arc<Policy>, user: &Str) -> Result<&Compiled, Failure> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled);
        }
        let whole = || {
            let policy = self.clone();
            move || policy.compile()
        };
        let compiled = Box::pin(long_work::run(user, || self.compile(), whole)).await?;
        Ok(self.compiled.get_or_init(|| compiled))
    }

    /// Returns the expressions if they are compiled.
    pub fn known(&self) -> Option<&Compiled> {
        self.compiled.get()
    }

    fn compile(&self) -> Compiled {
        Compiled::new(&self.spec, self.param_kind.is_some())
    }
}

impl Compiled {
    fn new(spec: &Value, has_params: bool) -> Compiled {
        let mut compiler = Compiler::policy(Version::STORED_EXPRESSIONS, has_params);
        let mut reads_namespace = false;
        let mut note = |text: &str| reads_namespace |= text.contains("namespaceObject");
        let text = |item: &'_ Value, name: &str| -> Str {
            item.str_at(&[name]).unwrap_or_default().into()
        };
        let mut variables = CompositedVariables::new();
        for item in spec.array_at(&["variables"]) {
            let name = text(item, "name");
            let source = text(item, "expression");
            note(&source);
            variables.push(compiler.variable(&name, &source));
        }
        let mut expression = |source: &str, purpose: Purpose| {
            note(source);
            Expression::new(&compiler, source, purpose)
        };
        let conditions = MatchConditions::new(&compiler, spec.array_at(&["matchConditions"]));
        let validations = spec
            .array_at(&["validations"])
            .iter()
            .map(|item| Validation {
                expression: expression(&text(item, "expression"), Purpose::Condition),
                message_expression: Some(text(item, "messageExpression"))
                    .filter(|source| !source.is_empty())
                    .map(|source| expression(&source, Purpose::Message)),
                message: text(item, "message"),
                reason: reason(&text(item, "reason")),
            })
            .collect();
        let audits = spec
            .array_at(&["auditAnnotations"])
            .iter()
            .map(|item| {
                let value = expression(&text(item, "valueExpression"), Purpose::Audit);
                (text(item, "key"), value)
            })
            .collect();
        let mutations = spec.array_at(&["mutations"]).iter().filter_map(|item| {
            let source = |name: &str| item.str_at(&[name, "expression"]).unwrap_or_default();
            match item.str_at(&["patchType"])? {
                "JSONPatch" => {
                    let source = expression(source("jsonPatch"), Purpose::JsonPatch);
                    Some(Mutation::JsonPatch(source))
                }
                "ApplyConfiguration" => {
                    let source = source("applyConfiguration");
                    let source = expression(source, Purpose::ApplyConfiguration);
                    Some(Mutation::ApplyConfiguration(source))
                }
                _ => None,
            }
        });
        let mutations = mutations.collect();
        Compiled { variables, conditions, validations, audits, mutations, reads_namespace }
    }
}

fn reason(text: &str) -> Reason {
    match text {
        "Unauthorized" => Reason::Unauthorized,
        "Forbidden" => Reason::Forbidden,
        "RequestEntityTooLarge" => Reason::RequestEntityTooLarge,
        _ => Reason::Invalid,
    }
}

impl Binding {
    pub fn new(object: &Object) -> Binding {
        let spec = |name: &str| object.at(&["spec", name]).filter(|value| !value.is_null());
        let actions =
            object.array_at(&["spec", "validationActions"]).iter().filter_map(
                |action| match action.as_str()? {
                    "Deny" => Some(Action::Deny),
                    "Warn" => Some(Action::Warn),
                    "Audit" => Some(Action::Audit),
                    _ => None,
                },
            );
        Binding {
            name: object.name().into(),
            policy: object.str_at(&["spec", "policyName"]).into(),
            resources: spec("matchResources").map(MatchResources::new),
            params: spec("paramRef").map(ParamRef::new),
            actions: actions.collect(),
        }
    }
}

impl ParamRef {
    fn new(params: &Value) -> ParamRef {
        let text = |name: &str| params.str_at(&[name]).unwrap_or_default();
        let selector = params.get("selector").filter(|selector| !selector.is_null());
        ParamRef {
            name: text("name").into(),
            namespace: text("namespace").into(),
            selector: selector.map(|selector| Selector::from_object(Some(selector))),
            required: text("parameterNotFoundAction") == "Deny",
        }
    }
}
