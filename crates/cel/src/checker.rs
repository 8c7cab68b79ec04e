//! The type checker: finds the type of each node and the overloads of each call. Error messages are
//! those of cel-go.

use crate::ast::{Comprehension, Entry, Expr, ExprKind, Field, Id, Item, Parsed, operator};
use crate::environment::{COMPOSITED, Environment, Global};
use crate::issues::Issues;
use crate::literal::Literal;
use crate::registry::{self, Overload};
use crate::types::Type;
use crate::unify::{Bindings, most_general};
use keelson_meta::Str;
use std::sync::Arc;

/// What a name or a call refers to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reference {
    #[default]
    None,
    Global(Global),
    /// A variable of an enclosing comprehension.
    Local,
    Call {
        /// The full name of the function.
        function: &'static str,
        /// Whether the target is a namespace in that name and not a value.
        namespaced: bool,
        /// The matching overloads; several when the argument types are only known at evaluation.
        overloads: Vec<&'static Overload>,
    },
}

/// A checked expression.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) root: Expr,
    pub(crate) offsets: Vec<u32>,
    /// By node id.
    pub(crate) types: Vec<Type>,
    /// By node id.
    pub(crate) references: Vec<Reference>,
}

impl Checked {
    pub(crate) fn ty(&self, id: Id) -> &Type {
        &self.types[id as usize]
    }

    pub(crate) fn reference(&self, id: Id) -> &Reference {
        &self.references[id as usize]
    }
}

/// Checks an expression and reports its errors to `issues`.
pub(crate) fn check(env: &Environment, parsed: Parsed, issues: &mut Issues) -> Checked {
    let count = parsed.offsets.len();
    let mut checker = Checker {
        env,
        issues,
        offsets: &parsed.offsets,
        bindings: Bindings::default(),
        scopes: vec![],
        types: vec![Type::Error; count],
        references: vec![Reference::None; count],
    };
    checker.check(&parsed.root);
    let Checker { bindings, types, references, .. } = checker;
    let types = types.iter().map(|ty| bindings.substitute(ty, true)).collect();
    Checked { root: parsed.root, offsets: parsed.offsets, types, references }
}

struct Checker<'a> {
    env: &'a Environment,
    issues: &'a mut Issues,
    offsets: &'a [u32],
    bindings: Bindings,
    /// Variables of the enclosing comprehensions, innermost last.
    scopes: Vec<(Str, Type)>,
    types: Vec<Type>,
    references: Vec<Reference>,
}

impl Checker<'_> {
    fn report(&mut self, id: Id, message: String) {
        self.issues.report(self.offsets[id as usize], message);
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        let container = &self.env.container;
        self.report(id, format!("undeclared reference to '{name}' (in container '{container}')"));
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        let expected = self.resolved(expected);
        let found = self.resolved(found);
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn resolved(&self, ty: &Type) -> Type {
        self.bindings.substitute(ty, true)
    }

    fn ty(&self, expr: &Expr) -> Type {
        self.types[expr.id as usize].clone()
    }

    fn set(&mut self, id: Id, ty: Type) {
        self.types[id as usize] = ty;
    }

    fn check(&mut self, expr: &Expr) {
        crate::stack::ensure_sufficient_stack(|| self.check_node(expr));
    }

    fn check_node(&mut self, expr: &Expr) {
        let ty = match &expr.kind {
            ExprKind::Error => Type::Error,
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::Ident(name) => self.ident(expr.id, name),
            ExprKind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            ExprKind::Call { function, target, args } => {
                self.call(expr.id, function, target.as_deref(), args)
            }
            ExprKind::List(items) => self.list(items),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct { name, fields } => {
                let decl_type = self.struct_type(expr.id, name);
                for field in fields.iter().filter(|_| decl_type.is_some()) {
                    self.check(&field.value);
                    self.struct_field(name, decl_type.as_ref(), field);
                }
                decl_type.unwrap_or(Type::Error)
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(comprehension),
        };
        self.set(expr.id, ty);
    }

    /// Returns the names that `name` may refer to within the container, longest first.
    fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_prefix('.') {
            return vec![absolute.to_owned()];
        }
        let mut out = vec![];
        let mut container = self.env.container.as_str();
        while !container.is_empty() {
            out.push(format!("{container}.{name}"));
            container = container.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
        out.push(name.to_owned());
        out
    }

    fn local(&self, name: &str) -> Option<Type> {
        self.scopes.iter().rev().find(|(known, _)| known == name).map(|(_, ty)| ty.clone())
    }

    fn global(&self, name: &str) -> Option<Global> {
        self.candidates(name).iter().find_map(|candidate| self.env.global(candidate))
    }

    fn global_type(&self, global: &Global) -> Type {
        match global {
            Global::Variable(at) => self.env.variable_type(*at),
            Global::Type(ty) => Type::Type(Some(Arc::new(ty.clone()))),
        }
    }

    fn refer(&mut self, id: Id, global: Global) -> Type {
        let ty = self.global_type(&global);
        self.references[id as usize] = Reference::Global(global);
        ty
    }

    fn ident(&mut self, id: Id, name: &str) -> Type {
        if let Some(ty) = self.local(name) {
            self.references[id as usize] = Reference::Local;
            return ty;
        }
        match self.global(name) {
            Some(global) => self.refer(id, global),
            None => {
                self.undeclared(id, name);
                Type::Error
            }
        }
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) -> Type {
        if !test
            && let Some(name) = expr.qualified_name()
            && self.local(name.split('.').next().unwrap_or_default()).is_none()
            && let Some(global) = self.global(&name)
        {
            return self.refer(expr.id, global);
        }
        let ty = self.field(expr.id, operand, field, false);
        if test { Type::Bool } else { self.bindings.substitute(&ty, false) }
    }

    /// Returns the type of a field of `operand`. It is optional when the operand or the selection
    /// is.
    fn field(&mut self, id: Id, operand: &Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.bindings.substitute(&self.ty(operand), false);
        let (target, is_optional) = match &operand {
            Type::Optional(inner) => ((**inner).clone(), true),
            _ => (operand, false),
        };
        let ty = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) if object.name() == COMPOSITED => match self.env.composited(field)
            {
                Some(ty) => ty,
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Object(object) => match object.field(field) {
                Some(field) => field.decl_type.ty(),
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Struct(name) => match Type::struct_field(name, field) {
                Some(ty) => ty,
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Param(_) => {
                self.bindings.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other => {
                let ty = self.resolved(other);
                self.report(id, format!("type '{ty}' does not support field selection"));
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(ty) } else { ty }
    }

    fn call(&mut self, id: Id, function: &str, target: Option<&Expr>, args: &[Expr]) -> Type {
        if function == operator::OPTIONAL_SELECT {
            return self.optional_select(id, args);
        }
        for arg in args {
            self.check(arg);
        }
        let Some(target) = target else {
            return match self.function(function) {
                Some(name) => self.resolve(id, name, None, args, false),
                None => {
                    self.undeclared(id, function);
                    Type::Error
                }
            };
        };
        if let Some(prefix) = target.qualified_name()
            && let Some(name) = self.function(&format!("{prefix}.{function}"))
        {
            return self.resolve(id, name, None, args, true);
        }
        self.check(target);
        match self.function(function) {
            Some(name) => self.resolve(id, name, Some(target), args, false),
            None => {
                self.undeclared(id, function);
                Type::Error
            }
        }
    }

    fn optional_select(&mut self, id: Id, args: &[Expr]) -> Type {
        let [operand, Expr { kind: ExprKind::Literal(Literal::String(field)), .. }] = args else {
            return Type::Error;
        };
        self.set(args[1].id, Type::String);
        let ty = self.field(id, operand, field, true);
        self.references[id as usize] = Reference::Call {
            function: operator::OPTIONAL_SELECT,
            namespaced: false,
            overloads: registry::overloads(operator::OPTIONAL_SELECT)
                .map(|all| all.iter().collect())
                .unwrap_or_default(),
        };
        self.bindings.substitute(&ty, false)
    }

    /// Returns the full name of a declared function.
    fn function(&self, name: &str) -> Option<&'static str> {
        self.candidates(name).iter().find_map(|candidate| {
            let all = registry::overloads(candidate)?;
            all.iter().find(|one| self.env.libraries.has(one.library)).map(|one| one.function)
        })
    }

    fn resolve(
        &mut self,
        id: Id,
        function: &'static str,
        target: Option<&Expr>,
        args: &[Expr],
        namespaced: bool,
    ) -> Type {
        let types: Vec<Type> = target.into_iter().chain(args).map(|arg| self.ty(arg)).collect();
        let all = registry::overloads(function).unwrap_or_default();
        if matches!(function, operator::AND | operator::OR) {
            return self.logical(id, function, args, &all[0]);
        }
        let mut overloads: Vec<&'static Overload> = vec![];
        let mut result: Option<Type> = None;
        for overload in all {
            if overload.member != target.is_some() || !self.env.libraries.has(overload.library) {
                continue;
            }
            let base = self.bindings.fresh_range(overload.variables);
            let own = |ty: &Type| Bindings::instantiate(ty, base);
            let params: Vec<Type> = overload.params.iter().map(own).collect();
            if !self.bindings.assign_all(&types, &params) {
                continue;
            }
            overloads.push(overload);
            let found = self.bindings.substitute(&own(&overload.result), false);
            result = Some(match result {
                None => found,
                Some(Type::Dyn | Type::Any) => Type::Dyn,
                Some(known) if known == found => known,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            self.no_overload(id, function, &types, target.is_some());
            return Type::Error;
        };
        self.references[id as usize] = Reference::Call { function, namespaced, overloads };
        result
    }

    fn logical(
        &mut self,
        id: Id,
        function: &'static str,
        args: &[Expr],
        overload: &'static Overload,
    ) -> Type {
        let mut fits = true;
        for arg in args {
            let ty = self.ty(arg);
            if !self.bindings.assign(&ty, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, &ty);
                fits = false;
            }
        }
        if !fits {
            return Type::Error;
        }
        self.references[id as usize] =
            Reference::Call { function, namespaced: false, overloads: vec![overload] };
        Type::Bool
    }

    fn no_overload(&mut self, id: Id, function: &str, types: &[Type], member: bool) {
        let names: Vec<String> = types.iter().map(|ty| self.resolved(ty).to_string()).collect();
        let signature = match names.split_first() {
            Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", names.join(", ")),
        };
        let message =
            format!("found no matching overload for '{function}' applied to '{signature}'");
        self.report(id, message);
    }

    /// Returns the type of an element; for an optional element, the type that is wrapped.
    fn element(&mut self, expr: &Expr, optional: bool) -> Type {
        let ty = self.ty(expr);
        if !optional {
            return ty;
        }
        match self.bindings.substitute(&ty, false) {
            Type::Optional(inner) => (*inner).clone(),
            Type::Dyn | Type::Any => Type::Dyn,
            other => {
                self.mismatch(expr.id, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    fn list(&mut self, items: &[Item]) -> Type {
        let mut common = None;
        for item in items {
            self.check(&item.expr);
            let ty = self.element(&item.expr, item.optional);
            common = Some(self.join(common, ty));
        }
        Type::list(common.unwrap_or_else(|| self.bindings.fresh()))
    }

    fn map(&mut self, entries: &[Entry]) -> Type {
        let mut key = None;
        let mut value = None;
        for entry in entries {
            self.check(&entry.key);
            let ty = self.ty(&entry.key);
            key = Some(self.join(key, ty));
            self.check(&entry.value);
            let ty = self.element(&entry.value, entry.optional);
            value = Some(self.join(value, ty));
        }
        let key = key.unwrap_or_else(|| self.bindings.fresh());
        let value = value.unwrap_or_else(|| self.bindings.fresh());
        Type::map(key, value)
    }

    /// Returns the common type of the elements so far and of one more: `dyn` when they differ.
    fn join(&mut self, common: Option<Type>, ty: Type) -> Type {
        let Some(common) = common else { return ty };
        if self.bindings.assign(&common, &ty) {
            return most_general(&common, &ty).clone();
        }
        Type::Dyn
    }

    /// Returns the type that a struct literal names, `None` for an undeclared name.
    fn struct_type(&mut self, id: Id, name: &str) -> Option<Type> {
        let Some(global) = self.global(name) else {
            self.undeclared(id, name);
            return None;
        };
        match global {
            Global::Variable(_) => {
                let ty = self.global_type(&global);
                self.report(id, format!("'{ty}' is not a type"));
            }
            Global::Type(ty @ Type::Struct(_)) => return Some(ty),
            Global::Type(ty) => {
                self.report(id, format!("'{ty}' is not a message type"));
            }
        }
        Some(Type::Error)
    }

    /// Checks one field of a struct literal.
    fn struct_field(&mut self, literal: &str, ty: Option<&Type>, field: &Field) {
        let Some(Type::Struct(name)) = ty else {
            let message = format!("unexpected failed resolution of '{literal}'");
            return self.report(field.id, message);
        };
        let found = self.element(&field.value, field.optional);
        let expected = Type::struct_field(name, &field.name);
        if let Some(expected) = &expected
            && self.bindings.assign(expected, &found)
        {
            return;
        }
        let expected = expected.map_or_else(String::new, |ty| ty.to_string());
        let name = &field.name;
        let found = self.resolved(&found);
        self.report(
            field.id,
            format!(
                "expected type of field '{name}' is '{expected}' but provided type is '{found}'"
            ),
        );
    }

    fn comprehension(&mut self, comprehension: &Comprehension) -> Type {
        self.check(&comprehension.range);
        self.check(&comprehension.init);
        let range = self.bindings.substitute(&self.ty(&comprehension.range), false);
        let accumulator = self.ty(&comprehension.init);
        let (key, value) = match &range {
            Type::List(item) => (Type::Int, (**item).clone()),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Param(_) => {
                self.bindings.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            Type::Dyn | Type::Any | Type::Error => (Type::Dyn, Type::Dyn),
            other => {
                let ty = self.resolved(other);
                self.report(
                    comprehension.range.id,
                    format!(
                        "expression of type '{ty}' cannot be range of a comprehension \
                         (must be list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        let mark = self.scopes.len();
        self.scopes.push((comprehension.accumulator.clone(), accumulator.clone()));
        match &comprehension.second {
            Some(second) => {
                self.scopes.push((comprehension.first.clone(), key));
                self.scopes.push((second.clone(), value));
            }
            None => {
                let single = if matches!(range, Type::List(_)) { value } else { key };
                self.scopes.push((comprehension.first.clone(), single));
            }
        }
        self.check(&comprehension.condition);
        self.expect(&comprehension.condition, &Type::Bool);
        self.check(&comprehension.step);
        self.expect(&comprehension.step, &accumulator);
        self.scopes.truncate(mark + 1);
        self.check(&comprehension.result);
        self.scopes.truncate(mark);
        self.bindings.substitute(&self.ty(&comprehension.result), false)
    }

    fn expect(&mut self, expr: &Expr, expected: &Type) {
        let ty = self.ty(expr);
        if !self.bindings.assign(expected, &ty) {
            self.mismatch(expr.id, expected, &ty);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
