//! Macros: calls that the parser expands into comprehensions and presence tests.

use super::Builder;
use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprKind, Id, Item, UNUSED, operator};
use crate::literal::Literal;
use keelson_meta::Str;

/// Which optional macros are enabled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Macros {
    /// `optMap` and `optFlatMap`.
    pub(crate) optional: bool,
    /// `all`, `exists` and others with two variables, `transformList`, `transformMap`.
    pub(crate) two_variables: bool,
    /// `cel.bind`.
    pub(crate) bind: bool,
    /// `sortBy`.
    pub(crate) sort_by: bool,
    /// `math.greatest` and `math.least`.
    pub(crate) math: bool,
}

/// The result of macro expansion.
pub(crate) enum Expansion {
    /// The expansion of a macro.
    Expr(Expr),
    /// A macro with invalid arguments.
    Fault { offset: u32, message: String },
    /// A call that is no macro.
    Call { target: Option<Expr>, args: Vec<Expr> },
}

type Expanded = Result<Expr, (u32, String)>;

/// Expands a call if it is a macro; `id` is the node of the call.
pub(crate) fn expand(
    macros: Macros,
    builder: &mut Builder,
    id: Id,
    function: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Expansion {
    let mut expander = Expander { offset: builder.offset(id), builder };
    let expanded = match (target, function, args.len()) {
        (None, "has", 1) => expander.has(args),
        (Some(target), _, _) => match expander.member(macros, target, function, args) {
            Ok(expanded) => expanded,
            Err((target, args)) => return Expansion::Call { target: Some(target), args },
        },
        (None, ..) => return Expansion::Call { target: None, args },
    };
    match expanded {
        Ok(expr) => Expansion::Expr(expr),
        Err((offset, message)) => Expansion::Fault { offset, message },
    }
}

struct Expander<'a> {
    builder: &'a mut Builder,
    /// Offset of the call; all nodes of its expansion have it.
    offset: u32,
}

impl Expander<'_> {
    /// Expands a member macro. Returns target and arguments if the call is no macro.
    fn member(
        &mut self,
        macros: Macros,
        target: Expr,
        function: &str,
        args: Vec<Expr>,
    ) -> Result<Expanded, (Expr, Vec<Expr>)> {
        let name = match &target.kind {
            ExprKind::Ident(name) => name.as_str(),
            _ => "",
        };
        let two = macros.two_variables;
        Ok(match (function, args.len()) {
            ("all" | "exists" | "exists_one", 2) => self.quantifier(function, target, args),
            ("existsOne", 2) if two => return Err((target, args)),
            ("all" | "exists" | "exists_one" | "existsOne", 3) if two => {
                self.quantifier(function, target, args)
            }
            ("map", 2 | 3) => self.map(target, args),
            ("filter", 2) => self.filter(target, args),
            ("transformList", 3 | 4) if two => self.transform_list(target, args),
            ("transformMap", 3 | 4) if two => self.transform_map(target, args, true),
            ("transformMapEntry", 3 | 4) if two => self.transform_map(target, args, false),
            ("optMap" | "optFlatMap", 2) if macros.optional => {
                self.optional_map(function, target, args)
            }
            ("bind", 3) if macros.bind && name == "cel" => self.bind(args),
            ("sortBy", 2) if macros.sort_by => self.sort_by(target, args),
            ("greatest", _) if macros.math && name == "math" => self.extremum("math.@max", args),
            ("least", _) if macros.math && name == "math" => self.extremum("math.@min", args),
            _ => return Err((target, args)),
        })
    }

    fn node(&mut self, kind: ExprKind) -> Expr {
        self.builder.node(self.offset, kind)
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.into()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    fn call(&mut self, function: &'static str, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call { function: Str::new_static(function), target: None, args })
    }

    fn list(&mut self, items: Vec<Expr>) -> Expr {
        let items = items.into_iter().map(|expr| Item { expr, optional: false }).collect();
        self.node(ExprKind::List(items))
    }

    fn fault<T>(&self, expr: &Expr, message: &str) -> Result<T, (u32, String)> {
        Err((self.builder.offset(expr.id), message.to_owned()))
    }

    /// Returns the name of an iteration variable, which must not shadow the accumulator.
    fn variable(&self, expr: &Expr, message: &str) -> Result<Str, (u32, String)> {
        let ExprKind::Ident(name) = &expr.kind else { return self.fault(expr, message) };
        if name.starts_with('.') {
            return self.fault(expr, message);
        }
        if name == ACCUMULATOR || name == "__result__" {
            return self.fault(expr, "iteration variable overwrites accumulator variable");
        }
        Ok(name.clone())
    }

    fn has(&mut self, mut args: Vec<Expr>) -> Expanded {
        let arg = args.remove(0);
        match arg.kind {
            ExprKind::Select { operand, field, test: false } => {
                Ok(self.node(ExprKind::Select { operand, field, test: true }))
            }
            _ => self.fault(&arg, "invalid argument to has() macro"),
        }
    }

    /// Takes one or two iteration variables from the front of the arguments.
    fn variables(
        &self,
        args: &mut Vec<Expr>,
        two: bool,
        message: &str,
    ) -> Result<(Str, Option<Str>), (u32, String)> {
        let first_arg = args.remove(0);
        let first = self.variable(&first_arg, message)?;
        if !two {
            return Ok((first, None));
        }
        let second_arg = args.remove(0);
        let second = self.variable(&second_arg, message)?;
        if first == second {
            let message = format!("duplicate variable name: {first}");
            return Err((self.builder.offset(second_arg.id), message));
        }
        Ok((first, Some(second)))
    }

    fn comprehension(
        &mut self,
        range: Expr,
        variables: (Str, Option<Str>),
        [init, condition, step, result]: [Expr; 4],
    ) -> Expr {
        let (first, second) = variables;
        let accumulator = Str::new_static(ACCUMULATOR);
        self.node(ExprKind::Comprehension(Box::new(Comprehension {
            range,
            first,
            second,
            accumulator,
            init,
            condition,
            step,
            result,
        })))
    }

    fn quantifier(&mut self, function: &str, range: Expr, mut args: Vec<Expr>) -> Expanded {
        let two = args.len() == 3;
        let variables = self.variables(&mut args, two, "argument must be a simple name")?;
        let test = args.remove(0);
        let parts = match function {
            "all" => {
                let init = self.literal(Literal::Bool(true));
                let accumulated = self.accumulator();
                let condition = self.call(operator::NOT_STRICTLY_FALSE, vec![accumulated]);
                let accumulated = self.accumulator();
                let step = self.call(operator::AND, vec![accumulated, test]);
                [init, condition, step, self.accumulator()]
            }
            "exists" => {
                let init = self.literal(Literal::Bool(false));
                let accumulated = self.accumulator();
                let not = self.call(operator::NOT, vec![accumulated]);
                let condition = self.call(operator::NOT_STRICTLY_FALSE, vec![not]);
                let accumulated = self.accumulator();
                let step = self.call(operator::OR, vec![accumulated, test]);
                [init, condition, step, self.accumulator()]
            }
            _ => {
                let init = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let accumulated = self.accumulator();
                let one = self.literal(Literal::Int(1));
                let more = self.call(operator::ADD, vec![accumulated, one]);
                let same = self.accumulator();
                let step = self.call(operator::CONDITIONAL, vec![test, more, same]);
                let count = self.accumulator();
                let one = self.literal(Literal::Int(1));
                [init, condition, step, self.call(operator::EQUAL, vec![count, one])]
            }
        };
        Ok(self.comprehension(range, variables, parts))
    }

    /// Returns a comprehension that appends `element` to a list for each item that matches `test`.
    fn collect(
        &mut self,
        range: Expr,
        variables: (Str, Option<Str>),
        test: Option<Expr>,
        element: Expr,
    ) -> Expr {
        let init = self.list(vec![]);
        let accumulated = self.accumulator();
        let added = self.list(vec![element]);
        let step = self.call(operator::ADD, vec![accumulated, added]);
        self.gather(range, variables, init, test, step)
    }

    /// Returns a comprehension over all items that runs `step` for each item that matches `test`.
    fn gather(
        &mut self,
        range: Expr,
        variables: (Str, Option<Str>),
        init: Expr,
        test: Option<Expr>,
        mut step: Expr,
    ) -> Expr {
        let condition = self.literal(Literal::Bool(true));
        if let Some(test) = test {
            let same = self.accumulator();
            step = self.call(operator::CONDITIONAL, vec![test, step, same]);
        }
        let result = self.accumulator();
        self.comprehension(range, variables, [init, condition, step, result])
    }

    fn map(&mut self, range: Expr, mut args: Vec<Expr>) -> Expanded {
        let variables = self.variables(&mut args, false, "argument is not an identifier")?;
        let element = args.pop().expect("map has two or three arguments");
        let test = args.pop();
        Ok(self.collect(range, variables, test, element))
    }

    fn filter(&mut self, range: Expr, mut args: Vec<Expr>) -> Expanded {
        let variables = self.variables(&mut args, false, "argument is not an identifier")?;
        let element = self.ident(&variables.0);
        let test = args.pop();
        Ok(self.collect(range, variables, test, element))
    }

    fn transform_list(&mut self, range: Expr, mut args: Vec<Expr>) -> Expanded {
        let variables = self.variables(&mut args, true, "argument must be a simple name")?;
        let element = args.pop().expect("transformList has three or four arguments");
        let test = args.pop();
        Ok(self.collect(range, variables, test, element))
    }

    fn transform_map(&mut self, range: Expr, mut args: Vec<Expr>, keyed: bool) -> Expanded {
        let variables = self.variables(&mut args, true, "argument must be a simple name")?;
        let value = args.pop().expect("transformMap has three or four arguments");
        let test = args.pop();
        let init = self.node(ExprKind::Map(vec![]));
        let accumulated = self.accumulator();
        let inserted = if keyed {
            let key = self.ident(&variables.0);
            vec![accumulated, key, value]
        } else {
            vec![accumulated, value]
        };
        let step = self.call(operator::MAP_INSERT, inserted);
        Ok(self.gather(range, variables, init, test, step))
    }

    /// Returns a comprehension that binds `value` to a name within `result`.
    fn named(&mut self, name: Str, value: Expr, result: Expr) -> Expr {
        let range = self.list(vec![]);
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(&name);
        self.node(ExprKind::Comprehension(Box::new(Comprehension {
            range,
            first: Str::new_static(UNUSED),
            second: None,
            accumulator: name,
            init: value,
            condition,
            step,
            result,
        })))
    }

    fn bind(&mut self, mut args: Vec<Expr>) -> Expanded {
        let result = args.pop().expect("bind has three arguments");
        let value = args.pop().expect("bind has three arguments");
        let message = "cel.bind() variable names must be simple identifiers";
        let name = self.variable(&args[0], message)?;
        Ok(self.named(name, value, result))
    }

    fn optional_map(&mut self, function: &str, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let body = args.pop().expect("optMap has two arguments");
        let message = format!("{function}() variable name must be a simple identifier");
        let name = self.variable(&args[0], &message)?;
        let Some(again) = self.builder.copy(&target) else {
            return Err((self.offset, "expression is too large".to_owned()));
        };
        let has_value = self.method(target, "hasValue");
        let value = self.method(again, "value");
        let mut mapped = self.named(name, value, body);
        if function == "optMap" {
            mapped = self.call("optional.of", vec![mapped]);
        }
        let none = self.call("optional.none", vec![]);
        Ok(self.call(operator::CONDITIONAL, vec![has_value, mapped, none]))
    }

    fn method(&mut self, target: Expr, function: &'static str) -> Expr {
        let target = Some(Box::new(target));
        self.node(ExprKind::Call { function: Str::new_static(function), target, args: vec![] })
    }

    /// `list.sortBy(x, key)`: sorts the list by the list of its keys.
    fn sort_by(&mut self, target: Expr, mut args: Vec<Expr>) -> Expanded {
        let simple = matches!(
            target.kind,
            ExprKind::Select { .. }
                | ExprKind::List(_)
                | ExprKind::Comprehension(_)
                | ExprKind::Ident(_)
                | ExprKind::Call { .. }
        );
        if !simple {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call \
                           or select expression";
            return self.fault(&target, message);
        }
        let variables = self.variables(&mut args, false, "argument is not an identifier")?;
        let key = args.pop().expect("sortBy has two arguments");
        let name = Str::new_static("@__sortBy_input__");
        let range = self.ident(&name);
        let keys = self.collect(range, variables, None, key);
        let input = self.ident(&name);
        let target_node = Some(Box::new(input));
        let sorted = self.node(ExprKind::Call {
            function: Str::new_static("@sortByAssociatedKeys"),
            target: target_node,
            args: vec![keys],
        });
        Ok(self.named(name, target, sorted))
    }

    fn extremum(&mut self, function: &'static str, args: Vec<Expr>) -> Expanded {
        let name = if function == "math.@max" { "math.greatest()" } else { "math.least()" };
        if args.is_empty() {
            return Err((self.offset, format!("{name} requires at least one argument")));
        }
        let is_number = |expr: &Expr| {
            !matches!(
                expr.kind,
                ExprKind::Literal(
                    Literal::String(_) | Literal::Bool(_) | Literal::Null | Literal::Bytes(_)
                ) | ExprKind::Map(_)
                    | ExprKind::Struct { .. }
            )
        };
        if args.len() > 1
            && let Some(bad) =
                args.iter().find(|arg| !is_number(arg) || matches!(arg.kind, ExprKind::List(_)))
        {
            return self.fault(bad, &format!("{name} simple literal arguments must be numeric"));
        }
        let args = if args.len() > 2 { vec![self.list(args)] } else { args };
        Ok(self.call(function, args))
    }
}
