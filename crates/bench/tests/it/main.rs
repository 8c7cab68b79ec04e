//! Runs the program against a server, with tiny stores and times: only the presence of figures is
//! tested, not their values.

use keelson::Keelson;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Flags for tiny stores and times.
const SMALL: [&str; 4] = ["--seconds", "0.05", "--scale", "0.001"];

fn run(kubeconfig: &Path, args: &[&str]) -> Output {
    let pid = std::process::id().to_string();
    Command::new(env!("CARGO_BIN_EXE_keelson-bench"))
        .args(["run", "-o", "json", "--objects", "40", "--watchers", "3", "--nodes", "3"])
        .args(["--connections", "2"])
        .args(["--pid", &pid, "--note", "a try", "--kubeconfig"])
        .arg(kubeconfig)
        .args(SMALL)
        .args(args)
        .output()
        .expect("the program runs")
}

fn figures(output: &Output) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    assert!(report["note"].as_str().is_some_and(|note| note.starts_with("a try, ")), "{report}");
    let figures = report["figures"].as_array().expect("figures");
    let text = |figure: &Value| figure["figure"].as_str().unwrap_or_default().to_owned();
    let errors: Vec<&Value> =
        figures.iter().filter(|figure| text(figure).starts_with("error")).collect();
    assert!(errors.iter().all(|figure| figure["value"] == 0.0), "{errors:?}");
    figures.clone()
}

/// Returns the value of a figure, which must occur once.
fn value(figures: &[Value], profile: &str, what: &str) -> f64 {
    let found: Vec<&Value> = figures
        .iter()
        .filter(|figure| figure["profile"] == profile && figure["figure"] == what)
        .collect();
    assert_eq!(found.len(), 1, "{profile}, {what}: {figures:?}");
    found[0]["value"].as_f64().unwrap_or_else(|| panic!("{found:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_profile_measures_the_server_of_a_kubeconfig() {
    let keelson = Keelson::builder().in_memory().start().await.expect("start");
    let dir = tempfile::tempdir().expect("a folder");
    let kubeconfig = dir.path().join("kubeconfig");
    keelson.kubeconfig().save(&kubeconfig).expect("save");
    let all = ["update", "patch", "apply", "create", "delete", "lease", "access", "mixed"];
    let got = figures(&run(&kubeconfig, &all));
    assert!(value(&got, "apply, 2 connections, 1024 B", "rate") > 0.0);
    assert!(value(&got, "mixed, 3 nodes", "rate") > 0.0);
    let access = "get a Pod as a service account, 2 connections";
    assert!(value(&got, access, "administrator's rate over its") > 0.0);
    for protocol in [None, Some("--http2")] {
        let args: Vec<&str> = ["get", "list", "watch"].into_iter().chain(protocol).collect();
        let got = figures(&run(&kubeconfig, &args));
        assert!(value(&got, "get, 2 connections, 1024 B", "rate") > 0.0);
        assert!(value(&got, "list 40 whole, protobuf, cached", "throughput") > 0.0);
        assert!(value(&got, "watch, 3 watchers, 4 writers", "p99.9") > 0.0);
    }

    let output = run(&kubeconfig, &["budget", "growth"]);
    let got = figures(&output);
    let lines: Vec<&Value> = got.iter().filter(|figure| figure["profile"] == "budget").collect();
    assert_eq!(lines.len(), 59);
    // Without --spawn no server is started, and budgets do not apply to a scaled-down store.
    assert!(lines[0]["note"].as_str().is_some_and(|note| note.contains("--spawn")));
    assert!(lines.iter().all(|line| line["met"].is_null()));
    assert!(value(&got, "budget", "get Pod, 64 connections") > 0.0);
    let account = "get Pod, administrator's rate over a service account's";
    assert!(value(&got, "budget", account) > 0.0);
    let flood = "get of a tenant while another floods with lists, p99";
    assert!(value(&got, "budget", flood) > 0.0);
    // The CPU time of a process that tests share may even be negative here.
    value(&got, "budget", "server CPU per call of an admission webhook");
    assert!(value(&got, "budget", "watch fan-out, 1,000 watchers, 1 KB events") > 0.0);
    let steps: Vec<&Value> =
        got.iter().filter(|figure| figure["profile"] == "growth with watchers").collect();
    assert!(!steps.is_empty() && steps.iter().all(|figure| figure["value"].is_number()));

    let saved = dir.path().join("result.json");
    std::fs::write(&saved, &output.stdout).expect("write");
    let page = Command::new(env!("CARGO_BIN_EXE_keelson-bench"))
        .args(["show", "-o", "markdown"])
        .args([saved.as_path(), Path::new("--compare"), saved.as_path()])
        .output()
        .expect("the program runs");
    let page = String::from_utf8(page.stdout).expect("text");
    assert!(page.starts_with("## Budgets\n\na try, "), "{page}");
    assert!(page.contains("(1.00 of ours)"), "{page}");
    keelson.stop().await;
}

#[test]
fn without_an_etcd_the_report_has_one_line_with_the_reason() {
    let check = |args: &[&str], why: &str| {
        let got = figures(&run(Path::new("kubeconfig"), &[&["etcd"], args].concat()));
        let [line] = &got[..] else { panic!("{got:?}") };
        assert_eq!((line["profile"].as_str(), &line["value"]), (Some("on etcd"), &Value::Null));
        assert!(line["note"].as_str().is_some_and(|note| note.contains(why)), "{line}");
    };
    check(&[], "--spawn names no program");
    check(&["--spawn", "keelson", "--etcd", "/no/such/etcd"], "no such etcd program");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_violated_promise_fails_the_run() {
    let keelson = Keelson::builder().in_memory().start().await.expect("start");
    let dir = tempfile::tempdir().expect("a folder");
    let kubeconfig = dir.path().join("kubeconfig");
    keelson.kubeconfig().save(&kubeconfig).expect("save");
    // Too short to contain a whole second after the burst.
    let output = run(&kubeconfig, &["soak"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("promises that did not hold: p99 was not back"), "{stderr}");
    let got = figures(&output);
    assert_eq!(value(&got, "soak", "errors"), 0.0);
    assert!(value(&got, "soak, burst over 192 connections", "p99 of others before") > 0.0);
    keelson.stop().await;
}
