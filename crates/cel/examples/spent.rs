//! Reads expressions over `x`, an item of a list of integers, and prints what `self.all(x, expression)`
//! costs for a list of 1 and of 101 zeros: to find out what one item costs.

use keelson_cel::{Declared, Environment, Limits, ListKind, Shape, Version, adapt};
use keelson_meta::Value;
use std::io::{BufRead, Write};
use std::sync::Arc;

fn main() -> std::io::Result<()> {
    let items = Arc::new(Declared::new(Shape::Int));
    let list = Arc::new(Declared::new(Shape::List(items, ListKind::Atomic)));
    let env = Environment::kubernetes(Version::NEW_EXPRESSIONS).with_declared("self", list.clone());
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
