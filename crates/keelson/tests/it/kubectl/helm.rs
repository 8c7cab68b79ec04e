//! Helm 3 and 4 with a simulated cluster: charts of different sort are installed, upgraded, tested,
//! rolled back and removed, and Helm waits for what they contain (`tests/charts`).

use super::{Kubectl, Row};
use keelson::{Keelson, Simulation};
use keelson_testkit::prerequisites::{HELM, HELM_3, kubernetes_program};
use std::thread;

/// A web application is ready when Helm is done.
const WEB: &[Row] = &[
    (
        "h install shop $CHARTS/web -n a --create-namespace --wait --timeout 60s",
        0,
        "http://shop.example/",
    ),
    ("k -n a get deployment shop-web -o jsonpath={.status.availableReplicas}", 0, "2"),
    ("k -n a get service shop-web -o jsonpath={..ingress[0].ip}", 0, "."),
    (
        "h upgrade shop $CHARTS/web -n a --set greeting=hi,replicas=3 --wait --timeout 60s",
        0,
        "REVISION: 2",
    ),
    (
        "k -n a get deployment shop-web -o jsonpath={.metadata.annotations}",
        0,
        "kubernetes.io/revision\":\"2\"",
    ),
    ("k -n a get deployment shop-web -o jsonpath={.status.availableReplicas}", 0, "3"),
    ("h test shop -n a --timeout 60s", 0, "Phase:          Succeeded"),
    ("h rollback shop 1 -n a --wait --timeout 60s", 0, "Rollback was a success"),
    ("k -n a get configmap shop-web -o jsonpath={.data.greeting}", 0, "hello"),
    ("h history shop -n a", 0, "Rollback to 1"),
    ("h upgrade shop $CHARTS/web -n a --set image=", 1, "[0].image: Required value"),
    ("h status shop -n a", 0, "STATUS: failed"),
    (
        "h install auto $CHARTS/web -n a --set autoscaling=true --wait --timeout 60s",
        0,
        "auto.example",
    ),
    ("k -n a wait hpa/auto-web --for=jsonpath={.status.desiredReplicas}=3 --timeout=60s", 0, "met"),
    ("h uninstall auto -n a --wait --timeout 60s", 0, "uninstalled"),
    ("h uninstall shop -n a --wait --timeout 60s", 0, "uninstalled"),
    ("k -n a get deployments,services,ingresses,pdb -o name | wc -l", 0, "0"),
];

/// A database keeps its password and its volumes.
const DATABASE: &[Row] = &[
    ("h install db $CHARTS/database --wait --timeout 60s", 0, "STATUS: deployed"),
    ("k get secret db-database -o jsonpath={.data.password} > before", 0, ""),
    ("k get pvc -o jsonpath={.items[*].status.phase}", 0, "Bound Bound"),
    (
        "h upgrade db $CHARTS/database --set version=2,replicas=3 --wait --timeout 60s",
        0,
        "REVISION: 2",
    ),
    ("k get secret db-database -o jsonpath={.data.password} | cmp - before", 0, ""),
    (
        "k get pods -l app=db-database -o jsonpath={..image}",
        0,
        "database:2 registry.example/database:2 registry.example/database:2",
    ),
    ("k get jobs -o name | wc -l", 0, "0"),
    (
        "h upgrade db $CHARTS/database --set version=3 --set-json migration='[\"false\"]' --timeout 60s",
        1,
        "failed",
    ),
    ("k get statefulset db-database -o jsonpath={..image}", 0, "database:2"),
    ("h rollback db 1 --wait --timeout 60s", 0, "Rollback was a success"),
    (
        "k wait statefulset/db-database --for=jsonpath={.status.updatedReplicas}=2 --timeout=60s",
        0,
        "met",
    ),
    ("h uninstall db --wait --timeout 60s", 0, "uninstalled"),
    ("k get pvc -o name | wc -l", 0, "3"),
];

/// Jobs and hooks are waited for.
const REPORTS: &[Row] = &[
    ("h install r $CHARTS/reports --wait --wait-for-jobs --timeout 60s", 0, "STATUS: deployed"),
    ("k get job r-first-1 -o jsonpath={.status.succeeded}{.status.completedIndexes}", 0, "50-4"),
    ("k get job r-announce -o jsonpath={.status.succeeded}", 0, "1"),
    (
        "h upgrade r $CHARTS/reports --set parallelism=5 --wait --wait-for-jobs --timeout 60s",
        0,
        "REVISION: 2",
    ),
    ("k get jobs -o name", 0, "job.batch/r-first-2"),
    ("k get job r-first-1", 1, "not found"),
    ("h test r --timeout 60s", 0, "Phase:          Succeeded"),
    ("k create job tonight --from=cronjob/r-reports", 0, "created"),
    ("k wait job/tonight --for=condition=Complete --timeout=60s", 0, "met"),
    (
        "h upgrade r $CHARTS/reports --set timeZone=Nowhere/Land",
        1,
        "unknown time zone Nowhere/Land",
    ),
    ("h rollback r 1 --wait --timeout 60s", 0, "Rollback was a success"),
    ("h uninstall r --wait --timeout 60s", 0, "uninstalled"),
];

/// An operator brings its definition.
const OPERATOR: &[Row] = &[
    ("h install op $CHARTS/operator --wait --timeout 60s", 0, "STATUS: deployed"),
    ("k get ship op -o jsonpath={.spec.sails}", 0, "3"),
    ("h upgrade op $CHARTS/operator --set sails=5 --wait --timeout 60s", 0, "REVISION: 2"),
    ("k get ship op -o jsonpath={.spec.sails}", 0, "5"),
    ("h upgrade op $CHARTS/operator --set sails=0", 1, "should be greater than or equal to 1"),
    ("h test op --timeout 60s", 0, "Phase:          Succeeded"),
    ("h rollback op 1 --wait --timeout 60s", 0, "Rollback was a success"),
    ("k get ship op -o jsonpath={.spec.sails}", 0, "3"),
    ("h uninstall op --wait --timeout 60s", 0, "uninstalled"),
    ("k get ships -o name | wc -l", 0, "0"),
    ("k get crd ships.charts.example -o name", 0, "ships.charts.example"),
];

/// An agent runs on each node; a part of it is a chart of its own.
const AGENT: &[Row] = &[
    ("h install a $CHARTS/agent --wait --timeout 60s", 0, "STATUS: deployed"),
    ("k get daemonset a-agent -o jsonpath={.status.numberReady}", 0, "3"),
    (
        "h upgrade a $CHARTS/agent --set level=debug,settings.interval=5s --wait --timeout 60s",
        0,
        "REVISION: 2",
    ),
    (
        "k get pods -l app=a-agent -o jsonpath={..args}",
        0,
        "[\"--level=debug\"] [\"--level=debug\"] [\"--level=debug\"]",
    ),
    ("k get configmap a-settings -o jsonpath={.data.interval}", 0, "5s"),
    ("h test a --timeout 60s", 0, "Phase:          Succeeded"),
    ("h upgrade a $CHARTS/agent --set settings.enabled=false --timeout 60s", 0, "REVISION: 3"),
    ("k get configmap a-settings", 1, "not found"),
    ("h rollback a 1 --wait --timeout 60s", 0, "Rollback was a success"),
    ("k get configmap a-settings -o jsonpath={.data.interval}", 0, "30s"),
    ("h uninstall a --wait --timeout 60s", 0, "uninstalled"),
    ("k get configmap a-farewell -o jsonpath={.data.level}", 0, "info"),
];

/// All at the same time: Helm waits most of the time.
#[test]
fn charts_are_installed_upgraded_tested_rolled_back_and_removed() {
    let helms =
        [(HELM_3, "helm3"), (HELM, "helm4")].map(|(of, name)| (name, kubernetes_program(of, name)));
    let charts = [
        ("web", WEB),
        ("database", DATABASE),
        ("reports", REPORTS),
        ("operator", OPERATOR),
        ("agent", AGENT),
    ];
    thread::scope(|scope| {
        for (name, helm) in &helms {
            for (chart, rows) in charts {
                let Some(helm) = helm.clone() else { continue };
                let builder = thread::Builder::new().name(format!("{chart} with {name}"));
                let work = move || {
                    let simulation = Simulation { nodes: 3, ..Simulation::default() };
                    let kubectl = Kubectl::start(Keelson::builder().simulate(simulation));
                    if let Some(mut kubectl) = kubectl {
                        kubectl.home.helm = Some(helm);
                        kubectl.run(rows);
                    }
                };
                builder.spawn_scoped(scope, work).expect("a thread");
            }
        }
    });
}
