//! The tree that an expression is parsed into, after macros were expanded.

use crate::literal::Literal;
use keelson_meta::Str;

/// The number of a node, by which its place, type and overloads are found.
pub(crate) type Id = u32;

/// Names of operators as functions.
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

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) id: Id,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Stands where a syntax error was.
    Error,
    Literal(Literal),
    Ident(Str),
    Select {
        operand: Box<Expr>,
        field: Str,
        /// From `has(operand.field)`.
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
    Fold(Box<Fold>),
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

/// A comprehension: what macros such as `all` and `map` become.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) range: Expr,
    /// The element of a list, the key of a map; with `second`, the index of a list.
    pub(crate) first: Str,
    /// The element of a list or the value of a map, when there are two variables.
    pub(crate) second: Option<Str>,
    pub(crate) accumulator: Str,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

/// The name of the variable in which macros gather their result.
pub(crate) const ACCUMULATOR: &str = "@result";

/// A variable that no expression can name: the iteration variable of `cel.bind` and `optMap`.
pub(crate) const UNUSED: &str = "#unused";

impl Fold {
    /// Whether this only gives a name to a value: nothing is iterated over.
    pub(crate) fn is_bind(&self) -> bool {
        matches!(&self.range.kind, Kind::List(items) if items.is_empty())
            && matches!(self.condition.kind, Kind::Literal(Literal::Bool(false)))
            && self.accumulator != ACCUMULATOR
    }
}

impl Expr {
    /// How many nodes there are; counting ends above `most`.
    pub(crate) fn node_count(&self, most: usize) -> usize {
        let mut count = 0;
        let mut left = vec![self];
        while let Some(expr) = left.pop() {
            count += 1;
            if count > most {
                break;
            }
            expr.children(&mut |child| left.push(child));
        }
        count
    }

    /// Whether it selects a field of a variable: `a.b`, `has(a.b)` or `a.?b`.
    pub(crate) fn selects(&self, variable: &str, field: &str) -> bool {
        let is_variable = |expr: &Expr| matches!(&expr.kind, Kind::Ident(name) if name == variable);
        let mut left = vec![self];
        while let Some(expr) = left.pop() {
            let is_selection = match &expr.kind {
                Kind::Select { operand, field: of, .. } => is_variable(operand) && of == field,
                Kind::Call { function, target: None, args } => {
                    function == operator::OPTIONAL_SELECT
                        && matches!(args.as_slice(), [operand, name] if is_variable(operand)
                            && matches!(&name.kind, Kind::Literal(Literal::String(text)) if **text == *field))
                }
                _ => false,
            };
            if is_selection {
                return true;
            }
            expr.children(&mut |child| left.push(child));
        }
        false
    }

    /// Gives each child to `visit`.
    fn children<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        match &self.kind {
            Kind::Error | Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => visit(operand),
            Kind::Call { target, args, .. } => {
                target.iter().for_each(|target| visit(target));
                args.iter().for_each(visit);
            }
            Kind::List(items) => items.iter().for_each(|item| visit(&item.expr)),
            Kind::Map(entries) => {
                entries.iter().for_each(|entry| {
                    visit(&entry.key);
                    visit(&entry.value);
                });
            }
            Kind::Struct { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
            Kind::Fold(fold) => {
                [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
                    .into_iter()
                    .for_each(visit);
            }
        }
    }

    /// Levels of nodes, counted without going down the stack.
    pub(crate) fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut left = vec![(self, 1)];
        while let Some((expr, depth)) = left.pop() {
            deepest = deepest.max(depth);
            expr.children(&mut |child| left.push((child, depth + 1)));
        }
        deepest
    }

    /// Drops the tree without going down the stack.
    pub(crate) fn dismantle(self) {
        let mut left = vec![self];
        while let Some(expr) = left.pop() {
            match expr.kind {
                Kind::Error | Kind::Literal(_) | Kind::Ident(_) => {}
                Kind::Select { operand, .. } => left.push(*operand),
                Kind::Call { target, args, .. } => {
                    left.extend(target.map(|target| *target));
                    left.extend(args);
                }
                Kind::List(items) => left.extend(items.into_iter().map(|item| item.expr)),
                Kind::Map(entries) => {
                    left.extend(entries.into_iter().flat_map(|entry| [entry.key, entry.value]));
                }
                Kind::Struct { fields, .. } => {
                    left.extend(fields.into_iter().map(|field| field.value));
                }
                Kind::Fold(fold) => {
                    let Fold { range, init, condition, step, result, .. } = *fold;
                    left.extend([range, init, condition, step, result]);
                }
            }
        }
    }

    /// `a.b.c` as a name; none for anything else.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.to_string()),
            Kind::Select { operand, field, test: false } => {
                let mut name = operand.qualified_name()?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}

/// A parsed expression: the tree, and where its nodes stand.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    pub(crate) root: Expr,
    /// By node, in characters.
    pub(crate) offsets: Vec<u32>,
}
