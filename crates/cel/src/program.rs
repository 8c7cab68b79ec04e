//! [`Program`]: a compiled expression, ready for evaluation.

use crate::functions::Implementation;
use crate::pattern::Pattern;
use crate::runtime_cost::CallCost;
use crate::types::Type;
use crate::value::Val;
use keelson_meta::Str;
use std::cmp::Ordering;
use std::sync::Arc;

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    pub(crate) root: Node,
    /// Maximum number of comprehension variables that exist at once.
    pub(crate) slots: usize,
    pub(crate) variables: Vec<Str>,
    pub(crate) result: Type,
}

impl Program {
    /// Returns the type of the expression.
    pub fn result_type(&self) -> &Type {
        &self.result
    }
}

/// An ordering comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Relation {
    pub(crate) fn function(self) -> &'static str {
        match self {
            Relation::Less => "_<_",
            Relation::LessEqual => "_<=_",
            Relation::Greater => "_>_",
            Relation::GreaterEqual => "_>=_",
        }
    }

    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            Relation::Less => order.is_lt(),
            Relation::LessEqual => order.is_le(),
            Relation::Greater => order.is_gt(),
            Relation::GreaterEqual => order.is_ge(),
        }
    }
}

/// A node of the evaluation tree. `cost` is the cost of the node itself.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Val<'static>),
    Variable {
        at: usize,
        cost: u8,
    },
    Local {
        slot: usize,
        cost: u8,
    },
    Select(Box<Select>),
    /// `has(operand.field)`.
    Has(Box<Select>),
    Index(Box<Index>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Not(Box<Node>),
    /// False only for `false`; an error counts as true.
    NotStrictlyFalse(Box<Node>),
    Conditional(Box<(Node, Node, Node)>),
    Equal {
        operands: Box<(Node, Node)>,
        negate: bool,
    },
    Compare {
        operands: Box<(Node, Node)>,
        relation: Relation,
        cost: CallCost,
    },
    In {
        operands: Box<(Node, Node)>,
        cost: CallCost,
    },
    /// `or` and `orValue` of optionals. Costs nothing; the second operand is evaluated only if
    /// needed.
    OptionalOr {
        operands: Box<(Node, Node)>,
        unwrap: bool,
    },
    Call(Box<Call>),
    /// `target.matches(pattern)` with a constant pattern.
    Matches {
        target: Box<Node>,
        pattern: Arc<Pattern>,
        pattern_chars: u64,
    },
    /// `target.find(pattern)` or `findAll` with a constant pattern.
    Find {
        call: Box<Call>,
        pattern: Arc<Pattern>,
    },
    List {
        items: Vec<(Node, bool)>,
    },
    Map {
        entries: Vec<MapEntry>,
    },
    Struct(Box<StructNode>),
    Comprehension(Box<ComprehensionNode>),
    /// A named value, evaluated on first read.
    Bind(Box<BindNode>),
    /// `accumulator + [item]`, in place.
    Append {
        slot: usize,
        item: Box<Node>,
        /// Cost of the literal `[item]`.
        list_cost: u64,
    },
    /// `cel.@mapInsert(accumulator, ...)`, in place.
    Insert {
        slot: usize,
        call: Box<Call>,
    },
}

#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) operand: Node,
    pub(crate) field: Str,
    pub(crate) optional: bool,
    pub(crate) cost: u8,
}

#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) operand: Node,
    pub(crate) key: Node,
    pub(crate) optional: bool,
    pub(crate) cost: u8,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) implementation: Implementation,
    pub(crate) args: Vec<Node>,
    pub(crate) cost: CallCost,
    /// Whether the time that it takes depends on the length of its texts.
    pub(crate) reads_texts: bool,
    /// Whether it is `findAll`.
    pub(crate) is_find_all: bool,
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct StructNode {
    pub(crate) name: Str,
    /// Name, value, and whether the value is an optional to unwrap.
    pub(crate) fields: Vec<(Str, Node, bool)>,
}

#[derive(Debug)]
pub(crate) struct ComprehensionNode {
    pub(crate) range: Node,
    /// The slot of the accumulator; the iteration variables have the next slots.
    pub(crate) slot: usize,
    pub(crate) two_variables: bool,
    /// The work of one step, without that of the functions it calls.
    pub(crate) step_work: u64,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

#[derive(Debug)]
pub(crate) struct BindNode {
    pub(crate) slot: usize,
    pub(crate) init: Node,
    pub(crate) result: Node,
}
