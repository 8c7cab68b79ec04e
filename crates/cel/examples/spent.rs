//! Reads expressions over `x`, an item of a list of integers, and prints the cost of `self.all(x,
//! expression)` for lists of 1 and of 101 zeros, which gives the cost of one item.

use keelson_cel::{DeclType, Environment, Limits, ListKind, Shape, Version, adapt};
use keelson_meta::Value;
use std::io::{BufRead, Write};
use std::sync::Arc;

fn main() -> std::io::Result<()> {
    let items = Arc::new(DeclType::new(Shape::Int));
    let list = Arc::new(DeclType::new(Shape::List(items, ListKind::Atomic)));
    let env =
        Environment::kubernetes(Version::NEW_EXPRESSIONS).with_decl_type("self", list.clone());
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let program = match env.compile(&format!("self.all(x, {line})")) {
            Ok(compiled) => compiled.program,
            Err(error) => {
                writeln!(out, "{line}\t{error}")?;
                continue;
            }
        };
        write!(out, "{line}")?;
        for count in [1, 101] {
            let value = Value::Array(vec![Value::Int(0); count]);
            let variables = [adapt(&value, Some(&list)).ok()];
            let outcome = program.evaluate(&variables, &Limits::default());
            write!(out, "\t{}", outcome.cost)?;
            if let Err(error) = outcome.result {
                write!(out, " {error}")?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}
