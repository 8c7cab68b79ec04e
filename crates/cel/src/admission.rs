//! Expressions of admission: match conditions of webhooks, and what admission policies are made of
//! (apiserver `admission/plugin/cel`). Which variables there are, which type an expression must have, and
//! what a row of expressions may cost together.

use crate::authorizer::{Authorizer, Resource};
use crate::environment::{Composed, Environment, Version};
use crate::eval::{Computed, ComputedSet, Limits, Scope};
use crate::program::Program;
use crate::registry::Library;
use crate::types::{Declared, DeclaredField, ListKind, ObjectType, Shape, Type};
use crate::value::{Map, Val};
use keelson_meta::Str;
use std::sync::Arc;

/// How many variables there are, those that an expression does not declare included.
const VARIABLES: usize = 8;

/// The place of `variables`.
const COMPOSED_AT: usize = 4;

/// What compiles the expressions of one webhook or policy.
#[derive(Clone, Debug)]
pub struct Compiler {
    version: Version,
    /// The type of `object` and `oldObject`.
    object: Type,
    /// The type of `params`; none where there is no such variable.
    params: Option<Type>,
    /// What `variables` has; none where there is no such variable.
    composed: Option<Composed>,
}

/// What an expression is for: its type, and what it may use beside the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A match condition or validation: a boolean.
    Condition,
    /// `messageExpression`: text, without the authorizer.
    Message,
    /// `valueExpression` of an audit annotation: text or null.
    Audit,
    /// The value of a variable: anything.
    Variable,
    /// A list of operations of a JSON patch.
    JsonPatch,
    /// An apply configuration.
    ApplyConfiguration,
}

impl Purpose {
    /// The types that the expression may have; all when there are none.
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
    /// For the match conditions of a webhook.
    pub fn webhook(version: Version) -> Compiler {
        Compiler { version, object: Type::Dyn, params: None, composed: None }
    }

    /// For a policy, with or without `paramKind`.
    pub fn policy(version: Version, has_params: bool) -> Compiler {
        let params = has_params.then_some(Type::Dyn);
        Compiler { version, object: Type::Dyn, params, composed: Some(Composed::default()) }
    }

    /// The same for a policy of which is known what it sees. Says what is wrong with expressions; they are evaluated
    /// by what [`Compiler::policy`] compiles, for a policy is for several kinds.
    #[must_use]
    pub fn with_types(self, object: Type, params: Option<Type>) -> Compiler {
        let params = self.params.map(|unknown| params.unwrap_or(unknown));
        Compiler { object, params, ..self }
    }

    /// The same without `variables`.
    #[must_use]
    pub fn without_variables(&self) -> Compiler {
        Compiler { composed: None, ..self.clone() }
    }

    /// The same for expressions of another version.
    #[must_use]
    pub fn at_version(&self, version: Version) -> Compiler {
        Compiler { version, ..self.clone() }
    }

    /// Compiles a variable. Expressions that are compiled after this can read it.
    pub fn variable(&mut self, name: &str, text: &str) -> Computed {
        let program = self.compile(text, Purpose::Variable);
        let ty = program.as_ref().map_or(Type::Dyn, |program| composed_type(program.result_type()));
        self.composed.get_or_insert_default().add(name, ty);
        Computed { name: name.into(), program }
    }

    /// Compiles an expression; the error is what a `Status` says of it.
    pub fn compile(&self, text: &str, purpose: Purpose) -> Result<Program, String> {
        let env = self.environment(purpose);
        let program = env.compile(text).map_err(|error| error.to_string())?.program;
        let (wanted, found) = (purpose.types(), program.result_type());
        if wanted.is_empty() || wanted.contains(found) {
            return Ok(program);
        }
        let names: Vec<String> = wanted.iter().map(shown).collect();
        let found = shown(found);
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
        env = match &self.composed {
            Some(types) => env.with_composed("variables", types.clone()),
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

/// A type as Go prints it in a list of types.
fn shown(ty: &Type) -> String {
    match ty {
        Type::Null => "null_type".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        ty => ty.to_string(),
    }
}

/// The type that other expressions see of a variable: of objects and of values of libraries nothing is known.
fn composed_type(ty: &Type) -> Type {
    match ty {
        Type::List(item) => Type::list(composed_type(item)),
        Type::Map(key, value) => Type::map(composed_type(key), composed_type(value)),
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

/// What expressions read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inputs<'a> {
    /// `object`; null for deletions.
    pub object: Option<&'a keelson_meta::Map>,
    /// `oldObject`; null for creations.
    pub old_object: Option<&'a keelson_meta::Map>,
    /// `request`.
    pub request: Option<&'a keelson_meta::Map>,
    /// `namespaceObject`; null for what is in no namespace, and for match conditions.
    pub namespace: Option<&'a keelson_meta::Map>,
    /// `params`.
    pub params: Option<&'a keelson_meta::Map>,
}

/// The values of all variables, by place. None: the variable cannot be read.
pub type Variables<'a> = [Option<Val<'a>>; VARIABLES];

impl<'a> Inputs<'a> {
    /// The variables, without an authorizer.
    pub fn variables(&self) -> Variables<'a> {
        let val = |map: Option<&'a keelson_meta::Map>| {
            Some(map.map_or(Val::Null, |map| Val::Map(Map::Plain(map))))
        };
        let (object, old) = (val(self.object), val(self.old_object));
        let (namespace, request) = (val(self.namespace), val(self.request));
        [object, old, namespace, request, None, val(self.params), None, None]
    }

    /// The variables; `resource` is that of the request.
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

/// The scope of a row of expressions, with the variables that a policy computes.
pub fn scope<'a>(variables: &'a Variables<'a>, computed: &'a ComputedSet) -> Scope<'a> {
    Scope::new(variables, COMPOSED_AT, computed)
}

/// An expression and what became of compiling it.
#[derive(Debug)]
pub struct Expression {
    text: Str,
    program: Result<Program, String>,
}

/// The expressions of a row cost more than they may together. None of them counts then.
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
    /// Compiles an expression. One that does not compile fails where it is evaluated.
    pub fn new(compiler: &Compiler, text: &str, purpose: Purpose) -> Expression {
        Expression { text: text.into(), program: compiler.compile(text, purpose) }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why it did not compile.
    pub fn error(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }

    /// Evaluates it, and takes its cost from `budget`. The inner error is what a `Status` says.
    pub fn evaluate<'a>(
        &'a self,
        scope: &Scope<'a>,
        budget: &mut u64,
    ) -> Result<Result<Val<'a>, String>, OutOfBudget> {
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(format!("compilation error: {error}"))),
        };
        let outcome = program.evaluate_in(scope, &Limits::default());
        let cost = outcome.cost.saturating_add(scope.take_cost());
        *budget = budget.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(outcome
            .result
            .map_err(|error| format!("expression '{}' resulted in error: {error}", self.text)))
    }
}

fn text() -> Declared {
    Declared::new(Shape::String)
}

fn list(item: Declared) -> Declared {
    Declared::new(Shape::List(Arc::new(item), ListKind::Atomic))
}

fn map(value: Declared) -> Declared {
    Declared::new(Shape::Map(Arc::new(value)))
}

fn object(name: &'static str, fields: Vec<(&'static str, Declared)>) -> Declared {
    let field = |(name, declared): (&'static str, Declared)| DeclaredField {
        name: Str::new_static(name),
        property: Str::new_static(name),
        declared: Arc::new(declared),
    };
    let fields = fields.into_iter().map(field).collect();
    Declared::new(Shape::Object(Arc::new(ObjectType::new(Str::new_static(name), fields))))
}

/// The type of `request`.
fn request_type() -> &'static Declared {
    static TYPE: std::sync::OnceLock<Declared> = std::sync::OnceLock::new();
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
            ("dryRun", Declared::new(Shape::Bool)),
            ("options", Declared::new(Shape::Dyn)),
        ];
        object("kubernetes.AdmissionRequest", fields)
    })
}

/// The type of `namespaceObject`. At evaluation it has what the namespace has, except owners and managers.
fn namespace_type() -> &'static Declared {
    static TYPE: std::sync::OnceLock<Declared> = std::sync::OnceLock::new();
    TYPE.get_or_init(|| {
        let time = || Declared::new(Shape::Timestamp);
        let number = || Declared::new(Shape::Int);
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
