//! Expressions of admission: match conditions of webhooks, and the expressions of admission
//! policies (apiserver `admission/plugin/cel`). This module declares their variables, the result
//! type that each use requires, and the cost budget that a list of expressions shares.

use crate::authorizer::{Authorizer, Resource};
use crate::environment::{CompositedTypes, Environment, Version};
use crate::eval::{Activation, CompositedVariable, CompositedVariables, Limits};
use crate::program::Program;
use crate::registry::Library;
use crate::types::{DeclField, DeclType, ListKind, ObjectType, Shape, Type};
use crate::value::{Map, Val};
use keelson_meta::Str;
use std::sync::Arc;

/// Number of variable indices, including the variables that an expression's environment leaves out.
const VARIABLES: usize = 8;

/// Index of `variables` among the variables.
const VARIABLES_INDEX: usize = 4;

/// Compiles the expressions of one webhook or policy.
#[derive(Clone, Debug)]
pub struct Compiler {
    version: Version,
    /// The type of `object` and `oldObject`.
    object: Type,
    /// The type of `params`; `None` when there is no such variable.
    params: Option<Type>,
    /// The types of the fields of `variables`; `None` when there is no such variable.
    composited: Option<CompositedTypes>,
}

/// What an expression is used for. It decides the result type and the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A match condition or a validation; returns a boolean.
    Condition,
    /// `messageExpression`; returns a string and has no `authorizer`.
    Message,
    /// `valueExpression` of an audit annotation; returns a string or null.
    Audit,
    /// A variable of a policy; may return any type.
    Variable,
    /// A JSON Patch of a mutating policy; returns a list of `JSONPatch`.
    JsonPatch,
    /// An apply configuration of a mutating policy; returns an `Object`.
    ApplyConfiguration,
}

impl Purpose {
    /// The result types that are allowed; empty: any type.
    fn types(self) -> Vec<Type> {
        match self {
            Purpose::Condition => vec![Type::Bool],
            Purpose::Message => vec![Type::String],
            Purpose::Audit => vec![Type::String, Type::Null],
            Purpose::Variable => vec![],
            Purpose::JsonPatch => vec![Type::list(Type::Struct("JSONPatch".into()))],
            Purpose::ApplyConfiguration => vec![Type::Struct("Object".into())],
        }
    }

    fn has_patches(self) -> bool {
        matches!(self, Purpose::JsonPatch | Purpose::ApplyConfiguration)
    }
}

impl Compiler {
    /// Returns a compiler for the match conditions of a webhook.
    pub fn webhook(version: Version) -> Compiler {
        Compiler { version, object: Type::Dyn, params: None, composited: None }
    }

    /// Returns a compiler for a policy. `has_params`: the policy has a `paramKind`.
    pub fn policy(version: Version, has_params: bool) -> Compiler {
        let params = has_params.then_some(Type::Dyn);
        Compiler {
            version,
            object: Type::Dyn,
            params,
            composited: Some(CompositedTypes::default()),
        }
    }

    /// Returns the compiler with known types of `object`, `oldObject` and `params`. It serves type
    /// checking only: a policy may match several kinds, so expressions are evaluated by programs
    /// that [`Compiler::policy`] compiles.
    #[must_use]
    pub fn with_types(self, object: Type, params: Option<Type>) -> Compiler {
        let params = self.params.map(|unknown| params.unwrap_or(unknown));
        Compiler { object, params, ..self }
    }

    /// Returns the compiler without `variables`.
    #[must_use]
    pub fn without_variables(&self) -> Compiler {
        Compiler { composited: None, ..self.clone() }
    }

    /// Returns the compiler for expressions of another version.
    #[must_use]
    pub fn at_version(&self, version: Version) -> Compiler {
        Compiler { version, ..self.clone() }
    }

    /// Compiles a variable. Expressions that are compiled later can read it.
    pub fn variable(&mut self, name: &str, text: &str) -> CompositedVariable {
        let program = self.compile(text, Purpose::Variable);
        let ty =
            program.as_ref().map_or(Type::Dyn, |program| composited_type(program.result_type()));
        self.composited.get_or_insert_default().add(name, ty);
        CompositedVariable { name: name.into(), program }
    }

    /// Compiles an expression. The error is the text that a `Status` contains.
    pub fn compile(&self, text: &str, purpose: Purpose) -> Result<Program, String> {
        let env = self.environment(purpose);
        let program = env.compile(text).map_err(|error| error.to_string())?.program;
        let wanted = purpose.types();
        let found = program.result_type();
        if wanted.is_empty() || wanted.contains(found) {
            return Ok(program);
        }
        let names: Vec<String> = wanted.iter().map(go_type_name).collect();
        let found = go_type_name(found);
        Err(match names.as_slice() {
            [one] => format!("must evaluate to {one} but got {found}"),
            _ => format!("must evaluate to one of [{}] but got {found}", names.join(" ")),
        })
    }

    fn environment(&self, purpose: Purpose) -> Environment {
        let mut env = Environment::kubernetes(self.version)
            .with_variable("object", self.object.clone())
            .with_variable("oldObject", self.object.clone())
            .with_variable("namespaceObject", namespace_type().ty())
            .with_variable("request", request_type().ty());
        env = match &self.composited {
            Some(types) => env.with_composited("variables", types.clone()),
            None => env.without_variable(),
        };
        env = match &self.params {
            Some(params) => env.with_variable("params", params.clone()),
            None => env.without_variable(),
        };
        if purpose != Purpose::Message {
            env = env
                .with_variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
                .with_variable(
                    "authorizer.requestResource",
                    Type::Opaque("kubernetes.authorization.ResourceCheck"),
                );
        }
        match purpose.has_patches() {
            true => env.with_library(Library::JsonPatch).with_mutations(),
            false => env,
        }
    }
}

/// Returns the name of a type as Go prints it in a list of types.
fn go_type_name(ty: &Type) -> String {
    match ty {
        Type::Null => "null_type".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        ty => ty.to_string(),
    }
}

/// Returns the type of a variable for the expressions that read it. Objects and library types
/// become `dyn`, as upstream does.
fn composited_type(ty: &Type) -> Type {
    match ty {
        Type::List(item) => Type::list(composited_type(item)),
        Type::Map(key, value) => Type::map(composited_type(key), composited_type(value)),
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => ty.clone(),
        _ => Type::Dyn,
    }
}

/// The objects that expressions can read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inputs<'a> {
    /// `object`; null for deletions.
    pub object: Option<&'a keelson_meta::Map>,
    /// `oldObject`; null for creations.
    pub old_object: Option<&'a keelson_meta::Map>,
    /// `request`.
    pub request: Option<&'a keelson_meta::Map>,
    /// `namespaceObject`; null for cluster-scoped objects and for match conditions.
    pub namespace: Option<&'a keelson_meta::Map>,
    /// `params`.
    pub params: Option<&'a keelson_meta::Map>,
}

/// The values of all variables, by index. Reading a variable that is `None` is an error.
pub type Variables<'a> = [Option<Val<'a>>; VARIABLES];

/// Copies of the objects that expressions can read, for an evaluation on another thread.
#[derive(Clone, Debug, Default)]
pub struct OwnedInputs {
    object: Option<keelson_meta::Map>,
    old_object: Option<keelson_meta::Map>,
    request: Option<keelson_meta::Map>,
    namespace: Option<keelson_meta::Map>,
    params: Option<keelson_meta::Map>,
}

impl OwnedInputs {
    /// Returns the inputs for an evaluation.
    pub fn inputs(&self) -> Inputs<'_> {
        Inputs {
            object: self.object.as_ref(),
            old_object: self.old_object.as_ref(),
            request: self.request.as_ref(),
            namespace: self.namespace.as_ref(),
            params: self.params.as_ref(),
        }
    }
}

impl<'a> Inputs<'a> {
    /// Copies the objects.
    pub fn to_owned_inputs(&self) -> OwnedInputs {
        OwnedInputs {
            object: self.object.cloned(),
            old_object: self.old_object.cloned(),
            request: self.request.cloned(),
            namespace: self.namespace.cloned(),
            params: self.params.cloned(),
        }
    }

    /// Returns the variables, without an authorizer.
    pub fn variables(&self) -> Variables<'a> {
        let val = |map: Option<&'a keelson_meta::Map>| {
            Some(map.map_or(Val::Null, |map| Val::Map(Map::Plain(map))))
        };
        let object = val(self.object);
        let old = val(self.old_object);
        let namespace = val(self.namespace);
        let request = val(self.request);
        [object, old, namespace, request, None, val(self.params), None, None]
    }

    /// Returns the variables with `authorizer` and `authorizer.requestResource`; `resource` is that
    /// of the request.
    pub fn variables_with(
        &self,
        authorizer: &'a dyn Authorizer,
        resource: Resource,
    ) -> Variables<'a> {
        let mut variables = self.variables();
        variables[6] = Some(Val::authorizer(authorizer));
        variables[7] = Some(Val::request_resource(authorizer, resource));
        variables
    }
}

/// Returns the activation that the expressions of one request share. `computed` holds the variables
/// of the policy.
pub fn activation<'a>(
    variables: &'a Variables<'a>,
    computed: &'a CompositedVariables,
) -> Activation<'a> {
    Activation::new(variables, VARIABLES_INDEX, computed)
}

/// An expression with its program, or the error of compiling it.
#[derive(Debug)]
pub struct Expression {
    text: Str,
    program: Result<Program, String>,
}

/// The expressions together cost more than their budget allows. All of their results are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "validation failed due to running out of cost budget, no further validation rules will be run",
        )
    }
}

impl std::error::Error for OutOfBudget {}

impl Expression {
    /// Compiles an expression. A compile error is returned by [`Expression::evaluate`].
    pub fn new(compiler: &Compiler, text: &str, purpose: Purpose) -> Expression {
        Expression { text: text.into(), program: compiler.compile(text, purpose) }
    }

    /// Returns the source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the compile error, if there is one.
    pub fn error(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }

    /// Evaluates the expression and subtracts its cost from `budget`. The inner error is the text
    /// that a `Status` contains.
    pub fn evaluate<'a>(
        &'a self,
        activation: &Activation<'a>,
        budget: &mut u64,
    ) -> Result<Result<Val<'a>, String>, OutOfBudget> {
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(format!("compilation error: {error}"))),
        };
        let outcome = program.evaluate_in(activation, &Limits::default());
        let cost = outcome.cost.saturating_add(activation.take_cost());
        *budget = budget.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(outcome
            .result
            .map_err(|error| format!("expression '{}' resulted in error: {error}", self.text)))
    }
}

fn text() -> DeclType {
    DeclType::new(Shape::String)
}

fn list(item: DeclType) -> DeclType {
    DeclType::new(Shape::List(Arc::new(item), ListKind::Atomic))
}

fn map(value: DeclType) -> DeclType {
    DeclType::new(Shape::Map(Arc::new(value)))
}

fn object(name: &'static str, fields: Vec<(&'static str, DeclType)>) -> DeclType {
    let field = |(name, decl_type): (&'static str, DeclType)| DeclField {
        name: Str::new_static(name),
        property: Str::new_static(name),
        decl_type: Arc::new(decl_type),
    };
    let fields = fields.into_iter().map(field).collect();
    DeclType::new(Shape::Object(Arc::new(ObjectType::new(Str::new_static(name), fields))))
}

/// Returns the type of `request`.
fn request_type() -> &'static DeclType {
    static TYPE: std::sync::OnceLock<DeclType> = std::sync::OnceLock::new();
    TYPE.get_or_init(|| {
        let kind = || {
            let fields = ["group", "version", "kind"].map(|name| (name, text()));
            object("kubernetes.GroupVersionKind", fields.into())
        };
        let resource = || {
            let fields = ["group", "version", "resource"].map(|name| (name, text()));
            object("kubernetes.GroupVersionResource", fields.into())
        };
        let user = vec![
            ("username", text()),
            ("uid", text()),
            ("groups", list(text())),
            ("extra", map(list(text()))),
        ];
        let fields = vec![
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", object("kubernetes.UserInfo", user)),
            ("dryRun", DeclType::new(Shape::Bool)),
            ("options", DeclType::new(Shape::Dyn)),
        ];
        object("kubernetes.AdmissionRequest", fields)
    })
}

/// Returns the type of `namespaceObject`: a namespace without ownerReferences and managedFields.
fn namespace_type() -> &'static DeclType {
    static TYPE: std::sync::OnceLock<DeclType> = std::sync::OnceLock::new();
    TYPE.get_or_init(|| {
        let time = || DeclType::new(Shape::Timestamp);
        let number = || DeclType::new(Shape::Int);
        let condition = vec![
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ];
        let metadata = vec![
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map(text())),
            ("annotations", map(text())),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("generation", number()),
            ("resourceVersion", text()),
            ("finalizers", list(text())),
        ];
        let status = vec![
            ("conditions", list(object("kubernetes.NamespaceCondition", condition))),
            ("phase", text()),
        ];
        let spec = vec![("finalizers", list(text()))];
        let fields = vec![
            ("metadata", object("kubernetes.NamespaceMetadata", metadata)),
            ("spec", object("kubernetes.NamespaceSpec", spec)),
            ("status", object("kubernetes.NamespaceStatus", status)),
        ];
        object("kubernetes.Namespace", fields)
    })
}
