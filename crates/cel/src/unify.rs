//! Which type may stand for which: assignability with type variables, as cel-go decides it.

use crate::types::Type;
use std::sync::Arc;

/// What type variables stand for so far.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    /// By variable.
    bound: Vec<Option<Type>>,
    /// Bindings that were replaced, to take a failed attempt back.
    trail: Vec<(u32, Option<Type>)>,
}

impl Bindings {
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param((self.bound.len() - 1) as u32)
    }

    /// The type with parameters `0..count` replaced by fresh variables, which begin at `base`.
    pub(crate) fn instantiate(ty: &Type, base: u32) -> Type {
        replace(ty, &|number| Some(Type::Param(base + number)))
    }

    /// Makes `count` fresh variables and returns the first.
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

    /// The type with variables replaced by what they stand for; with `free_to_dyn`, free ones by `dyn`.
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

    /// Whether a value of type `from` may stand where `to` is asked for; binds variables when it may.
    pub(crate) fn assign(&mut self, to: &Type, from: &Type) -> bool {
        self.assign_all(std::slice::from_ref(to), std::slice::from_ref(from))
    }

    /// The same for lists of types, all or nothing.
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

    fn is_assignable(&mut self, one: &Type, two: &Type) -> bool {
        if let Type::Param(variable) = two {
            let (valid, was_bound) = self.is_substitution(one, *variable);
            if valid {
                return true;
            }
            if was_bound {
                return false;
            }
        }
        if let Type::Param(variable) = one {
            return self.is_substitution(two, *variable).0;
        }
        if one.is_dyn_or_error() || two.is_dyn_or_error() {
            return true;
        }
        match (one, two) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::List(one), Type::List(two)) | (Type::Optional(one), Type::Optional(two)) => {
                self.is_assignable(one, two)
            }
            (Type::Map(one_key, one_value), Type::Map(two_key, two_value)) => {
                self.is_assignable(one_key, two_key) && self.is_assignable(one_value, two_value)
            }
            (Type::Type(_), Type::Type(_)) => true,
            _ => one == two,
        }
    }

    /// Whether the variable may stand for `ty`, and whether it stood for something before.
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

/// Of two types that agree, the one that says less.
pub(crate) fn most_general<'a>(one: &'a Type, two: &'a Type) -> &'a Type {
    if is_equal_or_less_specific(one, two) { one } else { two }
}

fn is_equal_or_less_specific(one: &Type, two: &Type) -> bool {
    match (one, two) {
        (Type::Dyn | Type::Any | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Param(_)) => false,
        (Type::List(one), Type::List(two)) | (Type::Optional(one), Type::Optional(two)) => {
            is_equal_or_less_specific(one, two)
        }
        (Type::Map(one_key, one_value), Type::Map(two_key, two_value)) => {
            is_equal_or_less_specific(one_key, two_key)
                && is_equal_or_less_specific(one_value, two_value)
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => one == two,
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
    fn null_stands_for_objects_and_not_for_numbers() {
        let mut bindings = Bindings::default();
        assert!(bindings.assign(&Type::Duration, &Type::Null));
        assert!(bindings.assign(&Type::Null, &Type::Opaque("net.IP")));
        assert!(!bindings.assign(&Type::Int, &Type::Null));
        assert!(!bindings.assign(&Type::list(Type::Int), &Type::Null));
    }

    #[test]
    fn a_variable_never_holds_itself() {
        let mut bindings = Bindings::default();
        let var = bindings.fresh();
        assert!(!bindings.assign(&var, &Type::list(var.clone())));
    }
}
