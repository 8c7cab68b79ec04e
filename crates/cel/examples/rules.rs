//! Evaluates expressions, one per line, as validation rules of a string field and prints the
//! results, to compare them with another server.

use keelson_cel::{CompileError, DeclType, Environment, Limits, Shape, Val, Version};
use std::io::{BufRead, Write};
use std::sync::Arc;

/// Maximum number of characters of a string without `maxLength`.
const UNBOUNDED_CHARS: u64 = 3 * 1024 * 1024 - 2;

fn main() -> std::io::Result<()> {
    let decl_type = Arc::new(DeclType::new(Shape::String).with_size_max(UNBOUNDED_CHARS));
    let env = Environment::kubernetes(Version::NEW_EXPRESSIONS)
        .with_decl_type("self", decl_type.clone())
        .with_decl_type("oldSelf", decl_type);
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
