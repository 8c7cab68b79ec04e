//! The swap: stock kube-controller-manager and kube-scheduler 1.36 against Keelson in the place of kube-apiserver,
//! with fake kubelets. They walk through what a cluster does all day; what comes of it is compared, line by line,
//! with what came of the same walk against kube-apiserver (`files/swap.txt`), and so are the errors in the logs of
//! both programs.
//!
//! `KEELSON_SWAP_RECORD=1` walks against kube-apiserver and etcd, and writes that file and `files/swap_errors.txt`
//! (to which errors are only added: which of them a run meets is partly chance).

mod availability;
mod cluster;
mod identity;
mod lifecycle;
mod restarts;
mod scene;
mod workloads;

use cluster::{Cluster, Programs};
use scene::Scene;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A part of the walk, which has a namespace of its own.
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

/// What a walk came to.
struct Outcome {
    /// What the scenes found, each line with the name of its scene.
    lines: Vec<String>,
    /// Errors in the logs of the two programs.
    errors: BTreeSet<String>,
}

fn walk(cluster: &Cluster) -> Outcome {
    let mut lines: Vec<String> = std::thread::scope(|scope| {
        let scenes: Vec<_> = SCENES
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
    let faults = cluster.kubelets.iter().flat_map(|kubelet| kubelet.faults());
    lines.extend(faults.map(|fault| format!("kubelet: {fault}")));
    Outcome { lines, errors: cluster.errors() }
}

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "it", "files", name].iter().collect()
}

fn record(outcome: Outcome) {
    let known = std::fs::read_to_string(file("swap_errors.txt")).unwrap_or_default();
    let mut errors = outcome.errors;
    errors.extend(known.lines().map(str::to_owned));
    let text =
        |lines: Vec<String>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    std::fs::write(file("swap.txt"), text(outcome.lines)).expect("outcomes can be written");
    std::fs::write(file("swap_errors.txt"), text(errors.into_iter().collect()))
        .expect("errors can be written");
}

#[test]
fn stock_controllers_and_scheduler_do_not_notice() {
    let Some(programs) = Programs::find() else { return };
    if std::env::var_os("KEELSON_SWAP_RECORD").is_some() {
        let Some(cluster) = Cluster::of_reference(&programs) else { return };
        record(walk(&cluster));
        return;
    }
    let cluster = Cluster::of_keelson(&programs);
    let outcome = walk(&cluster);
    assert!(cluster.has_stepped_aside(), "Keelson's own loops ran beside those of the manager");
    let recorded = include_str!("files/swap.txt");
    let (got, want) = (outcome.lines.join("\n"), recorded.trim_end());
    if got != want {
        let got: BTreeSet<&str> = got.lines().collect();
        let want: BTreeSet<&str> = want.lines().collect();
        let missing: Vec<_> = want.difference(&got).collect();
        let other: Vec<_> = got.difference(&want).collect();
        panic!("kube-apiserver: {missing:#?}\nKeelson: {other:#?}");
    }
    let known: BTreeSet<&str> = include_str!("files/swap_errors.txt").lines().collect();
    let new: Vec<_> = outcome.errors.iter().filter(|line| !known.contains(line.as_str())).collect();
    assert!(new.is_empty(), "errors that are not met with kube-apiserver: {new:#?}");
}
