//! Assignability of types with type variables, as cel-go decides it.

use crate::types::Type;
use std::sync::Arc;

/// The current bindings of type variables.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    /// By variable.
    bound: Vec<Option<Type>>,
    /// Previous bindings, to undo a failed attempt.
    trail: Vec<(u32, Option<Type>)>,
}

impl Bindings {
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param((self.bound.len() - 1) as u32)
    }

    /// Returns the type with its parameters replaced by the fresh variables that begin at `base`.
    pub(crate) fn instantiate(ty: &Type, base: u32) -> Type {
        replace(ty, &|number| Some(Type::Param(base + number)))
    }

    /// Creates `count` fresh variables and returns the first.
    pub(crate) fn fresh_range(&mut self, count: u32) -> u32 {
        let base = self.bound.len() as u32;
        self.bound.resize(self.bound.len() + count as usize, None);
        base
    }

    fn get(&self, variable: u32) -> Option<&Type> {
        self.bound.get(variable as usize).and_then(Option::as_ref)
    }

    fn set(&mut self, variable: u32, ty: Type) {
        let old = self.bound[variable as usize].replace(ty);
        self.trail.push((variable, old));
    }

    /// Returns the type with bound variables substituted. With `free_to_dyn`, unbound variables
    /// become `dyn`.
    pub(crate) fn substitute(&self, ty: &Type, free_to_dyn: bool) -> Type {
        match ty {
            Type::Param(variable) => match self.get(*variable) {
                Some(bound) => self.substitute(bound, free_to_dyn),
                None if free_to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(_) | Type::Map(..) | Type::Optional(_) | Type::Type(Some(_)) => {
                map_params(ty, &|inner| self.substitute(inner, free_to_dyn))
            }
            _ => ty.clone(),
        }
    }

    /// Whether `from` is assignable to `to`. Binds variables on success.
    pub(crate) fn assign(&mut self, to: &Type, from: &Type) -> bool {
        self.assign_all(std::slice::from_ref(to), std::slice::from_ref(from))
    }

    /// Same as [`Bindings::assign`] for lists of types; on failure nothing is bound.
    pub(crate) fn assign_all(&mut self, to: &[Type], from: &[Type]) -> bool {
        let mark = self.trail.len();
        let fits = to.len() == from.len()
            && to.iter().zip(from).all(|(to, from)| self.is_assignable(to, from));
        if !fits {
            for (variable, old) in self.trail.drain(mark..).rev() {
                self.bound[variable as usize] = old;
            }
        }
        fits
    }

    fn is_assignable(&mut self, left: &Type, right: &Type) -> bool {
        if let Type::Param(variable) = right {
            let (valid, was_bound) = self.is_substitution(left, *variable);
            if valid {
                return true;
            }
            if was_bound {
                return false;
            }
        }
        if let Type::Param(variable) = left {
            return self.is_substitution(right, *variable).0;
        }
        if left.is_dyn_or_error() || right.is_dyn_or_error() {
            return true;
        }
        match (left, right) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::List(left), Type::List(right))
            | (Type::Optional(left), Type::Optional(right)) => self.is_assignable(left, right),
            (Type::Map(one_key, one_value), Type::Map(two_key, two_value)) => {
                self.is_assignable(one_key, two_key) && self.is_assignable(one_value, two_value)
            }
            (Type::Type(_), Type::Type(_)) => true,
            _ => left == right,
        }
    }

    /// Whether the variable can be bound to `ty`, and whether it was bound before.
    fn is_substitution(&mut self, ty: &Type, variable: u32) -> (bool, bool) {
        if *ty == Type::Param(variable) {
            return (true, true);
        }
        if let Some(bound) = self.get(variable).cloned() {
            if *ty == bound {
                return (true, true);
            }
            if self.is_assignable(ty, &bound) {
                let general = most_general(ty, &bound).clone();
                if !self.occurs(variable, &general) {
                    self.set(variable, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.occurs(variable, ty) {
            return (false, false);
        }
        self.set(variable, ty.clone());
        (true, false)
    }

    fn occurs(&self, variable: u32, within: &Type) -> bool {
        match within {
            Type::Param(other) if *other == variable => true,
            Type::Param(other) => self.get(*other).is_some_and(|ty| self.occurs(variable, ty)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => {
                self.occurs(variable, inner)
            }
            Type::Map(key, value) => self.occurs(variable, key) || self.occurs(variable, value),
            _ => false,
        }
    }
}

/// Returns the more general of two compatible types.
pub(crate) fn most_general<'a>(left: &'a Type, right: &'a Type) -> &'a Type {
    if is_equal_or_less_specific(left, right) { left } else { right }
}

fn is_equal_or_less_specific(left: &Type, right: &Type) -> bool {
    match (left, right) {
        (Type::Dyn | Type::Any | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Param(_)) => false,
        (Type::List(left), Type::List(right)) | (Type::Optional(left), Type::Optional(right)) => {
            is_equal_or_less_specific(left, right)
        }
        (Type::Map(one_key, one_value), Type::Map(two_key, two_value)) => {
            is_equal_or_less_specific(one_key, two_key)
                && is_equal_or_less_specific(one_value, two_value)
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => left == right,
    }
}

fn replace(ty: &Type, with: &dyn Fn(u32) -> Option<Type>) -> Type {
    match ty {
        Type::Param(number) => with(*number).unwrap_or_else(|| ty.clone()),
        _ => map_params(ty, &|inner| replace(inner, with)),
    }
}

fn map_params(ty: &Type, change: &dyn Fn(&Type) -> Type) -> Type {
    match ty {
        Type::List(item) => Type::List(Arc::new(change(item))),
        Type::Optional(inner) => Type::Optional(Arc::new(change(inner))),
        Type::Map(key, value) => Type::Map(Arc::new(change(key)), Arc::new(change(value))),
        Type::Type(Some(of)) => Type::Type(Some(Arc::new(change(of)))),
        _ => ty.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_attempt_binds_nothing() {
        let mut bindings = Bindings::default();
        let var = bindings.fresh();
        let pair = [Type::list(var.clone()), Type::Int];
        assert!(!bindings.assign_all(&pair, &[Type::list(Type::String), Type::Bool]));
        assert_eq!(bindings.substitute(&var, true), Type::Dyn);
        assert!(bindings.assign_all(&pair, &[Type::list(Type::String), Type::Int]));
        assert_eq!(bindings.substitute(&var, true), Type::String);
    }

    #[test]
    fn null_is_assignable_to_objects_but_not_to_numbers() {
        let mut bindings = Bindings::default();
        assert!(bindings.assign(&Type::Duration, &Type::Null));
        assert!(bindings.assign(&Type::Null, &Type::Opaque("net.IP")));
        assert!(!bindings.assign(&Type::Int, &Type::Null));
        assert!(!bindings.assign(&Type::list(Type::Int), &Type::Null));
    }

    #[test]
    fn type_variable_cannot_contain_itself() {
        let mut bindings = Bindings::default();
        let var = bindings.fresh();
        assert!(!bindings.assign(&var, &Type::list(var.clone())));
    }
}
