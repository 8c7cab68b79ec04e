//! All functions and their overloads, by library. Built once from the tables in `signatures.rs`.

mod signatures;

use crate::types::Type;
use signatures::TABLES;
use std::collections::HashMap;
use std::sync::OnceLock;

/// A function library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Library {
    /// The standard functions of CEL.
    Standard,
    /// Optional types: `optional.of`, `orValue` and the optional syntax.
    Optional,
    /// Kubernetes' list library: `isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`.
    Lists,
    /// `find`, `findAll`.
    Regex,
    /// `url`, `isURL` and the functions of URLs.
    Urls,
    /// `quantity` and its arithmetic.
    Quantity,
    /// `ip`, `isIP`.
    Ip,
    /// `cidr`, `isCIDR`.
    Cidr,
    /// `format.dns1123Label().validate(text)` and others.
    Format,
    /// `semver`, `isSemver`.
    Semver,
    /// `authorizer.group("").resource("pods").check("get").allowed()`.
    Authorizer,
    /// `fieldSelector` and `labelSelector` of authorization checks.
    AuthorizerSelectors,
    /// `jsonpatch.escapeKey`.
    JsonPatch,
    /// cel-go's extended strings, version 2.
    Strings,
    /// `sets.contains`, `sets.equivalent`, `sets.intersects`.
    Sets,
    /// cel-go's extended lists, version 3: `slice`, `flatten`, `sort`, `distinct` and others.
    ExtendedLists,
    /// `all(i, v, ...)`, `transformList` and other macros with two variables.
    TwoVariables,
    /// `math.greatest` and others; not in Kubernetes.
    Math,
    /// `base64.encode`, `base64.decode`; not in Kubernetes.
    Encoders,
    /// `cel.bind`; not in Kubernetes.
    Bindings,
    /// `reverse` of strings; not in Kubernetes.
    ReverseStrings,
}

/// A set of libraries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Libraries(u32);

impl Libraries {
    pub(crate) fn add(&mut self, library: Library) {
        self.0 |= 1 << library as u32;
    }

    pub(crate) fn has(self, library: Library) -> bool {
        self.0 & (1 << library as u32) != 0
    }
}

/// An overload of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) function: &'static str,
    pub(crate) library: Library,
    /// Whether it is a member function. The target is the first parameter.
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// Number of type parameters: `Param(0)` and so on.
    pub(crate) variables: u32,
}

/// A table of a library. A row: function, overload id, `.` for a member function, parameters,
/// result.
pub(crate) type Table =
    (Library, &'static [(&'static str, &'static str, &'static str, &'static str, &'static str)]);

/// Returns the overloads of a function in all libraries, in declaration order.
pub(crate) fn overloads(function: &str) -> Option<&'static [Overload]> {
    static REGISTRY: OnceLock<HashMap<&'static str, Vec<Overload>>> = OnceLock::new();
    REGISTRY.get_or_init(build).get(function).map(Vec::as_slice)
}

/// Whether one of these libraries has a function of this name.
pub(crate) fn is_declared(function: &str, libraries: Libraries) -> bool {
    overloads(function).is_some_and(|all| all.iter().any(|one| libraries.has(one.library)))
}

fn build() -> HashMap<&'static str, Vec<Overload>> {
    let mut out: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for (library, rows) in TABLES {
        for (function, id, style, params, result) in *rows {
            let mut reader = Reader { rest: params, variables: 0 };
            let mut types = vec![];
            while !reader.rest.is_empty() {
                types.push(reader.ty());
                reader.rest = reader.rest.trim_start_matches([',', ' ']);
            }
            reader.rest = result;
            let result = reader.ty();
            out.entry(function).or_default().push(Overload {
                id,
                function,
                library: *library,
                member: *style == ".",
                params: types,
                result,
                variables: reader.variables,
            });
        }
    }
    out
}

/// Parses the types in the tables, such as `map(A, list(B))`.
struct Reader {
    rest: &'static str,
    variables: u32,
}

impl Reader {
    fn ty(&mut self) -> Type {
        let end = self.rest.find(['(', ')', ',']).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        match name.trim() {
            "dyn" => Type::Dyn,
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "timestamp" => Type::Timestamp,
            "duration" => Type::Duration,
            "list" => Type::list(self.inner()),
            "optional" => Type::optional(self.inner()),
            "type" => Type::Type(Some(self.inner().into())),
            "map" => {
                let key = self.inner();
                Type::map(key, self.inner())
            }
            "A" => self.variable(0),
            "B" => self.variable(1),
            other => Type::Opaque(other),
        }
    }

    /// Parses the next type parameter, including the bracket or comma before it and the bracket
    /// after it.
    fn inner(&mut self) -> Type {
        self.rest = &self.rest[1..];
        let ty = self.ty();
        self.rest = self.rest.strip_prefix(')').unwrap_or(self.rest);
        ty
    }

    fn variable(&mut self, number: u32) -> Type {
        self.variables = self.variables.max(number + 1);
        Type::Param(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_parsed() {
        let signature = |function: &str| {
            let all = overloads(function).unwrap();
            let one = all.last().unwrap();
            let params: Vec<String> = one.params.iter().map(Type::to_string).collect();
            format!("({}) {} {}", params.join(", "), one.result, one.variables)
        };
        assert_eq!(signature("_?_:_"), "(bool, _var0, _var0) _var0 1");
        assert_eq!(signature("@in"), "(_var0, map(_var0, _var1)) bool 2");
        assert_eq!(signature("isQuantity"), "(string) bool 0");
    }
}
