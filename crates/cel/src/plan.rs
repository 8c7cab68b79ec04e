//! Plans a checked expression as a [`Program`]: resolves names to indices and calls to functions,
//! and evaluates constant subexpressions.

use crate::ast::{Comprehension, Expr, ExprKind, Item, operator};
use crate::checker::{Checked, Reference};
use crate::environment::{Environment, Global};
use crate::functions;
use crate::literal::Literal;
use crate::meter;
use crate::pattern::Patterns;
use crate::program::{
    BindNode, Call, ComprehensionNode, Index, MapEntry, Node, Program, Relation, Select, StructNode,
};
use crate::runtime_cost::{self, CallCost};
use crate::types::Type;
use crate::value::{Text, Val};
use keelson_meta::Str;
use std::sync::Arc;

/// Plans an expression. The error is that of a constant subexpression.
pub(crate) fn plan(env: &Environment, checked: &Checked) -> Result<Program, String> {
    let mut planner =
        Planner { checked, scopes: vec![], slots: 0, nodes: 0, patterns: Patterns::default() };
    let root = planner.plan(&checked.root)?;
    Ok(Program {
        root,
        slots: planner.slots,
        variables: env.variables.iter().map(|variable| variable.name.clone()).collect(),
        result: checked.ty(checked.root.id).clone(),
    })
}

struct Planner<'a> {
    checked: &'a Checked,
    /// Names and slots of the variables of the enclosing comprehensions, innermost last.
    scopes: Vec<(Str, usize)>,
    slots: usize,
    /// Number of planned nodes.
    nodes: u64,
    patterns: Patterns,
}

/// Work of evaluating one node of the body of a comprehension, apart from function calls.
const NODE_WORK: u64 = 4;

type Planned = Result<Node, String>;

/// Conversions that are evaluated at planning when their argument is a constant.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Planned {
        self.nodes += 1;
        crate::stack::ensure_sufficient_stack(|| self.plan_node(expr))
    }

    fn plan_node(&mut self, expr: &Expr) -> Planned {
        Ok(match &expr.kind {
            ExprKind::Error => return Err("expression has syntax errors".to_owned()),
            ExprKind::Literal(literal) => Node::Const(constant(literal)),
            ExprKind::Ident(name) => self.ident(expr, name)?,
            ExprKind::Select { operand, field, test } => {
                if let Reference::Global(global) = self.checked.reference(expr.id) {
                    return Ok(self.global(global));
                }
                let mut operand = self.plan(operand)?;
                let field = field.clone();
                // A presence test costs one, plus the cost of its operand.
                let cost = if *test { 1 } else { qualifier_cost(&operand) };
                if *test {
                    drop_read_cost(&mut operand);
                }
                let select = Box::new(Select { operand, field, optional: false, cost });
                if *test { Node::Has(select) } else { Node::Select(select) }
            }
            ExprKind::Call { function, target, args } => {
                self.call(expr, function, target.as_deref(), args)?
            }
            ExprKind::List(items) => self.list(items)?,
            ExprKind::Map(entries) => {
                let mut planned = vec![];
                for entry in entries {
                    let key = self.plan(&entry.key)?;
                    let value = self.plan(&entry.value)?;
                    planned.push(MapEntry { key, value, optional: entry.optional });
                }
                constant_map(planned)
            }
            ExprKind::Struct { fields, .. } => {
                let Type::Struct(name) = self.checked.ty(expr.id).clone() else {
                    return Err("no type to make a value of".to_owned());
                };
                let mut planned = vec![];
                for field in fields {
                    let value = self.plan(&field.value)?;
                    planned.push((field.name.clone(), value, field.optional));
                }
                Node::Struct(Box::new(StructNode { name, fields: planned }))
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(comprehension)?,
        })
    }

    fn ident(&self, expr: &Expr, name: &str) -> Planned {
        match self.checked.reference(expr.id) {
            Reference::Global(global) => Ok(self.global(global)),
            _ => {
                let found = self.scopes.iter().rev().find(|(known, _)| known == name);
                let slot = found.map(|(_, slot)| *slot).ok_or_else(|| format!("no {name}"))?;
                Ok(Node::Local { slot, cost: 1 })
            }
        }
    }

    fn global(&self, global: &Global) -> Node {
        match global {
            Global::Variable(at) => Node::Variable { at: *at, cost: 1 },
            Global::Type(ty) => Node::Const(Val::Type(Arc::new(ty.clone()))),
        }
    }

    fn list(&mut self, items: &[Item]) -> Planned {
        let mut planned = vec![];
        for item in items {
            planned.push((self.plan(&item.expr)?, item.optional));
        }
        let is_const =
            |(node, optional): &(Node, bool)| matches!(node, Node::Const(_)) && !optional;
        if !planned.iter().all(is_const) {
            return Ok(Node::List { items: planned });
        }
        let values = planned.into_iter().filter_map(|(node, _)| match node {
            Node::Const(val) => Some(val),
            _ => None,
        });
        Ok(Node::Const(Val::list(values.collect())))
    }

    fn pair(&mut self, args: &[Expr]) -> Result<Box<(Node, Node)>, String> {
        match args {
            [one, two] => Ok(Box::new((self.plan(one)?, self.plan(two)?))),
            _ => Err("an operator has two operands".to_owned()),
        }
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Planned {
        let Reference::Call { function: name, namespaced, overloads } =
            self.checked.reference(expr.id)
        else {
            return Err(format!("unresolved call of {function}"));
        };
        let overload = match overloads[..] {
            [only] => only.id,
            _ => "",
        };
        let cost = runtime_cost::call_cost(name, overload);
        match *name {
            operator::AND => return Ok(Node::And(self.pair(args)?)),
            operator::OR => return Ok(Node::Or(self.pair(args)?)),
            operator::NOT => return Ok(Node::Not(Box::new(self.plan(&args[0])?))),
            operator::NOT_STRICTLY_FALSE => {
                return Ok(Node::NotStrictlyFalse(Box::new(self.plan(&args[0])?)));
            }
            operator::CONDITIONAL => return self.conditional(args),
            operator::EQUAL | operator::NOT_EQUAL => {
                let negate = *name == operator::NOT_EQUAL;
                return Ok(Node::Equal { operands: self.pair(args)?, negate });
            }
            operator::INDEX => return self.index(args, false),
            operator::OPTIONAL_INDEX => return self.index(args, true),
            operator::OPTIONAL_SELECT => return self.optional_select(args),
            operator::IN => return self.membership(args, cost),
            "or" | "orValue" => {
                if let (Some(target), [other]) = (target, args) {
                    let operands = Box::new((self.plan(target)?, self.plan(other)?));
                    return Ok(Node::OptionalOr { operands, unwrap: *name == "orValue" });
                }
            }
            operator::ADD => {
                if let Some(append) = self.append(args)? {
                    return Ok(append);
                }
            }
            operator::MAP_INSERT => return self.insert(args, cost),
            _ => {}
        }
        if let Some(relation) = relation(name) {
            return Ok(Node::Compare { operands: self.pair(args)?, relation, cost });
        }
        let target = target.filter(|_| !*namespaced);
        let mut planned = vec![];
        for arg in target.into_iter().chain(args) {
            planned.push(self.plan(arg)?);
        }
        self.plan_call(name, planned, cost)
    }

    fn plan_call(&mut self, name: &'static str, mut args: Vec<Node>, cost: CallCost) -> Planned {
        let Some(implementation) = functions::implementation(name) else {
            return Err(format!("no such overload: {name}"));
        };
        if let ([Node::Const(only)], true) = (&args[..], CONVERSIONS.contains(&name)) {
            let only = only.clone();
            return implementation(&[only]).map(Node::Const).map_err(|error| error.to_string());
        }
        let reads_texts = !functions::READS_NO_TEXTS.contains(&name);
        if let [_, Node::Const(Val::String(text)), ..] = &args[..]
            && matches!(name, "matches" | "find" | "findAll")
        {
            let pattern = self.patterns.get(text.as_str())?;
            if name == "matches" {
                let pattern_chars = text.chars() as u64;
                let target = Box::new(args.swap_remove(0));
                return Ok(Node::Matches { target, pattern, pattern_chars });
            }
            let is_find_all = name == "findAll";
            let call = Call { implementation, args, cost, reads_texts, is_find_all };
            return Ok(Node::Find { call: Box::new(call), pattern });
        }
        let call = Call { implementation, args, cost, reads_texts, is_find_all: false };
        Ok(Node::Call(Box::new(call)))
    }

    fn conditional(&mut self, args: &[Expr]) -> Planned {
        let [condition, yes, no] = args else { return Err("a conditional has three parts".into()) };
        let condition = self.plan(condition)?;
        let mut yes = self.plan(yes)?;
        let mut no = self.plan(no)?;
        drop_read_cost(&mut yes);
        drop_read_cost(&mut no);
        Ok(Node::Conditional(Box::new((condition, yes, no))))
    }

    fn index(&mut self, args: &[Expr], optional: bool) -> Planned {
        let [operand, key] = args else { return Err("an index has two parts".into()) };
        let operand = self.plan(operand)?;
        let mut key = self.plan(key)?;
        drop_read_cost(&mut key);
        if let Node::Const(val) = &key
            && crate::value::Key::of(val).is_none()
        {
            return Err(format!("invalid qualifier type: {}", crate::eval::go_name(val)));
        }
        let cost = qualifier_cost(&operand);
        Ok(Node::Index(Box::new(Index { operand, key, optional, cost })))
    }

    fn optional_select(&mut self, args: &[Expr]) -> Planned {
        let [operand, Expr { kind: ExprKind::Literal(Literal::String(field)), .. }] = args else {
            return Err("an optional selection names a field".into());
        };
        let operand = self.plan(operand)?;
        let cost = qualifier_cost(&operand);
        let select = Select { operand, field: field.clone(), optional: true, cost };
        Ok(Node::Select(Box::new(select)))
    }

    fn membership(&mut self, args: &[Expr], cost: CallCost) -> Planned {
        let operands = self.pair(args)?;
        let simple = |val: &Val<'_>| {
            matches!(
                val,
                Val::Bool(_)
                    | Val::Double(_)
                    | Val::Int(_)
                    | Val::String(_)
                    | Val::Uint(_)
                    | Val::Null
            )
        };
        // Upstream charges nothing for `in` with a constant list.
        let free = match &operands.1 {
            Node::Const(Val::List(list)) => list.iter().all(|item| item.is_ok_and(|v| simple(&v))),
            _ => false,
        };
        Ok(Node::In { operands, cost: if free { CallCost::Fixed(0) } else { cost } })
    }

    /// Plans `accumulator + [item]` of a list macro as an in-place append.
    fn append(&mut self, args: &[Expr]) -> Result<Option<Node>, String> {
        let [Expr { kind: ExprKind::Ident(name), .. }, Expr { kind: ExprKind::List(items), .. }] =
            args
        else {
            return Ok(None);
        };
        if name != crate::ast::ACCUMULATOR || items.len() != 1 || items[0].optional {
            return Ok(None);
        }
        let Some((_, slot)) = self.scopes.iter().rev().find(|(known, _)| known == name) else {
            return Ok(None);
        };
        let slot = *slot;
        let item = self.plan(&items[0].expr)?;
        // With a constant item the list literal is constant too, and costs nothing.
        let is_const = matches!(item, Node::Const(_));
        let list_cost = if is_const { 0 } else { runtime_cost::LIST_CREATE_COST };
        Ok(Some(Node::Append { slot, item: Box::new(item), list_cost }))
    }

    /// Plans `cel.@mapInsert(accumulator, ...)` of a map macro.
    fn insert(&mut self, args: &[Expr], cost: CallCost) -> Planned {
        let mut planned = vec![];
        for arg in args {
            planned.push(self.plan(arg)?);
        }
        let call = self.plan_call(operator::MAP_INSERT, planned, cost)?;
        match call {
            Node::Call(call) => match call.args.first() {
                Some(Node::Local { slot, .. }) => Ok(Node::Insert { slot: *slot, call }),
                _ => Ok(Node::Call(call)),
            },
            other => Ok(other),
        }
    }

    fn comprehension(&mut self, comprehension: &Comprehension) -> Planned {
        let mark = self.scopes.len();
        let slot = self.scopes.last().map_or(0, |(_, slot)| slot + 1);
        if comprehension.is_bind() {
            let init = self.plan(&comprehension.init)?;
            self.scopes.push((comprehension.accumulator.clone(), slot));
            self.slots = self.slots.max(slot + 1);
            let result = self.plan(&comprehension.result)?;
            self.scopes.truncate(mark);
            return Ok(Node::Bind(Box::new(BindNode { slot, init, result })));
        }
        let range = self.plan(&comprehension.range)?;
        let init = self.plan(&comprehension.init)?;
        self.scopes.push((comprehension.accumulator.clone(), slot));
        self.scopes.push((comprehension.first.clone(), slot + 1));
        if let Some(second) = &comprehension.second {
            self.scopes.push((second.clone(), slot + 2));
        }
        self.slots = self.slots.max(slot + 3);
        let nodes_before = self.nodes;
        let condition = self.plan(&comprehension.condition)?;
        let step = self.plan(&comprehension.step)?;
        let step_work = meter::ITEM_WORK + (self.nodes - nodes_before) * NODE_WORK;
        self.scopes.truncate(mark + 1);
        let result = self.plan(&comprehension.result)?;
        self.scopes.truncate(mark);
        let two_variables = comprehension.second.is_some();
        Ok(Node::Comprehension(Box::new(ComprehensionNode {
            range,
            slot,
            two_variables,
            step_work,
            init,
            condition,
            step,
            result,
        })))
    }
}

/// Plans a map literal; a map of constants is a constant. The last of two equal constant keys wins;
/// upstream reports duplicate keys only in maps that are computed at evaluation.
fn constant_map(entries: Vec<MapEntry>) -> Node {
    let mut map = crate::value::OwnedMap::default();
    for entry in &entries {
        let (Node::Const(key), Node::Const(value), false) =
            (&entry.key, &entry.value, entry.optional)
        else {
            return Node::Map { entries };
        };
        let Some(place) = crate::value::Key::of(key) else {
            return Node::Map { entries };
        };
        map.set(place, key.clone(), value.clone());
    }
    Node::Const(Val::Map(crate::value::Map::Owned(Arc::new(map))))
}

fn relation(name: &str) -> Option<Relation> {
    Some(match name {
        "_<_" => Relation::Less,
        "_<=_" => Relation::LessEqual,
        "_>_" => Relation::Greater,
        "_>=_" => Relation::GreaterEqual,
        _ => return None,
    })
}

/// Returns the cost of a selection: one, plus one if the operand is not a path from a variable.
fn qualifier_cost(operand: &Node) -> u8 {
    if is_path(operand) { 1 } else { 2 }
}

fn is_path(node: &Node) -> bool {
    matches!(
        node,
        Node::Variable { .. }
            | Node::Local { .. }
            | Node::Select(_)
            | Node::Has(_)
            | Node::Index(_)
            | Node::Conditional(_)
    )
}

/// Removes the cost of reading a variable from a path. Upstream does not charge it in branches of a
/// conditional and in index keys.
fn drop_read_cost(node: &mut Node) {
    match node {
        Node::Variable { cost, .. } | Node::Local { cost, .. } => *cost = 0,
        Node::Select(select) => {
            if is_path(&select.operand) {
                drop_read_cost(&mut select.operand);
            } else {
                select.cost -= 1;
            }
        }
        Node::Index(index) => {
            if is_path(&index.operand) {
                drop_read_cost(&mut index.operand);
            } else {
                index.cost -= 1;
            }
        }
        _ => {}
    }
}

fn constant(literal: &Literal) -> Val<'static> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(flag) => Val::Bool(*flag),
        Literal::Int(number) => Val::Int(*number),
        Literal::Uint(number) => Val::Uint(*number),
        Literal::Double(number) => Val::Double(*number),
        Literal::String(text) => Val::String(Text::Owned(text.clone())),
        Literal::Bytes(bytes) => Val::Bytes(bytes.clone()),
    }
}
