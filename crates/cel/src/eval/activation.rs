//! [`Activation`]: the variables of the expressions of one request. Some are given, others are
//! computed by expressions (`variables.name` of admission policies).

use crate::program::Program;
use crate::value::{EvalError, EvalResult, Val};
use keelson_meta::Str;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// A variable of an admission policy, computed by an expression.
#[derive(Debug)]
pub struct CompositedVariable {
    /// The name, as in `variables.name`.
    pub name: Str,
    /// The program that computes it, or the compile error.
    pub program: Result<Program, String>,
}

/// The composited variables of a policy, in the order in which they were compiled.
#[derive(Debug, Default)]
pub struct CompositedVariables {
    list: Vec<CompositedVariable>,
    /// Indices in `list`; the last variable of a name wins.
    places: HashMap<Str, usize>,
}

impl CompositedVariables {
    /// Returns an empty set.
    pub fn new() -> Self {
        CompositedVariables::default()
    }

    /// Adds a variable.
    pub fn push(&mut self, computed: CompositedVariable) {
        self.places.insert(computed.name.clone(), self.list.len());
        self.list.push(computed);
    }

    /// Returns the number of variables.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no variables.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The variable values that several expressions share. A composited variable is evaluated once, on
/// first read.
pub struct Activation<'a> {
    /// By index in the environment.
    pub(crate) given: &'a [Option<Val<'a>>],
    computed: &'a CompositedVariables,
    /// Index of the variable whose fields are the composited variables.
    at: usize,
    /// By index in `computed`; empty before the first read.
    values: RefCell<Vec<Option<EvalResult<'a>>>>,
    cost: Cell<u64>,
    /// The bytes of `values`.
    bytes: Cell<u64>,
}

impl<'a> Activation<'a> {
    /// Creates an activation. `given` holds values by index in the environment; the fields of the
    /// variable at index `at` are the composited variables.
    pub fn new(given: &'a [Option<Val<'a>>], at: usize, computed: &'a CompositedVariables) -> Self {
        Activation {
            given,
            computed,
            at,
            values: RefCell::default(),
            cost: Cell::new(0),
            bytes: Cell::new(0),
        }
    }

    /// Returns the cost of composited variables since the last call.
    pub fn take_cost(&self) -> u64 {
        self.cost.take()
    }

    /// Returns the bytes of the values of composited variables.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Whether the fields of the variable at this index are composited variables.
    pub(crate) fn computes(&self, at: usize) -> bool {
        at == self.at
    }

    /// Returns the value of a composited variable, `None` when there is none of this name.
    pub(crate) fn field(&self, name: &str) -> Option<EvalResult<'a>> {
        let at = *self.computed.places.get(name)?;
        let mut values = self.values.borrow_mut();
        values.resize(self.computed.list.len(), None);
        if let Some(known) = &values[at] {
            return Some(known.clone());
        }
        // A variable whose expression reads an earlier variable of the same name would read itself.
        let cycle = EvalError::new(format!("composited variable \"{name}\" reads itself"));
        values[at] = Some(Err(cycle));
        drop(values);
        let value = self.compute(&self.computed.list[at]);
        self.values.borrow_mut()[at] = Some(value.clone());
        Some(value)
    }

    fn compute(&self, computed: &'a CompositedVariable) -> EvalResult<'a> {
        let name = &computed.name;
        let program = computed.program.as_ref().map_err(|error| {
            EvalError::new(format!("composited variable \"{name}\" fails to compile: {error}"))
        })?;
        let before = crate::meter::bytes_left();
        let retained = self.bytes.get();
        let outcome = crate::stack::ensure_sufficient_stack(|| program.evaluate_nested(self));
        let made = before.saturating_sub(crate::meter::bytes_left());
        // Contains what the variables that it reads have added.
        self.bytes.set(retained.saturating_add(made));
        self.cost.set(self.cost.get().saturating_add(outcome.cost));
        outcome.result.map_err(|error| {
            let why =
                |error: &str| format!("composited variable \"{name}\" fails to evaluate: {error}");
            error.within(why)
        })
    }
}
