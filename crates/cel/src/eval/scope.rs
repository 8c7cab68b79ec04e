//! [`Scope`]: what several expressions of one request read: values that are given, and values that other
//! expressions compute (`variables.name` of admission policies).

use crate::program::Program;
use crate::value::{EvalError, Evaluated, Val};
use keelson_meta::Str;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// A variable that an expression computes.
#[derive(Debug)]
pub struct Computed {
    /// Its name, as in `variables.name`.
    pub name: Str,
    /// What computes it, or why that does not compile.
    pub program: Result<Program, String>,
}

/// The variables that expressions compute, in the order in which they were compiled.
#[derive(Debug, Default)]
pub struct ComputedSet {
    list: Vec<Computed>,
    /// Places in `list`; of two of one name the last counts.
    places: HashMap<Str, usize>,
}

impl ComputedSet {
    /// None.
    pub fn new() -> Self {
        ComputedSet::default()
    }

    /// Adds a variable.
    pub fn push(&mut self, computed: Computed) {
        self.places.insert(computed.name.clone(), self.list.len());
        self.list.push(computed);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The variables of expressions that share an order of variables. Each computed one is evaluated when it is
/// first read, and once.
pub struct Scope<'a> {
    /// By place in the environment.
    pub(crate) given: &'a [Option<Val<'a>>],
    computed: &'a ComputedSet,
    /// The place of the variable whose fields are the computed values.
    at: usize,
    /// By place; empty until one is read.
    values: RefCell<Vec<Option<Evaluated<'a>>>>,
    cost: Cell<u64>,
}

impl<'a> Scope<'a> {
    /// Values by place in the environment; the fields of the variable at `at` are the computed ones.
    pub fn new(given: &'a [Option<Val<'a>>], at: usize, computed: &'a ComputedSet) -> Self {
        Scope { given, computed, at, values: RefCell::default(), cost: Cell::new(0) }
    }

    /// What computing variables has cost since the last call.
    pub fn take_cost(&self) -> u64 {
        self.cost.take()
    }

    /// Whether the fields of the variable at this place are computed.
    pub(crate) fn computes(&self, at: usize) -> bool {
        at == self.at
    }

    /// The value of a computed variable; none when there is none of this name.
    pub(crate) fn field(&self, name: &str) -> Option<Evaluated<'a>> {
        let at = *self.computed.places.get(name)?;
        let mut values = self.values.borrow_mut();
        values.resize(self.computed.list.len(), None);
        if let Some(known) = &values[at] {
            return Some(known.clone());
        }
        // One that was named after a variable that it reads would read itself.
        let cycle = EvalError::new(format!("composited variable \"{name}\" reads itself"));
        values[at] = Some(Err(cycle));
        drop(values);
        let value = self.compute(&self.computed.list[at]);
        self.values.borrow_mut()[at] = Some(value.clone());
        Some(value)
    }

    fn compute(&self, computed: &'a Computed) -> Evaluated<'a> {
        let name = &computed.name;
        let program = computed.program.as_ref().map_err(|error| {
            EvalError::new(format!("composited variable \"{name}\" fails to compile: {error}"))
        })?;
        let outcome = crate::stack::with_room(|| program.evaluate_within(self));
        self.cost.set(self.cost.get().saturating_add(outcome.cost));
        outcome.result.map_err(|error| {
            EvalError::new(format!("composited variable \"{name}\" fails to evaluate: {error}"))
        })
    }
}
