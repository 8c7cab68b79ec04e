//! Reads expressions, one a line, and prints what becomes of each as a validation rule of a text field:
//! to compare with what another server says.

use keelson_cel::{CompileError, Declared, Environment, Limits, Shape, Val, Version};
use std::io::{BufRead, Write};
use std::sync::Arc;

/// The most characters that a string without `maxLength` has.
const UNBOUNDED_CHARS: u64 = 3 * 1024 * 1024 - 2;

fn main() -> std::io::Result<()> {
    let declared = Arc::new(Declared::new(Shape::String).with_size_max(UNBOUNDED_CHARS));
    let env = Environment::kubernetes(Version::NEW_EXPRESSIONS)
        .with_declared("self", declared.clone())
        .with_declared("oldSelf", declared);
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = answer(&env, &line);
        writeln!(out, ">> {line}\n{answer}\n")?;
    }
    Ok(())
}

fn answer(env: &Environment, text: &str) -> String {
    let compiled = match env.compile(text) {
        Ok(compiled) => compiled,
        Err(error @ (CompileError::Compilation(_) | CompileError::Instantiation(_))) => {
            return format!("COMPILE {error}");
        }
    };
    let variables = [Some(Val::text("a")), Some(Val::text("a"))];
    let outcome = compiled.program.evaluate(&variables, &Limits::default());
    let cost = format!("cost {} of {}..{}", outcome.cost, compiled.cost.min, compiled.cost.max);
    match outcome.result {
        Ok(Val::Bool(true)) => format!("OK {cost}"),
        Ok(val) => format!("FAIL {val:?} {cost}"),
        Err(error) => format!("FAIL {error} {cost}"),
    }
}
