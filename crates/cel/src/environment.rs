//! [`Environment`]: the variables and libraries that an expression can use. Each Kubernetes version
//! has its set of libraries.

use crate::issues::Issues;
use crate::parser::Macros;
use crate::parser::{self, Syntax};
use crate::registry::{Libraries, Library, is_declared};
use crate::types::{DeclType, ObjectType, Type};
use keelson_meta::Str;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum estimated cost of one validation rule of a CustomResourceDefinition.
pub const ESTIMATED_RULE_COST_MAX: u64 = 10_000_000;

/// Maximum estimated cost of all validation rules of a CustomResourceDefinition.
pub const ESTIMATED_SCHEMA_COST_MAX: u64 = 100_000_000;

/// The Kubernetes 1.x minor version that introduced each library.
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

/// The Kubernetes 1.x minor version that introduced cel-go's extended lists.
const EXTENDED_LISTS_SINCE: u32 = 34;

/// A Kubernetes version; it decides which libraries an environment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    minor: u32,
}

impl Version {
    /// For new expressions. They may only use what the previous minor version supports, so that a
    /// rollback is possible.
    pub const NEW_EXPRESSIONS: Version = Version { minor: 35 };

    /// For stored expressions. They may use every library.
    pub const STORED_EXPRESSIONS: Version = Version { minor: u32::MAX };

    /// Returns Kubernetes 1.`minor`.
    pub const fn minor(minor: u32) -> Version {
        Version { minor }
    }
}

/// A variable of an environment.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Str,
    pub(crate) ty: Type,
    pub(crate) decl_type: Option<Arc<DeclType>>,
}

/// The variables, libraries and types that expressions can use. Cheap to create: all environments
/// share the functions.
#[derive(Clone, Debug)]
pub struct Environment {
    pub(crate) variables: Vec<Variable>,
    pub(crate) libraries: Libraries,
    pub(crate) container: String,
    /// Whether all elements of a list or map literal must have one type.
    pub(crate) homogeneous_literals: bool,
    quoted_fields: bool,
    /// Whether the types `Object` and `JSONPatch` exist.
    mutations: bool,
    /// The types of composited variables.
    composited: Option<CompositedTypes>,
}

/// A variable of the environment, or a type used as a value.
#[derive(Clone, Debug)]
pub(crate) enum Global {
    /// Index of the variable in the environment.
    Variable(usize),
    Type(Type),
}

/// The name of the object type of `variables`.
pub(crate) const COMPOSITED: &str = "kubernetes.variables";

/// The types of composited variables, by name. Clones share one map: environments see the variables
/// that are added later.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompositedTypes(Arc<Mutex<HashMap<Str, Type>>>);

impl CompositedTypes {
    pub(crate) fn add(&self, name: &str, ty: Type) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), ty);
    }

    fn get(&self, name: &str) -> Option<Type> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

impl Environment {
    /// Returns an environment with the libraries of a Kubernetes version and no variables.
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
            composited: None,
        }
    }

    /// Adds a library that the Kubernetes version does not include.
    pub fn with_library(mut self, library: Library) -> Self {
        self.libraries.add(library);
        self
    }

    /// Adds a variable. Values are passed in the order of these calls.
    pub fn with_variable(mut self, name: impl Into<Str>, ty: Type) -> Self {
        self.variables.push(Variable { name: name.into(), ty, decl_type: None });
        self
    }

    /// Adds a variable with a schema type. The first one provides the sizes for the cost estimate.
    pub fn with_decl_type(mut self, name: impl Into<Str>, decl_type: Arc<DeclType>) -> Self {
        let ty = decl_type.ty();
        self.variables.push(Variable { name: name.into(), ty, decl_type: Some(decl_type) });
        self
    }

    /// Adds a variable whose fields are the composited variables.
    pub(crate) fn with_composited(self, name: impl Into<Str>, types: CompositedTypes) -> Self {
        let object = ObjectType::new(COMPOSITED, vec![]);
        let env = self.with_variable(name, Type::Object(Arc::new(object)));
        Environment { composited: Some(types), ..env }
    }

    /// Returns the type of a composited variable.
    pub(crate) fn composited(&self, name: &str) -> Option<Type> {
        self.composited.as_ref()?.get(name)
    }

    /// Skips a variable index, so that environments with and without a variable can share one list
    /// of values.
    pub fn without_variable(self) -> Self {
        self.with_variable("", Type::Dyn)
    }

    /// Adds the types of mutating admission policies: `Object`, `Object.spec` and so on, and
    /// `JSONPatch`.
    pub fn with_mutations(mut self) -> Self {
        self.mutations = true;
        self
    }

    /// Sets the container, in which names are looked up first: in container `a.b`, `y` refers to
    /// `a.b.y`, `a.y` or `y`.
    pub fn with_container(mut self, container: impl Into<String>) -> Self {
        self.container = container.into();
        self
    }

    /// Allows literals with elements of different types, and field names in backquotes. Kubernetes
    /// allows neither.
    pub fn lenient(mut self) -> Self {
        self.homogeneous_literals = false;
        self.quoted_fields = true;
        self
    }

    /// Whether the environment has a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        is_declared(name, self.libraries)
    }

    /// Whether an expression selects a field of a variable anywhere: `claims.email`,
    /// `has(claims.email)` or `claims.?email`. False if it does not parse.
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

    /// Returns the schema type that provides the sizes for the cost estimate.
    pub(crate) fn root(&self) -> Option<&DeclType> {
        self.variables.iter().find_map(|variable| variable.decl_type.as_deref())
    }

    pub(crate) fn variable_type(&self, at: usize) -> Type {
        self.variables[at].ty.clone()
    }

    /// Returns the variable or the type of this name.
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
