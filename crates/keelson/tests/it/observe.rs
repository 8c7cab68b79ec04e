//! docs/observe: each metric and label of the dashboard and of the rules is one that a server has,
//! no panel is empty under a load, and promtool accepts the rules and their tests.

use keelson_schema::yaml;
use keelson_testkit::prerequisites;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observe");
const DASHBOARD: &str = include_str!("../../../../docs/observe/dashboard.json");
const RULES: &str = include_str!("../../../../docs/observe/rules.yaml");
/// What Prometheus adds to each series, and the label of buckets.
const ADDED_LABELS: [&str; 3] = ["job", "instance", "le"];
const KEYWORDS: [&str; 6] = ["and", "or", "unless", "bool", "ignoring", "offset"];
/// They are counted when something goes wrong, which the load of the test does not do.
const RULES_ONLY: [&str; 2] = ["up", "apiserver_request_terminations_total"];

/// Series by the name of their samples: the labels of each.
type Scraped = BTreeMap<String, Vec<BTreeMap<String, String>>>;

/// Compares dashboard and rules with what a server serves after a load.
pub fn check(metrics: &str, slis: &str) {
    let scraped = parse(metrics, slis);
    let dashboard: Value = DASHBOARD.parse().expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut targets = 0;
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            let title = panel["title"].as_str().unwrap_or_default();
            check_labels(title, expression, &scraped, &BTreeSet::new());
            let is_filled = expression.contains("or vector(0)");
            for Selector { name, matchers } in selectors(expression) {
                let is_there = is_filled || has_series(&scraped, &name, &matchers);
                assert!(is_there, "the panel {title:?} is empty: no series of {name}");
            }
            targets += 1;
        }
    }
    assert!(targets > 40, "{targets}");
    let rules = rules();
    let recorded: BTreeSet<String> =
        rules.iter().filter(|rule| rule.is_recorded).map(|rule| rule.name.clone()).collect();
    assert!(recorded.len() > 5 && rules.len() > recorded.len() + 15, "{}", rules.len());
    for Rule { name, expression, .. } in &rules {
        check_labels(name, expression, &scraped, &recorded);
    }
}

/// A rule of Prometheus.
struct Rule {
    name: String,
    is_recorded: bool,
    expression: String,
}

fn rules() -> Vec<Rule> {
    use keelson_meta::Value;
    fn items<'v>(value: &'v Value, member: &str) -> &'v [Value] {
        match value.get(member) {
            Some(Value::Array(items)) => items,
            _ => panic!("no {member}"),
        }
    }
    let parsed = yaml::parse(RULES).expect("the rules are YAML").value;
    let rules = items(&parsed, "groups").iter().flat_map(|group| items(group, "rules"));
    let rule = |rule: &Value| {
        let text = |member| rule.get(member).and_then(Value::as_str).map(str::to_owned);
        let recorded = text("record");
        let is_recorded = recorded.is_some();
        let name = recorded.or_else(|| text("alert")).expect("a name");
        Rule { name, is_recorded, expression: text("expr").expect("an expression") }
    };
    rules.map(rule).collect()
}

/// Returns the series of a text in the format of Prometheus.
fn parse(metrics: &str, slis: &str) -> Scraped {
    let mut scraped = Scraped::new();
    for line in metrics.lines().chain(slis.lines()).filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a sample has a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let pairs =
            labels.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\""));
        let labels = pairs
            .map(|(label, value)| (label.to_owned(), value.trim_end_matches('"').to_owned()))
            .collect();
        scraped.entry(name.to_owned()).or_default().push(labels);
    }
    scraped
}

/// Fails if an expression has a metric that is neither served nor recorded, or a label that none of
/// them has.
fn check_labels(of: &str, expression: &str, scraped: &Scraped, recorded: &BTreeSet<String>) {
    let mut known: BTreeSet<&str> = ADDED_LABELS.into();
    let mut is_open = false;
    for Selector { name, matchers } in selectors(expression) {
        if recorded.contains(&name) || RULES_ONLY.contains(&name.as_str()) {
            is_open = true;
            continue;
        }
        let series = scraped
            .get(&name)
            .and_then(|all| all.first())
            .unwrap_or_else(|| panic!("{of}: there is no metric {name}"));
        for (label, ..) in &matchers {
            let is_known = series.contains_key(label) || ADDED_LABELS.contains(&label.as_str());
            assert!(is_known, "{of}: {name} has no label {label}");
        }
        known.extend(series.keys().map(String::as_str));
    }
    for label in grouped(expression) {
        assert!(is_open || known.contains(label), "{of}: nothing has the label {label}");
    }
}

/// Whether there are series with the values that equality asks for.
fn has_series(scraped: &Scraped, name: &str, matchers: &[(String, String, String)]) -> bool {
    let fits = |labels: &BTreeMap<String, String>| {
        let mut equal = matchers.iter().filter(|(_, operator, _)| operator == "=");
        equal.all(|(label, _, value)| labels.get(label) == Some(value))
    };
    scraped.get(name).is_some_and(|all| all.iter().any(fits))
}

/// A metric in an expression, with its matchers: label, operator and value.
struct Selector {
    name: String,
    matchers: Vec<(String, String, String)>,
}

/// Returns the labels in the parentheses after `by` and `on`.
fn grouped(expression: &str) -> Vec<&str> {
    let mut labels = vec![];
    for start in [" by (", " on ("] {
        for part in expression.split(start).skip(1) {
            let list = part.split(')').next().unwrap_or_default();
            labels.extend(list.split(',').map(str::trim));
        }
    }
    labels
}

/// Returns the metrics of an expression: names that are no functions, keywords, or labels of a
/// grouping.
fn selectors(expression: &str) -> Vec<Selector> {
    let mut found = vec![];
    let mut rest = expression;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        // A number such as `8e9`, or a range such as `[5m]`.
        let before = rest[..start].chars().next_back();
        let word_end = rest[start..]
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
            .map_or(rest.len(), |length| start + length);
        let word = &rest[start..word_end];
        let after = &rest[word_end..];
        rest = after;
        let is_part = before.is_some_and(|c| c.is_ascii_digit() || c == '$');
        if is_part || KEYWORDS.contains(&word) {
            continue;
        }
        if matches!(word, "by" | "on" | "without") {
            rest = after.split_once(')').map_or("", |(_, rest)| rest);
            continue;
        }
        if after.starts_with('(') || after.starts_with(" by (") {
            continue;
        }
        let mut matchers = vec![];
        if let Some(inner) = after.strip_prefix('{') {
            let (inner, outside) = inner.split_once('}').expect("a closing brace");
            rest = outside;
            matchers = inner.split(',').filter_map(matcher).collect();
        }
        found.push(Selector { name: word.to_owned(), matchers });
    }
    found
}

fn matcher(text: &str) -> Option<(String, String, String)> {
    let (left, value) = text.split_once('"')?;
    let label = left.trim_end_matches(['=', '~', '!']);
    let operator = &left[label.len()..];
    Some((label.trim().to_owned(), operator.to_owned(), value.trim_end_matches('"').to_owned()))
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let Some(promtool) = prerequisites::promtool() else { return };
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]] {
        let run = Command::new(&promtool)
            .args(arguments)
            .current_dir(FOLDER)
            .output()
            .expect("promtool runs");
        assert!(run.status.success(), "{arguments:?}: {run:?}");
    }
}

#[test]
fn metrics_of_an_expression_are_found() {
    let expression = "histogram_quantile(0.99, sum by (job, le) (rate(a_bucket{job=\"k\",code=~\"5..\"}[5m]))) \
                      > 8e9 and on (job) b:c{verb!=\"X\"} or vector(0)";
    let found = selectors(expression);
    let names: Vec<&str> = found.iter().map(|selector| selector.name.as_str()).collect();
    assert_eq!(names, ["a_bucket", "b:c"]);
    assert_eq!(found[0].matchers[1], ("code".into(), "=~".into(), "5..".into()));
    assert_eq!(grouped(expression), ["job", "le", "job"]);
}
