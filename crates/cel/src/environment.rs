//! [`Environment`]: the variables and libraries that an expression can use, by Kubernetes' version.

use crate::parser::Macros;
use crate::parser::{self, Syntax};
use crate::registry::{Libraries, Library, is_declared};
use crate::source::Issues;
use crate::types::{Declared, ObjectType, Type};
use keelson_meta::Str;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An expression's cost is estimated to be at most this, or its schema is refused.
pub const ESTIMATED_RULE_COST_MAX: u64 = 10_000_000;

/// The costs of all rules of a CustomResourceDefinition are estimated to be at most this.
pub const ESTIMATED_SCHEMA_COST_MAX: u64 = 100_000_000;

/// The minor version of Kubernetes 1 in which each library came.
const INTRODUCED: [(Library, u32); 15] = [
    (Library::Standard, 0),
    (Library::Urls, 0),
    (Library::Regex, 0),
    (Library::Lists, 0),
    (Library::Strings, 0),
    (Library::Authorizer, 27),
    (Library::Optional, 28),
    (Library::Quantity, 28),
    (Library::Sets, 29),
    (Library::Ip, 30),
    (Library::Cidr, 30),
    (Library::Format, 31),
    (Library::AuthorizerSelectors, 31),
    (Library::TwoVariables, 32),
    (Library::Semver, 33),
];

/// The minor version in which cel-go's extended lists came.
const EXTENDED_LISTS_SINCE: u32 = 34;

/// A Kubernetes 1 version, whose libraries an environment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    minor: u32,
}

impl Version {
    /// What new expressions may use: what the version before understands too, so that going back to it
    /// is possible.
    pub const NEW_EXPRESSIONS: Version = Version { minor: 35 };

    /// What stored expressions may use: everything there is.
    pub const STORED_EXPRESSIONS: Version = Version { minor: u32::MAX };

    /// Kubernetes 1.`minor`.
    pub const fn minor(minor: u32) -> Version {
        Version { minor }
    }
}

/// A variable of an environment.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Str,
    pub(crate) ty: Type,
    pub(crate) declared: Option<Arc<Declared>>,
}

/// What expressions can use. Making one is cheap; the functions themselves are shared by all.
#[derive(Clone, Debug)]
pub struct Environment {
    pub(crate) variables: Vec<Variable>,
    pub(crate) libraries: Libraries,
    pub(crate) container: String,
    /// Whether elements of a literal must be of one type.
    pub(crate) homogeneous_literals: bool,
    quoted_fields: bool,
    /// Whether there are the types `Object` and `JSONPatch`.
    mutations: bool,
    /// The types of the values that other expressions compute.
    composed: Option<Composed>,
}

/// A variable of the environment, or a type that is used as a value.
#[derive(Clone, Debug)]
pub(crate) enum Global {
    /// The place of the variable in the environment.
    Variable(usize),
    Type(Type),
}

/// The name of the type of `variables`.
pub(crate) const COMPOSED: &str = "kubernetes.variables";

/// The types of values that other expressions compute, by name. Clones are one: what is added later is seen
/// by all environments that have it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Composed(Arc<Mutex<HashMap<Str, Type>>>);

impl Composed {
    pub(crate) fn add(&self, name: &str, ty: Type) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), ty);
    }

    fn get(&self, name: &str) -> Option<Type> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

impl Environment {
    /// The libraries of a version of Kubernetes, and no variables.
    pub fn kubernetes(version: Version) -> Self {
        let mut libraries = Libraries::default();
        for (library, minor) in INTRODUCED {
            if minor <= version.minor {
                libraries.add(library);
            }
        }
        if EXTENDED_LISTS_SINCE <= version.minor {
            libraries.add(Library::ExtendedLists);
        }
        Environment {
            variables: vec![],
            libraries,
            container: String::new(),
            homogeneous_literals: true,
            quoted_fields: false,
            mutations: false,
            composed: None,
        }
    }

    /// Adds a library that the version has not.
    pub fn with_library(mut self, library: Library) -> Self {
        self.libraries.add(library);
        self
    }

    /// Adds a variable of a type; values are given in the order of these calls.
    pub fn with_variable(mut self, name: impl Into<Str>, ty: Type) -> Self {
        self.variables.push(Variable { name: name.into(), ty, declared: None });
        self
    }

    /// Adds a variable with a schema. The first one gives the sizes for the estimate of costs.
    pub fn with_declared(mut self, name: impl Into<Str>, declared: Arc<Declared>) -> Self {
        let ty = declared.ty();
        self.variables.push(Variable { name: name.into(), ty, declared: Some(declared) });
        self
    }

    /// Adds a variable whose fields are values that other expressions compute.
    pub(crate) fn with_composed(self, name: impl Into<Str>, types: Composed) -> Self {
        let object = ObjectType::new(COMPOSED, vec![]);
        let env = self.with_variable(name, Type::Object(Arc::new(object)));
        Environment { composed: Some(types), ..env }
    }

    /// The type of a value that another expression computes.
    pub(crate) fn composed(&self, name: &str) -> Option<Type> {
        self.composed.as_ref()?.get(name)
    }

    /// Leaves a place among the variables empty, so that expressions with and without a variable can be
    /// evaluated with the same values.
    pub fn without_variable(self) -> Self {
        self.with_variable("", Type::Dyn)
    }

    /// Adds the types of mutating policies: `Object`, `Object.spec` and so on, and `JSONPatch`.
    pub fn with_mutations(mut self) -> Self {
        self.mutations = true;
        self
    }

    /// Names are looked up within this container first: `a.b` finds `y` as `a.b.y` or `a.y`.
    pub fn with_container(mut self, container: impl Into<String>) -> Self {
        self.container = container.into();
        self
    }

    /// Lets literals have elements of different types, and fields be named in backquotes. Kubernetes
    /// allows neither.
    pub fn lenient(mut self) -> Self {
        self.homogeneous_literals = false;
        self.quoted_fields = true;
        self
    }

    /// Whether a function of this name can be called.
    pub fn has_function(&self, name: &str) -> bool {
        is_declared(name, self.libraries)
    }

    /// Whether an expression selects a field of a variable anywhere: `claims.email`, `has(claims.email)` or
    /// `claims.?email`. One that does not parse selects nothing.
    pub fn selects(&self, text: &str, variable: &str, field: &str) -> bool {
        let mut issues = Issues::default();
        let parsed = parser::parse(text, self.syntax(), &mut issues);
        parsed.is_some_and(|parsed| parsed.root.selects(variable, field))
    }

    pub(crate) fn syntax(&self) -> Syntax {
        Syntax {
            macros: Macros {
                optional: self.libraries.has(Library::Optional),
                two_variables: self.libraries.has(Library::TwoVariables),
                bind: self.libraries.has(Library::Bindings),
                sort_by: self.libraries.has(Library::ExtendedLists),
                math: self.libraries.has(Library::Math),
            },
            quoted_fields: self.quoted_fields,
        }
    }

    /// The schema that sizes come from.
    pub(crate) fn root(&self) -> Option<&Declared> {
        self.variables.iter().find_map(|variable| variable.declared.as_deref())
    }

    pub(crate) fn variable_type(&self, at: usize) -> Type {
        self.variables[at].ty.clone()
    }

    /// The variable or the type of this name.
    pub(crate) fn global(&self, name: &str) -> Option<Global> {
        if let Some(at) = self.variables.iter().position(|variable| variable.name == name) {
            return Some(Global::Variable(at));
        }
        let ty = match name {
            "bool" => Type::Bool,
            "bytes" => Type::Bytes,
            "double" => Type::Double,
            "dyn" => Type::Dyn,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "string" => Type::String,
            "list" => Type::list(Type::Dyn),
            "map" => Type::map(Type::Dyn, Type::Dyn),
            "null_type" => Type::Null,
            "type" => Type::Type(None),
            "google.protobuf.Timestamp" => Type::Timestamp,
            "google.protobuf.Duration" => Type::Duration,
            "JSONPatch" | "Object" if self.mutations => Type::Struct(name.into()),
            _ if self.mutations && name.starts_with("Object.") => Type::Struct(name.into()),
            "optional_type" if self.libraries.has(Library::Optional) => Type::optional(Type::Dyn),
            "net.IP" if self.libraries.has(Library::Ip) => Type::Opaque("net.IP"),
            "net.CIDR" if self.libraries.has(Library::Cidr) => Type::Opaque("net.CIDR"),
            _ => return None,
        };
        Some(Global::Type(ty))
    }
}
