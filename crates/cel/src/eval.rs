//! Evaluates a [`Program`] and counts the cost as upstream does.

mod activation;

pub use activation::{Activation, CompositedVariable, CompositedVariables};

use crate::equality::{compare, equal};
use crate::functions::maps::insert;
use crate::meter;
use crate::pattern::Pattern;
use crate::program::{
    BindNode, Call, ComprehensionNode, Index, MapEntry, Node, Program, Relation, Select, StructNode,
};
use crate::runtime_cost::{CallCost, equality_cost};
use crate::value::{EvalError, EvalResult, Key, Map, OwnedMap, Text, Val};
use std::sync::Arc;

/// The per-call cost limit of one expression.
pub const EXPRESSION_COST_MAX: u64 = 1_000_000;

/// The cost budget of all validation rules of one object, and of all admission policies of one
/// request.
pub const OBJECT_COST_MAX: u64 = 10_000_000;

/// The cost budget of the match conditions of one webhook or policy.
pub const MATCH_CONDITIONS_COST_MAX: u64 = 2_500_000;

/// Evaluation checks the remaining stack every so many levels.
const LEVELS_BETWEEN_STACK_CHECKS: u32 = 8;

/// The limits of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum cost.
    pub cost_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { cost_max: EXPRESSION_COST_MAX }
    }
}

/// The result of an evaluation and its cost.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The value or the error.
    pub result: Result<Val<'a>, EvalError>,
    /// The cost in upstream's cost units.
    pub cost: u64,
}

impl Program {
    /// Evaluates the program with variables in the order in which the environment declares them.
    /// Reading a variable that is `None` is an error.
    pub fn evaluate<'a>(
        &'a self,
        variables: &'a [Option<Val<'a>>],
        limits: &Limits,
    ) -> Outcome<'a> {
        forget();
        meter::begin(0);
        let mut evaluation = Evaluation::new(self, variables, None, limits);
        let result = evaluation.eval(&self.root);
        forget();
        Outcome { result, cost: evaluation.cost() }
    }

    /// Evaluates the program with the variables of an activation, which counts the cost of
    /// composited variables.
    pub fn evaluate_in<'a>(&'a self, activation: &Activation<'a>, limits: &Limits) -> Outcome<'a> {
        forget();
        meter::begin(activation.bytes());
        let mut evaluation = Evaluation::new(self, activation.given, Some(activation), limits);
        let result = evaluation.eval(&self.root);
        forget();
        Outcome { result, cost: evaluation.cost() }
    }

    /// Evaluates a composited variable during another evaluation. It shares that evaluation's
    /// limits of work and memory.
    pub(crate) fn evaluate_nested<'a>(&'a self, activation: &Activation<'a>) -> Outcome<'a> {
        let limits = Limits::default();
        let mut evaluation = Evaluation::new(self, activation.given, Some(activation), &limits);
        let result = evaluation.eval(&self.root);
        Outcome { result, cost: evaluation.cost() }
    }
}

/// Drops what an evaluation remembers about texts and patterns.
#[inline]
fn forget() {
    if meter::take_remembers() {
        crate::char_index::forget();
        crate::pattern::forget();
    }
}

/// The value of a comprehension variable.
enum Slot<'a> {
    Set(EvalResult<'a>),
    /// Evaluated on first read.
    Lazy(&'a Node),
}

pub(crate) struct Evaluation<'a, 'l> {
    program: &'a Program,
    variables: &'a [Option<Val<'a>>],
    activation: Option<&'l Activation<'a>>,
    limits: &'l Limits,
    slots: Vec<Slot<'a>>,
    cost: u64,
    /// Current nesting depth in the program.
    depth: u32,
}

impl<'a, 'l> Evaluation<'a, 'l> {
    pub(crate) fn new(
        program: &'a Program,
        variables: &'a [Option<Val<'a>>],
        activation: Option<&'l Activation<'a>>,
        limits: &'l Limits,
    ) -> Self {
        let slots = (0..program.slots).map(|_| Slot::Set(Ok(Val::Null))).collect();
        Evaluation { program, variables, activation, limits, slots, cost: 0, depth: 0 }
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    #[inline]
    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limits.cost_max {
            return Err(EvalError::cost_limit());
        }
        Ok(())
    }

    /// Evaluates a node. An error only ends the evaluation if the result depends on it.
    #[inline]
    pub(crate) fn eval(&mut self, node: &'a Node) -> EvalResult<'a> {
        match node {
            Node::Const(val) => return Ok(borrow(val)),
            Node::Variable { at, cost } => return self.variable(*at, *cost),
            _ => {}
        }
        self.depth += 1;
        let result = if self.depth.is_multiple_of(LEVELS_BETWEEN_STACK_CHECKS) {
            crate::stack::ensure_sufficient_stack(|| self.eval_node(node))
        } else {
            self.eval_node(node)
        };
        self.depth -= 1;
        result
    }

    fn eval_node(&mut self, node: &'a Node) -> EvalResult<'a> {
        match node {
            Node::Const(val) => Ok(borrow(val)),
            Node::Variable { at, cost } => self.variable(*at, *cost),
            Node::Local { slot, cost } => {
                self.charge((*cost).into())?;
                self.local(*slot)
            }
            Node::Select(select) => self.select(select),
            Node::Has(select) => self.has(select),
            Node::Index(index) => self.index(index),
            Node::And(pair) => self.logical(pair, false),
            Node::Or(pair) => self.logical(pair, true),
            Node::Not(operand) => match self.eval(operand)? {
                Val::Bool(flag) => {
                    self.charge(1)?;
                    Ok(Val::Bool(!flag))
                }
                _ => Err(EvalError::no_overload()),
            },
            Node::NotStrictlyFalse(operand) => self.not_strictly_false(operand),
            Node::Conditional(parts) => self.conditional(parts),
            Node::Equal { operands, negate } => self.equal(operands, *negate),
            Node::Compare { operands, relation, cost } => self.compare(operands, *relation, *cost),
            Node::In { operands, cost } => self.membership(operands, *cost),
            Node::OptionalOr { operands, unwrap } => match (self.eval(&operands.0)?, unwrap) {
                (Val::Optional(Some(val)), true) => Ok((*val).clone()),
                (val @ Val::Optional(Some(_)), false) => Ok(val),
                (Val::Optional(None), _) => self.eval(&operands.1),
                _ => Err(EvalError::no_overload()),
            },
            Node::Call(call) => self.call(call),
            Node::Matches { target, pattern, pattern_chars } => {
                let target = self.eval(target)?;
                let Val::String(text) = &target else { return Err(EvalError::no_overload()) };
                self.charge(crate::runtime_cost::regex_cost(target.size(), *pattern_chars))?;
                pattern.is_match(text.as_str()).map(Val::Bool)
            }
            Node::Find { call, pattern } => self.find(call, pattern),
            Node::List { items } => self.list(items),
            Node::Map { entries } => self.map(entries),
            Node::Struct(literal) => self.struct_literal(literal),
            Node::Comprehension(comprehension) => self.comprehension(comprehension),
            Node::Bind(bind) => self.bind(bind),
            Node::Append { slot, item, list_cost } => self.append(*slot, item, *list_cost),
            Node::Insert { slot, call } => self.insert(*slot, call),
        }
    }

    #[inline]
    fn variable(&mut self, at: usize, cost: u8) -> EvalResult<'a> {
        self.charge(cost.into())?;
        match self.variables.get(at) {
            Some(Some(val)) => Ok(val.clone()),
            _ => {
                let name = self.program.variables.get(at).map_or("", |name| name.as_str());
                Err(EvalError::new(format!("no such attribute(s): {name}")))
            }
        }
    }

    fn local(&mut self, slot: usize) -> EvalResult<'a> {
        match &self.slots[slot] {
            Slot::Set(val) => val.clone(),
            Slot::Lazy(node) => {
                let node = *node;
                let val = self.eval(node);
                self.slots[slot] = Slot::Set(val.clone());
                val
            }
        }
    }

    fn select(&mut self, select: &'a Select) -> EvalResult<'a> {
        // The most common case: a field of a variable. It avoids cloning the variable.
        if let Node::Variable { at, cost } = &select.operand
            && let Some(Some(Val::Map(map))) = self.variables.get(*at)
            && !select.optional
        {
            self.charge(u64::from(*cost) + u64::from(select.cost))?;
            return map.field(&select.field).unwrap_or_else(|| Err(no_such_key(&select.field)));
        }
        if let Some((computed, cost)) = self.computed(select) {
            self.charge(cost + u64::from(select.cost))?;
            let value = computed.unwrap_or_else(|| Err(no_such_key(&select.field)))?;
            return Ok(if select.optional { wrap(value) } else { value });
        }
        let operand = self.eval(&select.operand)?;
        self.charge(select.cost.into())?;
        let (map, optional) = match operand {
            Val::Map(map) => (map, select.optional),
            Val::Optional(None) => return Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => match &*inner {
                Val::Map(map) => (map.clone(), true),
                // Upstream: an optional selection on a value without fields is none.
                _ => return Ok(Val::Optional(None)),
            },
            Val::List(_) => return Err(unsupported_index(&Val::text(select.field.clone()))),
            _ if select.optional => return Ok(Val::Optional(None)),
            _ => return Err(no_such_key(&select.field)),
        };
        match (map.field(&select.field), optional) {
            (Some(val), false) => val,
            (Some(val), true) => val.map(wrap),
            (None, true) => Ok(Val::Optional(None)),
            (None, false) => Err(no_such_key(&select.field)),
        }
    }

    /// Returns the composited variable that is selected, if it is one, and the cost of the variable
    /// that holds it.
    fn computed(&self, select: &Select) -> Option<(Option<EvalResult<'a>>, u64)> {
        let Node::Variable { at, cost } = &select.operand else { return None };
        let activation = self.activation.filter(|activation| activation.computes(*at))?;
        Some((activation.field(&select.field), u64::from(*cost)))
    }

    fn has(&mut self, select: &'a Select) -> EvalResult<'a> {
        if let Some((computed, cost)) = self.computed(select) {
            self.charge(cost + u64::from(select.cost))?;
            return Ok(Val::Bool(computed.is_some()));
        }
        let operand = self.eval(&select.operand)?;
        self.charge(select.cost.into())?;
        let map = match &operand {
            Val::Map(map) => map,
            Val::Optional(Some(inner)) => match &**inner {
                Val::Map(map) => map,
                _ => return Ok(Val::Bool(false)),
            },
            // Upstream: a value without fields has no field.
            _ => return Ok(Val::Bool(false)),
        };
        match map.field(&select.field) {
            Some(Ok(Val::Optional(inner))) => Ok(Val::Bool(inner.is_some())),
            other => Ok(Val::Bool(other.is_some())),
        }
    }

    fn index(&mut self, index: &'a Index) -> EvalResult<'a> {
        let operand = self.eval(&index.operand)?;
        let key = self.eval(&index.key)?;
        self.charge(index.cost.into())?;
        let (target, optional) = match operand {
            Val::Optional(None) => return Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, index.optional),
        };
        match (find(&target, &key)?, optional) {
            (Some(val), false) => Ok(val),
            (Some(val), true) => Ok(wrap(val)),
            (None, true) => Ok(Val::Optional(None)),
            (None, false) => Err(no_such_element(&target, &key)),
        }
    }

    /// `&&` and `||`: an operand that decides the result hides an error of the other.
    fn logical(&mut self, pair: &'a (Node, Node), decisive: bool) -> EvalResult<'a> {
        let left = self.eval(&pair.0);
        match &left {
            Ok(Val::Bool(flag)) if *flag == decisive => return left,
            Err(error) if error.is_cancelled() => return left,
            _ => {}
        }
        let right = self.eval(&pair.1);
        match (left, right) {
            (_, Err(error)) if error.is_cancelled() => Err(error),
            (_, Ok(Val::Bool(flag))) if flag == decisive => Ok(Val::Bool(decisive)),
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!decisive)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Err(EvalError::no_overload()),
        }
    }

    fn not_strictly_false(&mut self, operand: &'a Node) -> EvalResult<'a> {
        let val = self.eval(operand);
        if let Err(error) = &val
            && error.is_cancelled()
        {
            return val;
        }
        self.charge(1)?;
        Ok(Val::Bool(!matches!(val, Ok(Val::Bool(false)))))
    }

    fn conditional(&mut self, parts: &'a (Node, Node, Node)) -> EvalResult<'a> {
        match self.eval(&parts.0)? {
            Val::Bool(true) => self.eval(&parts.1),
            Val::Bool(false) => self.eval(&parts.2),
            _ => Err(EvalError::no_overload()),
        }
    }

    fn equal(&mut self, operands: &'a (Node, Node), negate: bool) -> EvalResult<'a> {
        let left = self.eval(&operands.0);
        let right = self.eval(&operands.1);
        let (left, right) = both(left, right)?;
        self.charge(equality_cost(&left, &right, negate))?;
        Ok(Val::Bool(equal(&left, &right)? != negate))
    }

    fn compare(
        &mut self,
        operands: &'a (Node, Node),
        relation: Relation,
        cost: CallCost,
    ) -> EvalResult<'a> {
        let left = self.eval(&operands.0);
        let right = self.eval(&operands.1);
        let (left, right) = both(left, right)?;
        if let (Val::Int(left), Val::Int(right)) = (&left, &right) {
            self.charge(1)?;
            return Ok(Val::Bool(relation.holds(left.cmp(right))));
        }
        let args = [left, right];
        self.charge(cost.before_call(&args, self.remaining_cost()))?;
        if matches!(
            args[0],
            Val::Null
                | Val::List(_)
                | Val::Map(_)
                | Val::Type(_)
                | Val::Optional(_)
                | Val::Opaque(_)
        ) {
            return Err(EvalError::no_overload_of(relation.function()));
        }
        match compare(&args[0], &args[1])? {
            Some(order) => Ok(Val::Bool(relation.holds(order))),
            None => Err(EvalError::new("NaN values cannot be ordered")),
        }
    }

    fn membership(&mut self, operands: &'a (Node, Node), cost: CallCost) -> EvalResult<'a> {
        let left = self.eval(&operands.0);
        let right = self.eval(&operands.1);
        let (left, right) = both(left, right)?;
        let args = [left, right];
        self.charge(cost.before_call(&args, self.remaining_cost()))?;
        match &args[1] {
            Val::List(list) => {
                for item in list.iter() {
                    meter::work(meter::ITEM_WORK / 4)?;
                    if equal(&args[0], &item?)? {
                        return Ok(Val::Bool(true));
                    }
                }
                Ok(Val::Bool(false))
            }
            Val::Map(map) => Ok(Val::Bool(map.contains(&args[0]))),
            _ => Err(EvalError::no_overload()),
        }
    }

    fn remaining_cost(&self) -> u64 {
        self.limits.cost_max.saturating_sub(self.cost)
    }

    fn call(&mut self, call: &'a Call) -> EvalResult<'a> {
        let mut args: [Val<'a>; 4] = [Val::Null, Val::Null, Val::Null, Val::Null];
        let args = self.args(call, &mut args)?;
        let result = (call.implementation)(args)?;
        self.charge(call.cost.after_call(&result))?;
        Ok(result)
    }

    /// Calls `find` or `findAll` with a constant pattern.
    fn find(&mut self, call: &'a Call, pattern: &'a Pattern) -> EvalResult<'a> {
        let mut args: [Val<'a>; 4] = [Val::Null, Val::Null, Val::Null, Val::Null];
        let args = self.args(call, &mut args)?;
        match call.is_find_all {
            true => crate::functions::regex::find_all(args, pattern),
            false => crate::functions::regex::find(args, pattern),
        }
    }

    /// Evaluates the arguments of a call and charges what is known before the call.
    fn args<'v>(
        &mut self,
        call: &'a Call,
        args: &'v mut [Val<'a>; 4],
    ) -> Result<&'v [Val<'a>], EvalError> {
        let count = call.args.len();
        let mut failed = None;
        for (at, arg) in call.args.iter().enumerate().take(args.len()) {
            match self.eval(arg) {
                Ok(val) => args[at] = val,
                Err(error) if error.is_cancelled() => return Err(error),
                // All arguments are evaluated; the first error is the result.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let args = &args[..count.min(4)];
        if call.reads_texts {
            for arg in args {
                match arg {
                    Val::String(text) => meter::read(text.as_str().len())?,
                    Val::Bytes(bytes) => meter::read(bytes.len())?,
                    _ => {}
                }
            }
        }
        self.charge(call.cost.before_call(args, self.remaining_cost()))?;
        Ok(args)
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> EvalResult<'a> {
        crate::value::make_items(items.len())?;
        let mut out = Vec::with_capacity(items.len());
        for (node, optional) in items {
            match (self.eval(node)?, optional) {
                (val, false) => out.push(val),
                (Val::Optional(Some(val)), true) => out.push((*val).clone()),
                (Val::Optional(None), true) => {}
                (other, true) => return Err(not_optional("list", &other)),
            }
        }
        self.charge(crate::runtime_cost::LIST_CREATE_COST)?;
        Val::made_list(out)
    }

    fn map(&mut self, entries: &'a [MapEntry]) -> EvalResult<'a> {
        let mut out = OwnedMap::default();
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let value = match (self.eval(&entry.value)?, entry.optional) {
                (val, false) => val,
                (Val::Optional(Some(val)), true) => (*val).clone(),
                (Val::Optional(None), true) => continue,
                (other, true) => return Err(not_optional("map", &other)),
            };
            insert(&mut out, key, value)?;
        }
        self.charge(crate::runtime_cost::MAP_CREATE_COST)?;
        out.finish()
    }

    fn struct_literal(&mut self, literal: &'a StructNode) -> EvalResult<'a> {
        let mut out = OwnedMap::of_type(literal.name.clone());
        for (name, node, optional) in &literal.fields {
            let value = match (self.eval(node)?, optional) {
                (val, false) => val,
                (Val::Optional(Some(val)), true) => (*val).clone(),
                (Val::Optional(None), true) => continue,
                (other, true) => return Err(not_optional("struct", &other)),
            };
            let key = Val::String(Text::Borrowed(name));
            OwnedMap::make_entry(&key)?;
            out.set(Key::String(name.clone()), key, value);
        }
        self.charge(crate::runtime_cost::STRUCT_CREATE_COST)?;
        out.finish()
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionNode) -> EvalResult<'a> {
        let range = self.eval(&comprehension.range)?;
        self.slots[comprehension.slot] = Slot::Lazy(&comprehension.init);
        match &range {
            Val::List(list) => {
                for at in 0..list.len() {
                    let Some(item) = list.get(at) else { break };
                    let index = Ok(Val::Int(at as i64));
                    let (first, second) = if comprehension.two_variables {
                        (index, Some(item))
                    } else {
                        (item, None)
                    };
                    if !self.step(comprehension, first, second)? {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                for key in map.keys() {
                    let second = comprehension.two_variables.then(|| map.find(&key)).flatten();
                    if !self.step(comprehension, Ok(key), second)? {
                        break;
                    }
                }
            }
            other => {
                let name = go_name(other);
                return Err(EvalError::new(format!("got '{name}', expected iterable type")));
            }
        }
        self.eval(&comprehension.result)
    }

    /// Runs one iteration of a comprehension. Returns false when it ends.
    fn step(
        &mut self,
        comprehension: &'a ComprehensionNode,
        first: EvalResult<'a>,
        second: Option<EvalResult<'a>>,
    ) -> Result<bool, EvalError> {
        meter::work(comprehension.step_work)?;
        self.slots[comprehension.slot + 1] = Slot::Set(first);
        if let Some(second) = second {
            self.slots[comprehension.slot + 2] = Slot::Set(second);
        }
        match self.eval(&comprehension.condition) {
            Ok(Val::Bool(false)) => return Ok(false),
            Err(error) if error.is_cancelled() => return Err(error),
            _ => {}
        }
        let stepped = self.eval(&comprehension.step);
        if let Err(error) = &stepped
            && error.is_cancelled()
        {
            return Err(error.clone());
        }
        self.slots[comprehension.slot] = Slot::Set(stepped);
        Ok(true)
    }

    fn bind(&mut self, bind: &'a BindNode) -> EvalResult<'a> {
        // Upstream iterates over an empty list here, which is a constant and costs nothing.
        self.slots[bind.slot] = Slot::Lazy(&bind.init);
        self.eval(&bind.result)
    }

    fn append(&mut self, slot: usize, item: &'a Node, list_cost: u64) -> EvalResult<'a> {
        self.charge(1)?;
        if matches!(self.slots[slot], Slot::Lazy(_)) {
            self.local(slot)?;
        }
        let item = self.eval(item);
        if let Err(error) = &item
            && error.is_cancelled()
        {
            return item;
        }
        let taken = std::mem::replace(&mut self.slots[slot], Slot::Set(Ok(Val::Null)));
        let Slot::Set(list) = taken else { return Err(EvalError::no_overload()) };
        self.charge(list_cost + 1)?;
        let (list, item) = both(list, item)?;
        let Val::List(list) = list else { return Err(EvalError::no_overload()) };
        crate::value::make_items(1)?;
        list.append(item).map(Val::List)
    }

    /// Adds an entry to the map in a slot, in place: the macro that calls this discards the map.
    fn insert(&mut self, slot: usize, call: &'a Call) -> EvalResult<'a> {
        let mut args: [Val<'a>; 4] = [Val::Null, Val::Null, Val::Null, Val::Null];
        self.args(call, &mut args)?;
        self.slots[slot] = Slot::Set(Ok(Val::Null));
        let [map, key, value, _] = args;
        let Val::Map(map) = map else { return Err(EvalError::no_overload()) };
        let mut map = match map {
            Map::Owned(map) => map,
            other => Arc::new(crate::functions::maps::copy(&other)?),
        };
        let entries = Arc::make_mut(&mut map);
        match (call.args.len(), key) {
            (2, Val::Map(added)) => crate::functions::maps::insert_all(entries, &added)?,
            (3, key) => insert(entries, key, value)?,
            _ => return Err(EvalError::no_overload()),
        }
        entries.check_depth()?;
        Ok(Val::Map(Map::Owned(map)))
    }
}

/// Borrows a constant, so that its text is not copied.
#[inline]
fn borrow<'a>(val: &'a Val<'static>) -> Val<'a> {
    match val {
        Val::Int(number) => Val::Int(*number),
        Val::Bool(flag) => Val::Bool(*flag),
        Val::String(text) => Val::String(Text::Borrowed(text.as_str())),
        other => other.clone(),
    }
}

#[inline]
fn both<'a>(left: EvalResult<'a>, right: EvalResult<'a>) -> Result<(Val<'a>, Val<'a>), EvalError> {
    match (left, right) {
        (Ok(left), Ok(right)) => Ok((left, right)),
        (_, Err(error)) if error.is_cancelled() => Err(error),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

fn wrap(val: Val<'_>) -> Val<'_> {
    match val {
        Val::Optional(_) => val,
        other => Val::some(other),
    }
}

#[cold]
fn no_such_key(key: &str) -> EvalError {
    EvalError::new(format!("no such key: {key}"))
}

/// Returns the Go type of a value, which one of cel-go's messages shows.
pub(crate) fn go_name(val: &Val<'_>) -> &'static str {
    match val {
        Val::Null => "types.Null",
        Val::Bool(_) => "types.Bool",
        Val::Int(_) => "types.Int",
        Val::Uint(_) => "types.Uint",
        Val::Double(_) => "types.Double",
        Val::String(_) => "types.String",
        Val::Bytes(_) => "types.Bytes",
        Val::Timestamp(_) => "types.Timestamp",
        Val::Duration(_) => "types.Duration",
        Val::Type(_) => "*types.Type",
        Val::Optional(_) => "*types.Optional",
        Val::List(_) | Val::Map(_) | Val::Opaque(_) => "ref.Val",
    }
}

fn not_optional(what: &str, val: &Val<'_>) -> EvalError {
    let ty = val.ty();
    let name = ty.runtime_name();
    EvalError::new(format!(
        "cannot initialize optional {what} element from non-optional value {name}"
    ))
}

/// Returns the element at a key or an index, `None` when there is none.
fn find<'a>(target: &Val<'a>, key: &Val<'a>) -> Result<Option<Val<'a>>, EvalError> {
    match target {
        Val::List(list) => {
            let at = match key {
                Val::Int(at) => Some(*at),
                Val::Uint(at) => i64::try_from(*at).ok(),
                Val::Double(at) if at.fract() == 0.0 && at.abs() < 2_f64.powi(63) => {
                    Some(*at as i64)
                }
                Val::Double(_) => {
                    let key_text = crate::functions::convert::display(key);
                    let message = format!("unsupported index value {key_text} in list");
                    return Err(EvalError::new(message));
                }
                _ => return Err(unsupported_index(key)),
            };
            at.and_then(|at| usize::try_from(at).ok()).and_then(|at| list.get(at)).transpose()
        }
        Val::Map(map) => map.find(key).transpose(),
        _ => Ok(None),
    }
}

#[cold]
fn unsupported_index(key: &Val<'_>) -> EvalError {
    let ty = key.ty();
    EvalError::new(format!("unsupported index type '{}' in list", ty.runtime_name()))
}

#[cold]
fn no_such_element(target: &Val<'_>, key: &Val<'_>) -> EvalError {
    if let Val::String(text) = key
        && let Err(ended) = meter::read(text.as_str().len())
    {
        return ended.into();
    }
    let key_text = crate::functions::convert::display(key);
    match target {
        Val::List(_) => EvalError::new(format!("index out of bounds: {key_text}")),
        _ => no_such_key(&key_text),
    }
}
