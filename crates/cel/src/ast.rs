//! The syntax tree of an expression, after macro expansion.

use crate::literal::Literal;
use keelson_meta::Str;

/// The number of a node; offsets, types and overloads are looked up by it.
pub(crate) type Id = u32;

/// The function names of operators.
pub(crate) mod operator {
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const EQUAL: &str = "_==_";
    pub(crate) const NOT_EQUAL: &str = "_!=_";
    pub(crate) const IN: &str = "@in";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPTIONAL_INDEX: &str = "_[?_]";
    pub(crate) const OPTIONAL_SELECT: &str = "_?._";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) id: Id,
    pub(crate) kind: ExprKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// Takes the place of an expression with a syntax error.
    Error,
    Literal(Literal),
    Ident(Str),
    Select {
        operand: Box<Expr>,
        field: Str,
        /// Whether this is `has(operand.field)`.
        test: bool,
    },
    Call {
        function: Str,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List(Vec<Item>),
    Map(Vec<Entry>),
    Struct {
        name: Str,
        fields: Vec<Field>,
    },
    Comprehension(Box<Comprehension>),
}

/// An element of a list literal.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) expr: Expr,
    pub(crate) optional: bool,
}

/// An entry of a map literal.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A field of a struct literal.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) id: Id,
    pub(crate) name: Str,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A comprehension: the expansion of macros such as `all` and `map`.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    /// The variable of the element of a list or the key of a map. With `second`: the index of a
    /// list.
    pub(crate) first: Str,
    /// The variable of the element of a list or the value of a map, in macros with two variables.
    pub(crate) second: Option<Str>,
    pub(crate) accumulator: Str,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

/// The name of the accumulator variable of macros.
pub(crate) const ACCUMULATOR: &str = "@result";

/// The iteration variable of `cel.bind` and `optMap`. No expression can use this name.
pub(crate) const UNUSED: &str = "#unused";

impl Comprehension {
    /// Whether this is the expansion of `cel.bind` or `optMap`, which names a value and iterates
    /// over nothing.
    pub(crate) fn is_bind(&self) -> bool {
        matches!(&self.range.kind, ExprKind::List(items) if items.is_empty())
            && matches!(self.condition.kind, ExprKind::Literal(Literal::Bool(false)))
            && self.accumulator != ACCUMULATOR
    }
}

impl Expr {
    /// Returns the number of nodes. Stops counting above `max`.
    pub(crate) fn node_count(&self, max: usize) -> usize {
        let mut count = 0;
        let mut pending = vec![self];
        while let Some(expr) = pending.pop() {
            count += 1;
            if count > max {
                break;
            }
            expr.children(&mut |child| pending.push(child));
        }
        count
    }

    /// Whether the tree selects a field of a variable: `a.b`, `has(a.b)` or `a.?b`.
    pub(crate) fn selects(&self, variable: &str, field: &str) -> bool {
        let is_variable =
            |expr: &Expr| matches!(&expr.kind, ExprKind::Ident(name) if name == variable);
        let is_field = |expr: &Expr| match &expr.kind {
            ExprKind::Literal(Literal::String(text)) => **text == *field,
            _ => false,
        };
        let mut pending = vec![self];
        while let Some(expr) = pending.pop() {
            let is_selection = match &expr.kind {
                ExprKind::Select { operand, field: name, .. } => {
                    is_variable(operand) && name == field
                }
                ExprKind::Call { function, target: None, args } => {
                    function == operator::OPTIONAL_SELECT
                        && matches!(args.as_slice(), [operand, name]
                            if is_variable(operand) && is_field(name))
                }
                _ => false,
            };
            if is_selection {
                return true;
            }
            expr.children(&mut |child| pending.push(child));
        }
        false
    }

    /// Calls `visit` with each child.
    fn children<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        match &self.kind {
            ExprKind::Error | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => visit(operand),
            ExprKind::Call { target, args, .. } => {
                target.iter().for_each(|target| visit(target));
                args.iter().for_each(visit);
            }
            ExprKind::List(items) => items.iter().for_each(|item| visit(&item.expr)),
            ExprKind::Map(entries) => {
                entries.iter().for_each(|entry| {
                    visit(&entry.key);
                    visit(&entry.value);
                });
            }
            ExprKind::Struct { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
            ExprKind::Comprehension(comprehension) => {
                [
                    &comprehension.range,
                    &comprehension.init,
                    &comprehension.condition,
                    &comprehension.step,
                    &comprehension.result,
                ]
                .into_iter()
                .for_each(visit);
            }
        }
    }

    /// Returns the number of levels. Not recursive, so a deep tree cannot overflow the stack.
    pub(crate) fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut pending = vec![(self, 1)];
        while let Some((expr, depth)) = pending.pop() {
            deepest = deepest.max(depth);
            expr.children(&mut |child| pending.push((child, depth + 1)));
        }
        deepest
    }

    /// Drops the tree without recursion: the derived drop of a deep tree would overflow the stack.
    pub(crate) fn drop_iteratively(self) {
        let mut pending = vec![self];
        while let Some(expr) = pending.pop() {
            match expr.kind {
                ExprKind::Error | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
                ExprKind::Select { operand, .. } => pending.push(*operand),
                ExprKind::Call { target, args, .. } => {
                    pending.extend(target.map(|target| *target));
                    pending.extend(args);
                }
                ExprKind::List(items) => pending.extend(items.into_iter().map(|item| item.expr)),
                ExprKind::Map(entries) => {
                    pending.extend(entries.into_iter().flat_map(|entry| [entry.key, entry.value]));
                }
                ExprKind::Struct { fields, .. } => {
                    pending.extend(fields.into_iter().map(|field| field.value));
                }
                ExprKind::Comprehension(comprehension) => {
                    let Comprehension { range, init, condition, step, result, .. } = *comprehension;
                    pending.extend([range, init, condition, step, result]);
                }
            }
        }
    }

    /// Returns the name for `a.b.c`, `None` for any other expression.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.to_string()),
            ExprKind::Select { operand, field, test: false } => {
                let mut name = operand.qualified_name()?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}

/// A parsed expression: the tree and the positions of its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    pub(crate) root: Expr,
    /// The offset of each node, in characters.
    pub(crate) offsets: Vec<u32>,
}
