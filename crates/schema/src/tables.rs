//! Table responses (`as=Table`), the rows that `kubectl get` shows. A built-in kind has a list of
//! columns and a function for the cells; other kinds have the default table of name and creation
//! time.
//!
//! Objects are printed in one version per kind: core/v1 for events (events.k8s.io is supported
//! too), autoscaling/v2 for autoscalers, otherwise v1 if the kind has it.

use keelson_meta::{Object, Timestamp, Value, value};
use std::cmp::Ordering;

mod column;
mod custom;
mod row;

mod access;
mod admission;
mod autoscaling;
mod cluster;
mod core;
mod gated;
mod network;
mod pods;
mod storage;
mod workloads;

pub use column::{Column, Description};
use column::{NAME, date, literal};
pub use custom::CustomColumns;
use row::Row;

/// Prints the objects of one kind as rows.
#[derive(Debug)]
pub struct Printer {
    group: &'static str,
    kind: &'static str,
    columns: &'static [Column],
    cells: fn(&Row<'_>) -> Vec<Value>,
}

/// The printers of all kinds that have their own.
static PRINTERS: &[&[Printer]] = &[
    pods::PRINTERS,
    workloads::PRINTERS,
    autoscaling::PRINTERS,
    network::PRINTERS,
    core::PRINTERS,
    cluster::PRINTERS,
    storage::PRINTERS,
    access::PRINTERS,
    admission::PRINTERS,
    gated::PRINTERS,
];

/// The printer of all other kinds.
static DEFAULT: Printer = Printer {
    group: "",
    kind: "",
    columns: &[NAME, date("Created At", literal("When the object was created."))],
    cells: |row| vec![row.name(), row.created_at().into()],
};

/// Returns the printer of a kind. The search is linear; call it once per list.
pub fn printer(group: &str, kind: &str) -> &'static Printer {
    let mut all = PRINTERS.iter().copied().flatten();
    all.find(|printer| printer.kind == kind && printer.group == group).unwrap_or(&DEFAULT)
}

/// Returns the columns of a kind's table.
pub fn columns(group: &str, kind: &str) -> &'static [Column] {
    printer(group, kind).columns
}

/// Returns the cells of an object's row, in column order.
pub fn cells(group: &str, kind: &str, obj: &Object, now: Timestamp) -> Vec<Value> {
    printer(group, kind).cells(obj, now)
}

impl Printer {
    /// Whether the kind has the default table.
    pub fn is_default(&self) -> bool {
        self.kind.is_empty()
    }

    /// Returns the columns of the table.
    pub fn columns(&self) -> &'static [Column] {
        self.columns
    }

    /// Returns the cells of an object's row, in column order. Ages are relative to `now`.
    pub fn cells(&self, obj: &Object, now: Timestamp) -> Vec<Value> {
        (self.cells)(&Row { obj, now })
    }

    /// Returns the conditions of an object's row. Only pods that have ended have any.
    pub fn conditions(&self, obj: &Object) -> Vec<Value> {
        if (self.group, self.kind) != ("", "Pod") {
            return vec![];
        }
        pods::row_conditions(obj)
    }

    /// Whether rows are sorted differently from the list.
    pub fn sorts_rows(&self) -> bool {
        self.kind == "FlowSchema"
    }

    /// Compares rows of a table: list order, except for flow schemas, which are sorted by
    /// precedence.
    pub fn compare_rows(&self, a: &Object, b: &Object) -> Ordering {
        if !self.sorts_rows() {
            return Ordering::Equal;
        }
        let rank = |obj: &Object| obj.int_at(&["spec", "matchingPrecedence"]).unwrap_or(0);
        rank(a).cmp(&rank(b)).then_with(|| a.name().cmp(b.name()))
    }

    /// Returns `columnDefinitions` of the Table. `describe` looks up the description of a field of
    /// a type; an unknown field has an empty description.
    pub fn column_definitions<'a>(
        &self,
        describe: impl Fn(&str, &str) -> Option<&'a str>,
    ) -> Vec<Value> {
        let definition = |column: &Column| {
            let description = match column.description {
                Description::Literal(literal) => literal,
                Description::Field { type_name, field } => {
                    describe(type_name, field).unwrap_or_default()
                }
            };
            value!({
                "name": (column.name), "type": (column.kind), "format": (column.format),
                "description": description, "priority": (i64::from(column.priority))
            })
        };
        self.columns.iter().map(definition).collect()
    }
}

#[cfg(test)]
mod tests;
