//! Patterns as Go understands and limits them, and both engines compared.

use super::*;

/// Whether the pattern matches, as both engines find it.
fn is_match(pattern: &str, text: &str) -> bool {
    let compiled = Pattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    meter::begin(0);
    let automaton = Automaton::new(&compiled.translated).unwrap();
    let found = automaton.find(text, 0, true).unwrap().is_some();
    if let Some(regex) = compiled.build_regex() {
        assert_eq!(regex.is_match(text), found, "{pattern} of {text:?}");
        let whole = automaton.find(text, 0, false).unwrap();
        assert_eq!(regex.find(text).map(|found| found.range()), whole, "{pattern} of {text:?}");
    }
    assert_eq!(compiled.is_match(text).unwrap(), found);
    found
}

#[test]
fn patterns_have_the_meaning_of_go() {
    let check = |pattern: &str, text: &str, expected: bool| {
        assert_eq!(is_match(pattern, text), expected, "{pattern} of {text:?}");
    };
    check(r"^\d+$", "123", true);
    check(r"^\d+$", "\u{661}\u{662}", false);
    check(r"^\w+$", "aé", false);
    check(r"^[\w-]+$", "a-b_1", true);
    check(r"^[^\d\s]+$", "ab c", false);
    check(r"\bfoo\b", "a foo b", true);
    check("^[a&&b]+$", "a&b", true);
    check("^[^[]+$", "abc", true);
    check("^[]a]+$", "a]", true);
    check("^[[:alpha:]-]+$", "a-b", true);
    check(r"^\Qa.b\E+$", "a.bb", true);
    check(r"^\x41\x{42}\103$", "ABC", true);
    check("^a{,5}$", "a{,5}", true);
    check("^(?i:A)b$", "ab", true);
    check("(?P<n>a)(?<n>b)", "ab", true);
    check("^a#b c$", "a#b c", true);
    check(r"^[a\-z]+$", "b", false);
    check(r"^\p{Greek}\pL$", "αb", true);
    check("^(?s).$", "\n", true);
}

#[test]
fn both_engines_find_the_same_matches() {
    let texts = ["", "a", "ab", "aab", "abcabc", "xay\nb", "日本 a_b", "foo bar", "aaaaaa", "\n\n"];
    for pattern in [
        "",
        "a*",
        "a*?",
        "a+?b",
        "(a|ab)(c|bcd)?",
        "ab|a",
        "a|ab",
        "(?m)^b$",
        "(?m)^",
        "$",
        r"\b",
        "a{2,3}",
        "a{2,3}?",
        "a{0,2}b",
        "(a*)*",
        "(a*)+b",
        "[^a]b",
        r"\pL+",
        "(?i)FOO",
        "a{0}",
        "(a{2}){2}",
        "x*y?",
        "(?U)a+",
        r"\Aa",
        r"b\z",
        "b*|a",
        r"(a?){3}",
        "a{2,}",
        "(ab){1,}?",
    ] {
        for text in texts {
            is_match(pattern, text);
        }
    }
}

#[test]
fn patterns_that_go_accepts_compile_and_match() {
    let letters = "é".repeat(300);
    for pattern in [r"^\pL{300}$", r"^(\pL{100}){3}$", r"^((\pL{10}){10}){3}$"] {
        assert!(is_match(pattern, &letters), "{pattern}");
        assert!(!is_match(pattern, &letters[2..]), "{pattern}");
    }
    assert!(is_match(r"^\pL{1000}$", &"é".repeat(1000)));
    let deep = format!("{}a{}", "(".repeat(400), ")".repeat(400));
    assert!(is_match(&deep, "a"));
}

/// What kube-apiserver 1.36 answered for the pattern of a schema.
#[test]
fn patterns_are_accepted_up_to_the_limits_of_go() {
    let nested = |open: &str, count: usize| format!("{}a{}", open.repeat(count), ")".repeat(count));
    for accepted in [
        r"\pL{1000}",
        "((a{10}){10}){10}",
        "(a{1000}){0}",
        "(a{0,}){1000}",
        "(a|b){1000}",
        "(?i)(k{500}){2}",
        &format!("({}){{1000}}", "a".repeat(3000)),
        &nested("(", 999),
        &nested("(?:a", 501),
        &nested("(a", 499),
        &r"\pL".repeat(20_000),
    ] {
        assert!(Pattern::new(accepted).is_ok(), "{}", &accepted[..accepted.len().min(40)]);
    }
    let check = |pattern: &str, want: &str| {
        let error = Pattern::new(pattern).expect_err(want);
        assert!(error.starts_with(&format!("error parsing regexp: {want}: `")), "{error}");
    };
    check(&nested("(", 1000), "expression nests too deeply");
    check(&nested("(a", 501), "expression nests too deeply");
    check(&r"\pL".repeat(27_000), "expression too large");
    check(&format!("({}){{1000}}", "a".repeat(4000)), "expression too large");
}

#[test]
fn repetitions_inside_each_other_have_the_limit_of_go() {
    let check = |pattern: &str, want: &str| {
        let error = Pattern::new(pattern).expect_err(want);
        assert!(error.starts_with(&format!("error parsing regexp: {want}")), "{error}");
    };
    check("a{1001}", "invalid repeat count: `{1001}`");
    check(r"(\pL{100}){11}", "invalid repeat count: `{11}`");
    check("((a{10}){10}){11}?", "invalid repeat count: `{11}?`");
    check("((a{500,}){2}){2}", "invalid repeat count: `{2}`");
    check("((a|b){1000}|c){2}", "invalid repeat count: `{2}`");
    check("(?:a{2}){501}", "invalid repeat count: `{501}`");
    check(r"\p{Nothing}", r"invalid character class range: `\p{Nothing}`");
}

#[test]
fn checking_a_pattern_compiles_nothing() {
    let text = r"(\pL\pN){500}".repeat(1000);
    let mut patterns = Patterns::default();
    let pattern = patterns.get(&text).unwrap();
    assert!(pattern.engines.regex.get().is_none() && pattern.engines.automaton.get().is_none());
    assert!(Arc::ptr_eq(&pattern, &patterns.get(&text).unwrap()));
    assert_eq!(patterns.properties.len(), 2);
}

#[test]
fn a_long_search_counts_its_work() {
    let pattern = Pattern::new("[ab]*a[ab]{901}$").unwrap();
    let text = "ab".repeat(500_000);
    meter::begin(0);
    assert_eq!(meter::run_briefly(100_000_000, || drop(pattern.is_match(&text))), None);
    let short = "ab".repeat(500);
    assert_eq!(meter::run_briefly(1_000_000_000, || pattern.is_match(&short)), Some(Ok(true)));
}
