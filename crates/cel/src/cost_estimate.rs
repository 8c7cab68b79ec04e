//! The static cost estimate of an expression, from the sizes that types declare (cel-go
//! `checker/cost.go`).

mod calls;

use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprKind, Id, UNUSED, operator};
use crate::checker::{Checked, Reference};
use crate::environment::Environment;
use crate::literal::Literal;
use crate::runtime_cost::{
    LIST_CREATE_COST, MAP_CREATE_COST, STRUCT_CREATE_COST, TRAVERSAL_FACTOR,
};
use crate::types::{DeclType, Shape, Type};
use calls::CallEstimate;
use keelson_meta::Str;
use std::collections::HashMap;

/// A minimum and a maximum, of a cost or of a size. Both saturate at 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The minimum.
    pub min: u64,
    /// The maximum.
    pub max: u64,
}

impl Estimate {
    /// The range of an unknown size.
    pub const UNKNOWN: Estimate = Estimate { min: 0, max: u64::MAX };

    pub(crate) const fn fixed(number: u64) -> Self {
        Estimate { min: number, max: number }
    }

    pub(crate) fn add(self, other: Estimate) -> Self {
        Estimate {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn multiply(self, other: Estimate) -> Self {
        Estimate {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Returns both bounds times a factor, rounded up.
    pub(crate) fn scale(self, factor: f64) -> Self {
        let scale = |number: u64| (number as f64 * factor).ceil() as u64;
        Estimate { min: scale(self.min), max: scale(self.max) }
    }

    pub(crate) fn traversal(self) -> Self {
        self.scale(TRAVERSAL_FACTOR)
    }

    /// Returns the smallest range that contains both.
    pub(crate) fn union(self, other: Estimate) -> Self {
        Estimate { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// A step on the path from a variable into its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Name(Str),
    Items,
    Indices,
    Keys,
    Values,
}

type Path = Vec<Step>;

/// Sizes of the elements of a list or the entries of a map.
#[derive(Clone, Copy, Debug)]
struct EntrySize {
    is_list: bool,
    key: Estimate,
    value: Estimate,
}

/// A variable of an enclosing comprehension.
struct Local {
    name: Str,
    path: Path,
    size: Option<Estimate>,
    entry: Option<EntrySize>,
}

/// An argument of a call.
pub(crate) struct Argument<'e> {
    pub(crate) expr: Option<&'e Expr>,
    pub(crate) ty: Type,
    pub(crate) path: Path,
    /// Its size, when it is known without the path.
    pub(crate) size: Option<Estimate>,
}

/// The target and arguments of a call, with the cost of each argument.
struct Given<'e> {
    target: Option<Argument<'e>>,
    args: Vec<Argument<'e>>,
    costs: Vec<Estimate>,
}

/// Returns the estimated cost of a checked expression.
pub(crate) fn estimate(env: &Environment, checked: &Checked) -> Estimate {
    let mut estimator = Estimator {
        env,
        checked,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: vec![],
    };
    estimator.cost(&checked.root)
}

pub(crate) struct Estimator<'a> {
    env: &'a Environment,
    checked: &'a Checked,
    paths: HashMap<Id, Path>,
    sizes: HashMap<Id, Estimate>,
    entries: HashMap<Id, EntrySize>,
    locals: Vec<Local>,
}

impl Estimator<'_> {
    fn cost(&mut self, expr: &Expr) -> Estimate {
        crate::stack::ensure_sufficient_stack(|| self.node_cost(expr))
    }

    fn node_cost(&mut self, expr: &Expr) -> Estimate {
        match &expr.kind {
            ExprKind::Error | ExprKind::Literal(_) => Estimate::default(),
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            ExprKind::Call { function, target, args } => {
                self.call(expr, function, target.as_deref(), args)
            }
            ExprKind::List(items) => {
                let mut sum = Estimate::fixed(LIST_CREATE_COST);
                let mut size: Option<Estimate> = None;
                for item in items {
                    sum = sum.add(self.cost(&item.expr));
                    let one = self.size_or_unknown(&item.expr);
                    size = Some(size.map_or(one, |size| size.union(one)));
                }
                let value = size.unwrap_or_default();
                let entry = EntrySize { is_list: true, key: Estimate::fixed(1), value };
                self.entries.insert(expr.id, entry);
                sum
            }
            ExprKind::Map(entries) => {
                let mut sum = Estimate::fixed(MAP_CREATE_COST);
                let mut sizes: Option<(Estimate, Estimate)> = None;
                for entry in entries {
                    sum = sum.add(self.cost(&entry.key)).add(self.cost(&entry.value));
                    let key = self.size_or_unknown(&entry.key);
                    let value = self.size_or_unknown(&entry.value);
                    sizes =
                        Some(sizes.map_or((key, value), |(k, v)| (k.union(key), v.union(value))));
                }
                let (key, value) = sizes.unwrap_or_default();
                self.entries.insert(expr.id, EntrySize { is_list: false, key, value });
                sum
            }
            ExprKind::Struct { fields, .. } => {
                fields.iter().fold(Estimate::fixed(STRUCT_CREATE_COST), |sum, field| {
                    sum.add(self.cost(&field.value))
                })
            }
            ExprKind::Comprehension(comprehension) if comprehension.is_bind() => {
                self.bind(expr, comprehension)
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn ident(&mut self, expr: &Expr, name: &Str) -> Estimate {
        let path = match self.local(name) {
            Some(local) => local.path.clone(),
            None => vec![Step::Name(name.clone())],
        };
        self.paths.insert(expr.id, path);
        // Types used as values cost one too.
        Estimate::fixed(1)
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &Str, test: bool) -> Estimate {
        if let Reference::Global(_) = self.checked.reference(expr.id) {
            let name = expr.qualified_name().unwrap_or_default();
            self.paths.insert(expr.id, vec![Step::Name(name.into())]);
            return Estimate::fixed(1);
        }
        let cost = self.cost(operand);
        if test {
            return cost;
        }
        let counts = matches!(
            self.checked.ty(operand.id),
            Type::Map(..) | Type::Object(_) | Type::Struct(_)
        );
        let mut path = self.path(operand);
        path.push(Step::Name(field.clone()));
        self.paths.insert(expr.id, path);
        if counts { cost.add(Estimate::fixed(1)) } else { cost }
    }

    fn path(&self, expr: &Expr) -> Path {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn argument<'e>(&mut self, expr: &'e Expr) -> Argument<'e> {
        let mut path = self.path(expr);
        if matches!(path.first(), Some(Step::Name(name)) if name == ACCUMULATOR) {
            path.clear();
        }
        let size = self.size(expr);
        Argument { expr: Some(expr), ty: self.checked.ty(expr.id).clone(), path, size }
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Estimate {
        if function == "dyn"
            && let [arg] = args
        {
            let cost = self.cost(arg).add(Estimate::fixed(1));
            self.copy_sizes(expr.id, arg);
            return cost;
        }
        let mut costs = vec![];
        let mut arguments = vec![];
        for arg in args {
            costs.push(self.cost(arg));
            arguments.push(self.argument(arg));
        }
        let checked = self.checked;
        let Reference::Call { function: name, namespaced, overloads } = checked.reference(expr.id)
        else {
            return Estimate::default();
        };
        let mut sum = Estimate::default();
        let target = match target.filter(|_| !namespaced) {
            Some(target) => {
                sum = self.cost(target);
                Some(self.argument(target))
            }
            None => None,
        };
        let given = Given { target, args: arguments, costs };
        let mut cost: Option<Estimate> = None;
        let mut size: Option<Estimate> = None;
        for overload in overloads {
            let one = self.overload(expr, name, overload.id, &given);
            cost = Some(cost.map_or(one.cost, |cost| cost.union(one.cost)));
            if let Some(one) = one.size {
                size = Some(size.map_or(one, |size| size.union(one)));
            }
            let step = match overload.id {
                "index_list" => Some(Step::Items),
                "index_map" => Some(Step::Values),
                _ => None,
            };
            if let (Some(step), Some(operand)) = (step, args.first()) {
                size = self.entry(operand).map(|entry| entry.value);
                let mut path = self.path(operand);
                path.push(step);
                self.paths.insert(expr.id, path);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
        sum.add(cost.unwrap_or_default())
    }

    fn overload(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        given: &Given<'_>,
    ) -> CallEstimate {
        let Given { target, args, costs } = given;
        let target = target.as_ref();
        let sum = costs.iter().fold(Estimate::default(), |sum, cost| sum.add(*cost));
        if let Some(found) = calls::library(self, function, overload, target, args) {
            return CallEstimate { cost: found.cost.add(sum), size: found.size };
        }
        match (function, &args[..], &costs[..]) {
            (operator::AND | operator::OR, _, [one, two]) => {
                let cost = Estimate { min: one.min, max: one.add(*two).max };
                return CallEstimate { cost, size: None };
            }
            (operator::CONDITIONAL, [_, yes, no], [test, yes_cost, no_cost]) => {
                if let (Some(yes), Some(no)) = (yes.expr, no.expr) {
                    self.union_entries(expr.id, yes, no);
                }
                let size = yes.size_or_unknown().union(no.size_or_unknown());
                let cost = test.add(yes_cost.union(*no_cost));
                return CallEstimate { cost, size: Some(size) };
            }
            (operator::ADD, [one, two], _) => {
                if let (Some(one), Some(two)) = (one.expr, two.expr)
                    && matches!(overload, "add_string" | "add_bytes" | "add_list")
                {
                    self.union_entries(expr.id, one, two);
                }
            }
            _ => {}
        }
        let found = calls::standard(overload, target, args);
        CallEstimate { cost: found.cost.add(sum), size: found.size }
    }

    fn union_entries(&mut self, id: Id, one: &Expr, two: &Expr) {
        if let (Some(one), Some(two)) = (self.entry(one), self.entry(two)) {
            let entry = EntrySize {
                is_list: one.is_list,
                key: one.key.union(two.key),
                value: one.value.union(two.value),
            };
            self.entries.insert(id, entry);
        }
    }

    fn copy_sizes(&mut self, id: Id, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(id, size);
        }
        if let Some(entry) = self.entry(from) {
            self.entries.insert(id, entry);
        }
    }

    fn bind(&mut self, expr: &Expr, comprehension: &Comprehension) -> Estimate {
        let cost = self.cost(&comprehension.range).add(self.cost(&comprehension.init));
        self.push_value(&comprehension.accumulator, &comprehension.init);
        let cost = cost.add(self.cost(&comprehension.result));
        self.copy_sizes(expr.id, &comprehension.result);
        self.locals.pop();
        cost
    }

    fn push_value(&mut self, name: &Str, value: &Expr) {
        let local = Local {
            name: name.clone(),
            path: self.path(value),
            size: self.size(value),
            entry: self.entry(value),
        };
        self.locals.push(local);
    }

    fn comprehension(&mut self, expr: &Expr, comprehension: &Comprehension) -> Estimate {
        let mut sum = self.cost(&comprehension.range).add(self.cost(&comprehension.init));
        self.push_value(&comprehension.accumulator, &comprehension.init);
        let mark = self.locals.len();
        self.push_variables(comprehension);
        let condition = self.cost(&comprehension.condition);
        let step = self.cost(&comprehension.step);
        self.locals.truncate(mark);
        sum = sum.add(self.cost(&comprehension.result));
        self.locals.pop();
        let count = self.size_or_unknown(&comprehension.range);
        sum = sum.add(count.multiply(step.add(condition)));
        match comprehension.init.kind {
            ExprKind::Literal(_) => {
                if let Some(size) = self.size(&comprehension.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            ExprKind::List(_) | ExprKind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(entry) = self.entry(&comprehension.step) {
                    self.entries.insert(expr.id, entry);
                }
            }
            _ => {}
        }
        sum
    }

    fn push_variables(&mut self, comprehension: &Comprehension) {
        let entry = self.entry(&comprehension.range);
        let is_list = match entry {
            Some(entry) => entry.is_list,
            None => matches!(self.checked.ty(comprehension.range.id), Type::List(_)),
        };
        let path = self.path(&comprehension.range);
        let local = |name: &Str, step: Step, size: Option<Estimate>| {
            let mut path = path.clone();
            path.push(step);
            Local { name: name.clone(), path, size, entry: None }
        };
        let key = entry.map(|entry| entry.key);
        let value = entry.map(|entry| entry.value);
        match &comprehension.second {
            Some(second) => {
                let (keys, values) =
                    if is_list { (Step::Indices, Step::Items) } else { (Step::Keys, Step::Values) };
                let pair = [local(&comprehension.first, keys, key), local(second, values, value)];
                self.locals.extend(pair);
            }
            None if is_list => {
                let local = local(&comprehension.first, Step::Items, value);
                self.locals.push(local);
            }
            None => {
                let local = local(&comprehension.first, Step::Keys, key);
                self.locals.push(local);
            }
        }
        debug_assert!(comprehension.first != UNUSED);
    }

    fn entry(&self, expr: &Expr) -> Option<EntrySize> {
        if let Some(entry) = self.entries.get(&expr.id) {
            return Some(*entry);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.entry),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Estimate {
        self.size(expr).unwrap_or(Estimate::UNKNOWN)
    }

    /// Returns the size of a node, if it is known.
    fn size(&mut self, expr: &Expr) -> Option<Estimate> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(size);
        }
        if let Some(size) = self.decl_type_size(&self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if self.checked.ty(expr.id).is_scalar() {
            return Some(Estimate::fixed(1));
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    /// Returns the size that the schema declares at a path.
    pub(crate) fn decl_type_size(&self, path: &[Step]) -> Option<Estimate> {
        let (_, rest) = path.split_first()?;
        let mut decl_type: &DeclType = self.env.root()?;
        for (at, step) in rest.iter().enumerate() {
            decl_type = match (step, &decl_type.shape) {
                (Step::Items, Shape::List(items, _)) => items,
                (Step::Values, Shape::Map(values)) => values,
                (Step::Items, Shape::Map(values)) => values,
                (Step::Values, Shape::List(items, _)) => items,
                // Map keys have no declared length.
                (Step::Keys, Shape::Map(_)) if at + 1 == rest.len() => {
                    return Some(Estimate::default());
                }
                (Step::Name(name), Shape::Object(object)) => &object.field(name)?.decl_type,
                (Step::Name(_), Shape::Map(values)) if is_any(values) => values,
                _ => return None,
            };
        }
        Some(Estimate { min: 0, max: decl_type.size_max })
    }
}

/// Whether values are of type `any`.
fn is_any(decl_type: &DeclType) -> bool {
    matches!(decl_type.shape, Shape::CheckedAs(Type::Any))
}

impl Argument<'_> {
    /// Returns the size, or the unknown range.
    pub(crate) fn size_or_unknown(&self) -> Estimate {
        self.size.unwrap_or(Estimate::UNKNOWN)
    }
}

/// Returns the size of a literal.
fn literal_size(expr: &Expr) -> Option<Estimate> {
    let size = match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count() as u64,
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        ExprKind::Literal(_) => 1,
        ExprKind::List(items) => items.len() as u64,
        ExprKind::Map(entries) => entries.len() as u64,
        _ => return None,
    };
    Some(Estimate::fixed(size))
}
