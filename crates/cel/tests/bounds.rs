//! No expression takes more time, memory or stack than its limits allow.

use keelson_cel::admission::{Compiler, Expression, Inputs, Purpose, activation};
use keelson_cel::{
    CompileError, CompositedVariables, Environment, Limits, NESTING_DEPTH_MAX, Text, Type, Val,
    Version, run_briefly, run_until,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn environment() -> Environment {
    Environment::kubernetes(Version::NEW_EXPRESSIONS).with_variable("x", Type::Dyn)
}

fn evaluate(text: &str) -> Result<(String, u64), CompileError> {
    let program = environment().compile(text)?.program;
    let variables = [Some(Val::Int(1))];
    let outcome = program.evaluate(&variables, &Limits::default());
    let shown = match outcome.result {
        Ok(val) => format!("{:?}", val.as_bool()),
        Err(error) => error.to_string(),
    };
    Ok((shown, outcome.cost))
}

#[test]
fn nesting_beyond_the_limit_is_rejected() {
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{}x{} == 1", open.repeat(depth), close.repeat(depth))
    };
    let message = format!("expression recursion limit exceeded: {NESTING_DEPTH_MAX}");
    for (open, close) in [
        ("(", ")"),
        ("dyn(", ")"),
        ("[", "][0]"),
        ("[1].map(y, ", ")[0]"),
        ("{'a': ", "}.a"),
        ("true ? 1 : ", ""),
        ("optional.of(1).optMap(y, ", ").value()"),
        ("cel(x, ", ")"),
    ] {
        // Within the limit it must not overflow the stack, whether it compiles or not.
        let _ = evaluate(&nested(open, close, 240));
        let error = evaluate(&nested(open, close, 300)).unwrap_err().to_string();
        assert!(error.contains(&message), "{open}: {error}");
    }
    for long in [
        "x".to_owned() + &".a".repeat(300),
        "x".to_owned() + &"[0]".repeat(300),
        "x".to_owned() + &" + x".repeat(300),
        "x".to_owned() + &" == x".repeat(300),
    ] {
        let error = evaluate(&long).unwrap_err().to_string();
        assert!(error.contains(&message), "{long}: {error}");
    }
}

#[test]
fn deep_trees_from_shallow_text_are_rejected_or_fit_the_stack() {
    let message = format!("expression recursion limit exceeded: {NESTING_DEPTH_MAX}");
    for (link, count) in [(".a", 240), (".map(y, [y])", 30), ("[0]", 240), (".filter(y, y)", 20)] {
        for levels in [5, 200] {
            let chain = link.repeat(count);
            let text = format!("{}x{}", "(".repeat(levels), format!("{chain})").repeat(levels));
            if let Err(error) = evaluate(&text) {
                let shown = error.to_string();
                let long = shown.contains("code point size exceeds limit");
                assert!(long || shown.contains(&message), "{link}: {shown}");
            }
            // The partial tree is dropped when an error follows.
            assert!(evaluate(&format!("{text} $")).is_err());
        }
        let long = format!("{}x{}", "(".repeat(200), format!("{})", link.repeat(30)).repeat(200));
        assert!(evaluate(&long).unwrap_err().to_string().contains(&message), "{link}");
    }
}

#[test]
fn chains_of_logical_operators_do_not_count_as_nesting() {
    let text = format!("true{}", " && true".repeat(5000));
    assert_eq!(evaluate(&text).unwrap(), ("Some(true)".to_owned(), 0));
}

#[test]
fn repeated_opt_map_does_not_grow_exponentially() {
    let text = format!("optional.of(x){}.hasValue()", ".optMap(y, y)".repeat(60));
    let begun = Instant::now();
    let error = evaluate(&text).unwrap_err().to_string();
    assert!(error.contains("expression is too large"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn repeated_doubling_hits_the_cost_limit() {
    let doubled = |start: &str, each: &str, last: &str| {
        let nest = each.repeat(40);
        format!("[{start}]{nest}{last}")
    };
    let cancelled = "operation cancelled: actual cost limit exceeded";
    for (start, each, last) in [
        ("'aaaaaaaaaa'", ".map(s, s + s)", ".size() > 0"),
        ("'aaaaaaaaaa'", ".map(s, '%s%s'.format([s, s]))", ".size() > 0"),
        ("'aaaaaaaaaa'", ".map(s, s.replace('a', 'aa'))", ".size() > 0"),
        ("'aaaaaaaaaa'", ".map(s, [s, s].join(''))", ".size() > 0"),
        ("[1, 2]", ".map(l, l + l)", "[0].all(y, y > 0)"),
        ("[1, 2]", ".map(l, l + l)", "[0].distinct().size() > 0"),
        ("[1, 2]", ".map(l, l + l)", "[0].sum() > 0"),
        ("[1, 2]", ".map(l, l + l)", "[0].isSorted()"),
        ("[1, 2]", ".map(l, l + l)", ".exists(l, 7 in l)"),
        ("[1, 2]", ".map(l, l + l)", ".exists(l, l == l)"),
        ("['']", ".map(l, l + l)", "[0].join('').size() > 0"),
        ("['']", ".map(l, l + l)", "[0].isSorted()"),
        ("[[]]", ".map(l, l + l)", "[0].flatten().size() > 0"),
        ("[1]", ".map(l, l + l)", "[0].reverse().size() > 0"),
        ("[1]", ".map(l, l + l)", ".exists(l, '%s'.format([l]) == '')"),
        ("[[1]]", ".map(l, l + l)", ".exists(l, [l] == [l])"),
    ] {
        let begun = Instant::now();
        let (shown, _) = evaluate(&doubled(start, each, last)).unwrap();
        assert_eq!(shown, cancelled, "{start} {each} {last}");
        assert!(begun.elapsed() < Duration::from_secs(120), "{start} {each} {last}");
    }
    assert_eq!(evaluate("lists.range(2000000).size() > 0").unwrap().0, cancelled);
}

#[test]
fn doubling_a_list_is_cheap_until_it_is_read() {
    let text = format!("[[1, 2]]{}[0].size() > 0", ".map(l, l + l)".repeat(80));
    let (shown, cost) = evaluate(&text).unwrap();
    assert_eq!(shown, "Some(true)");
    assert!(cost < 3000, "{cost}");
}

#[test]
fn an_interrupt_ends_evaluations_and_compilations() {
    let env = environment();
    let text = "lists.range(10000).all(y, y >= 0)";
    let program = env.compile(text).unwrap().program;
    let variables = [None];
    let limits = Limits { cost_max: u64::MAX };
    let flag = Arc::new(AtomicBool::new(true));
    let ended = run_until(&flag, || {
        let error = program.evaluate(&variables, &limits).result.unwrap_err();
        assert_eq!(error.to_string(), "operation interrupted");
        assert!(error.is_cancelled() && !error.is_cost_limit());
        let error = env.compile(text).unwrap_err();
        assert_eq!(error.to_string(), "program instantiation failed: operation interrupted");
    });
    assert_eq!(ended, None);
    flag.store(false, Ordering::Relaxed);
    let done = run_until(&flag, || program.evaluate(&variables, &limits).result.is_ok());
    assert_eq!(done, Some(true));
    assert!(program.evaluate(&variables, &limits).result.is_ok());
}

#[test]
fn what_needs_more_work_than_the_caller_allows_is_left() {
    let env = environment();
    let program = env.compile("lists.range(10000).all(y, y >= 0)").unwrap().program;
    let short = env.compile("[1, 2].all(y, y >= 0)").unwrap().program;
    let variables = [None];
    let limits = Limits { cost_max: u64::MAX };
    let evaluate = |program: &keelson_cel::Program| {
        run_briefly(1_000_000, || program.evaluate(&variables, &limits).result.is_ok())
    };
    assert_eq!(evaluate(&program), None);
    assert_eq!(evaluate(&short), Some(true));
    // The work of several evaluations adds up.
    let all = run_briefly(1_000_000, || {
        (0..10_000).all(|_| short.evaluate(&variables, &limits).result.is_ok())
    });
    assert_eq!(all, None);
    assert!(program.evaluate(&variables, &limits).result.is_ok());
}

fn evaluate_over(x: Val<'_>, text: &str) -> Result<bool, String> {
    let program = environment().compile(text).map_err(|error| error.to_string())?.program;
    let variables = [Some(x)];
    let outcome = program.evaluate(&variables, &Limits { cost_max: u64::MAX });
    outcome.result.map(|val| val.as_bool() == Some(true)).map_err(|error| error.to_string())
}

#[test]
fn a_loop_over_the_characters_of_a_text_takes_linear_time() {
    for text in ["a".repeat(30_000), "é".repeat(30_000)] {
        for each in [
            "x.charAt(29990) == x.charAt(0)",
            "x.substring(29990, 29995).size() == 5",
            "x.size() == 30000",
            "x != c",
        ] {
            let expression = format!("x.split('').all(c, {each})");
            let begun = Instant::now();
            let x = Val::String(Text::Borrowed(&text));
            assert_eq!(evaluate_over(x, &expression), Ok(true), "{each}");
            assert_eq!(evaluate_over(Val::text(text.as_str()), &expression), Ok(true), "{each}");
            // Less than a tenth of what reading the text each time takes.
            assert!(begun.elapsed() < Duration::from_secs(60), "{each}");
        }
    }
}

#[test]
fn a_query_is_parsed_in_linear_time() {
    let pairs: Vec<String> = (0..100_000).map(|at| format!("a{at}=b")).collect();
    let url = format!("https://a/b?{}", pairs.join("&"));
    let text = "url(x).getQuery().size() == 100000";
    let done = run_briefly(500_000_000, || evaluate_over(Val::text(url), text));
    assert_eq!(done, Some(Ok(true)));
}

#[test]
fn the_entries_of_a_new_map_are_added_in_linear_time() {
    let text = "lists.range(20000).transformMap(i, v, v + 1).size() == 20000";
    let done = run_briefly(500_000_000, || evaluate_over(Val::Null, text));
    assert_eq!(done, Some(Ok(true)));
}

/// Checks that expressions over a text of a megabyte exceed the memory of an evaluation.
fn check_memory(expressions: &[&str]) {
    let megabyte = "a".repeat(1 << 20);
    let cancelled = Err("operation cancelled: actual cost limit exceeded".to_owned());
    let names: Vec<String> = (0..200).map(|at| at.to_string()).collect();
    for each in expressions {
        let text = format!("[{}].map(n, dyn({each})).size() == 200", names.join(", "));
        let x = Val::String(Text::Borrowed(&megabyte));
        assert_eq!(evaluate_over(x, &text), cancelled, "{each}");
    }
}

#[test]
fn new_texts_count_against_the_memory_budget() {
    check_memory(&[
        "dyn(x) + dyn(x)",
        "bytes(x) + bytes(x)",
        "string(bytes(x))",
        "x.replace('a', 'b')",
        "x.substring(1)",
        "[x, x].join(',')",
        "'%s'.format([x])",
        "'%s'.format([[x, x]])",
        "'%s'.format([{x: x}])",
        "url('https://a/' + x)",
    ]);
    let doubled = format!("[dyn('aaaaaaaaaa')]{}.size() > 0", ".map(s, s + s)".repeat(40));
    let cancelled = "operation cancelled: actual cost limit exceeded".to_owned();
    assert_eq!(evaluate_over(Val::Null, &doubled), Err(cancelled));
}

#[test]
fn new_lists_and_maps_count_against_the_memory_budget() {
    check_memory(&[
        "x.split('')",
        "{x: 1}",
        "lists.range(100000)",
        "lists.range(100000).map(i, i)",
        "lists.range(100000).transformMap(i, v, v)",
        "[lists.range(100000)].flatten()",
    ]);
}

#[test]
fn composited_variables_count_against_the_budget_of_each_expression() {
    let mut compiler = Compiler::policy(Version::STORED_EXPRESSIONS, false);
    let mut computed = CompositedVariables::new();
    computed.push(compiler.variable("v0", "dyn('a')"));
    for at in 1..40 {
        let before = at - 1;
        let text = format!("variables.v{before} + variables.v{before}");
        computed.push(compiler.variable(&format!("v{at}"), &text));
    }
    let expressions: Vec<Expression> = (0..40)
        .map(|at| {
            let text = format!("variables.v{at}.size() > 0");
            Expression::new(&compiler, &text, Purpose::Condition)
        })
        .collect();
    let variables = Inputs::default().variables();
    let activation = activation(&variables, &computed);
    // Each expression reads one more variable, so that none makes much itself.
    let mut failed = 0;
    for expression in &expressions {
        let result = expression.evaluate(&activation, &mut u64::MAX.clone()).unwrap();
        failed += usize::from(result.is_err());
    }
    assert_eq!(failed, 13);
}

#[test]
fn long_chains_and_deep_values_do_not_overflow_the_stack() {
    assert_eq!(
        evaluate_over(Val::Null, "lists.range(200000).map(i, 1).size() == 200000"),
        Ok(true)
    );
    let check = |first: &str, next: fn(usize) -> String, last: &str, want: bool| {
        let mut compiler = Compiler::policy(Version::STORED_EXPRESSIONS, false);
        let mut computed = CompositedVariables::new();
        computed.push(compiler.variable("v0", first));
        for at in 1..2000 {
            computed.push(compiler.variable(&format!("v{at}"), &next(at - 1)));
        }
        let expressions: Vec<Expression> = (0..2000)
            .map(|at| {
                let text = format!("dyn(variables.v{at}) == dyn(variables.v{at})");
                Expression::new(&compiler, &text, Purpose::Condition)
            })
            .collect();
        let variables = Inputs::default().variables();
        let activation = activation(&variables, &computed);
        let results = expressions.iter().map(|expression| {
            expression.evaluate(&activation, &mut u64::MAX.clone()).unwrap().is_ok()
        });
        assert_eq!(results.last(), Some(want), "{last}");
    };
    check("[1]", |at| format!("variables.v{at} + [1]"), "concatenations", true);
    check("[dyn(1)]", |at| format!("[dyn(variables.v{at})]"), "lists", false);
    check("{'a': dyn(1)}", |at| format!("{{'a': dyn(variables.v{at})}}"), "maps", false);
    check(
        "optional.of(dyn(1))",
        |at| format!("optional.of(dyn(variables.v{at}))"),
        "optionals",
        false,
    );
}

#[test]
fn a_body_of_free_operators_counts_as_work() {
    let body = "true".to_owned() + &" && true".repeat(10_000);
    let text = format!("lists.range(200000).all(i, {body})");
    assert_eq!(run_briefly(50_000_000, || evaluate_over(Val::Null, &text)), None);
}

#[test]
fn the_cost_limit_is_exact() {
    let program = environment().compile("x == 1").unwrap().program;
    let variables = [Some(Val::Int(1))];
    let run = |cost_max| program.evaluate(&variables, &Limits { cost_max }).result.is_ok();
    assert!(run(2));
    assert!(!run(1));
}

#[test]
fn no_operator_hides_the_cost_limit_error() {
    let spend = "lists.range(100000).all(y, y * 1 >= 0 && y * 1 >= 0)";
    for text in [
        format!("true || {spend}"),
        format!("{spend} || true"),
        format!("!({spend}) && false"),
        format!("[1, 2].exists(z, {spend})"),
        format!("[1].map(z, {spend}).size() == 1"),
    ] {
        let (shown, _) = evaluate(&text).unwrap();
        let ended = shown == "operation cancelled: actual cost limit exceeded";
        assert_eq!(ended, !text.starts_with("true ||"), "{text}: {shown}");
    }
}
