//! Runs the stock kube-controller-manager and kube-scheduler 1.36 with Keelson instead of
//! kube-apiserver, and fake kubelets. Scenarios cover the usual work of a cluster. Their recorded
//! lines, and the errors in the logs of both programs, are compared with those of the same
//! scenarios with kube-apiserver (`files/swap.txt`, `files/swap_errors.txt`).
//!
//! A second test runs without kube-controller-manager: the results of Keelson's controllers are
//! compared with those of the stock ones with kube-apiserver (`files/own_loops.txt`).
//!
//! A third test runs without any of them: the scenarios of the first one have the same lines with
//! `--simulate`.
//!
//! `KEELSON_SWAP_RECORD=1` runs the scenarios with kube-apiserver and etcd and writes these files.
//! To `files/swap_errors.txt` errors are only added, because they differ from run to run.

mod availability;
mod cluster;
pub mod identity;
mod lifecycle;
mod own_objects;
mod own_pods;
mod restarts;
mod scene;
mod workloads;

use cluster::{Cluster, Programs};
use scene::Scene;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The name of a scenario, which is also that of its namespace, and its function.
type Row = (&'static str, fn(&Scene));

const SCENES: &[Row] = &[
    ("cronjob", workloads::cron_job),
    ("nodeloss", availability::node_loss),
    ("rollout", workloads::rollout),
    ("statefulset", workloads::stateful_set),
    ("jobs", workloads::jobs),
    ("daemonset", workloads::daemon_set),
    ("disruption", availability::disruption),
    ("endpoints", availability::endpoints),
    ("autoscaling", availability::autoscaling),
    ("namespace", lifecycle::namespace),
    ("garbage", lifecycle::garbage),
    ("csr", identity::certificates),
    ("token", identity::tokens),
];

/// Scenarios of Keelson's controllers. The test creates the Pods.
const OWN_LOOPS: &[Row] = &[
    ("namespace", own_pods::namespace),
    ("garbage", own_objects::garbage),
    ("endpoints", own_pods::endpoints),
    ("disruption", own_pods::disruption),
    ("claims", own_pods::claims),
    ("quota", own_pods::quota),
    ("finished", own_pods::finished),
    ("csr", identity::certificates),
    ("signer", own_objects::refused_certificate),
    ("token", identity::tokens),
    ("accounts", own_objects::accounts),
    ("bootstrap", own_objects::bootstrap_tokens),
    ("roles", own_objects::roles),
    ("policies", own_objects::policies),
    ("volumes", own_objects::volumes),
    ("addresses", own_objects::addresses),
];
/// Flags of kube-controller-manager: with two controllers that are off by default.
const THE_SAME_LOOPS: &str = "--controllers=*,bootstrap-signer-controller,token-cleaner-controller";

/// The result of all scenarios.
struct Outcome {
    /// Recorded lines, each with the name of its scenario.
    lines: Vec<String>,
    /// Errors in the logs of both programs.
    errors: BTreeSet<String>,
}

fn walk(cluster: &Cluster, scenes: &[Row]) -> Outcome {
    let mut lines: Vec<String> = std::thread::scope(|scope| {
        let scenes: Vec<_> = scenes
            .iter()
            .map(|(name, run)| {
                scope.spawn(move || {
                    let scene = Scene::new(cluster, name);
                    run(&scene);
                    scene.into_lines()
                })
            })
            .collect();
        scenes.into_iter().flat_map(|scene| scene.join().expect("a scene ends well")).collect()
    });
    let errors = cluster.kubelets.iter().flat_map(|kubelet| kubelet.errors());
    lines.extend(errors.map(|error| format!("kubelet: {error}")));
    Outcome { lines, errors: cluster.errors() }
}

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "it", "files", name].iter().collect()
}

/// Returns whether the scenarios are to be recorded with kube-apiserver.
fn is_recording() -> bool {
    std::env::var_os("KEELSON_SWAP_RECORD").is_some()
}

fn record(name: &str, lines: impl IntoIterator<Item = String>) {
    let text: String = lines.into_iter().map(|line| line + "\n").collect();
    std::fs::write(file(name), text).expect("a recording can be written");
}

/// Compares the lines of a run with the recorded ones.
fn compare(lines: &[String], recorded: &str) {
    let got = lines.join("\n");
    let want = recorded.trim_end();
    if got != want {
        let got: BTreeSet<&str> = got.lines().collect();
        let want: BTreeSet<&str> = want.lines().collect();
        let missing: Vec<_> = want.difference(&got).collect();
        let other: Vec<_> = got.difference(&want).collect();
        panic!("kube-apiserver: {missing:#?}\nKeelson: {other:#?}");
    }
}

#[test]
fn kube_controllers_and_scheduler_reach_the_state_of_kube_apiserver() {
    let Some(programs) = Programs::find() else { return };
    if is_recording() {
        let Some(cluster) = Cluster::of_reference(&programs, &[]) else { return };
        let Outcome { lines, mut errors } = walk(&cluster, SCENES);
        record("swap.txt", lines);
        let known = std::fs::read_to_string(file("swap_errors.txt")).unwrap_or_default();
        errors.extend(known.lines().map(str::to_owned));
        record("swap_errors.txt", errors);
        return;
    }
    let cluster = Cluster::of_keelson(&programs);
    let outcome = walk(&cluster, SCENES);
    assert!(cluster.has_stepped_aside(), "Keelson's own loops ran beside those of the manager");
    compare(&outcome.lines, include_str!("files/swap.txt"));
    let known: BTreeSet<&str> = include_str!("files/swap_errors.txt").lines().collect();
    let new: Vec<_> = outcome.errors.iter().filter(|line| !known.contains(line.as_str())).collect();
    assert!(new.is_empty(), "errors that are not met with kube-apiserver: {new:#?}");
}

#[test]
fn own_controllers_reach_the_state_of_kube_controller_manager() {
    if is_recording() {
        let Some(programs) = Programs::find() else { return };
        let cluster = Cluster::of_reference(&programs, &[THE_SAME_LOOPS]);
        let Some(cluster) = cluster else { return };
        record("own_loops.txt", walk(&cluster, OWN_LOOPS).lines);
        return;
    }
    let outcome = walk(&Cluster::of_keelson_alone(), OWN_LOOPS);
    compare(&outcome.lines, include_str!("files/own_loops.txt"));
}

#[test]
fn simulated_controllers_and_scheduler_reach_the_state_of_the_stock_ones() {
    if is_recording() {
        return;
    }
    let outcome = walk(&Cluster::of_simulation(), SCENES);
    compare(&outcome.lines, include_str!("files/swap.txt"));
}
