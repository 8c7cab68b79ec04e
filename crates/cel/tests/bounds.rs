//! No expression takes more time, memory or stack than its limits allow.

use keelson_cel::{CompileError, Environment, Limits, NESTING_DEPTH_MAX, Type, Val, Version};
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
fn interrupt_ends_evaluation() {
    let program = environment().compile("lists.range(10000).all(y, y >= 0)").unwrap().program;
    let variables = [None];
    let interrupted = || true;
    let limits = Limits { cost_max: u64::MAX, interrupted: Some(&interrupted) };
    let error = program.evaluate(&variables, &limits).result.unwrap_err();
    assert_eq!(error.to_string(), "operation interrupted");
    assert!(error.is_cancelled() && !error.is_cost_limit());
}

#[test]
fn the_cost_limit_is_exact() {
    let program = environment().compile("x == 1").unwrap().program;
    let variables = [Some(Val::Int(1))];
    let run = |cost_max| {
        program.evaluate(&variables, &Limits { cost_max, interrupted: None }).result.is_ok()
    };
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
