//! Runs the real kubectl: tables of commands, the exit code of each, and a part of
//! its output. Commands run in a shell, in which `k` is kubectl and `h` Helm with the server's
//! kubeconfig.

mod custom;
mod helm;
pub mod home;
mod sample;
mod simulation;
pub mod streams;
mod top;

use crate::http::{Client, POLL_TIMEOUT, Server, without_controllers};
use home::Home;
use keelson::Keelson;
use keelson_testkit::prerequisites::{
    KUBECTL, KUBECTL_NEWEST, KUBECTL_OLDEST, kubernetes_program, peer_or_installed, prerequisite,
};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// A command, its exit code, and a part of its output or error output.
type Row<'a> = (&'a str, i32, &'a str);

/// Ten kinds.
const SHOP: &str = include_str!("files/shop.yaml");
/// The charts that the tests install.
const CHARTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/charts");
/// The start of each shell command.
const PRELUDE: &str = r#"cd "$HOME"
k() { "$KUBECTL" --kubeconfig=admin.kubeconfig --cache-dir=cache "$@"; }
h() { "$HELM" --kubeconfig=admin.kubeconfig "$@"; }
"#;

/// Returns the kubectl of the version that Keelson has.
pub fn stock_kubectl() -> Option<PathBuf> {
    let program = peer_or_installed("kubectl");
    let found = Command::new(&program).args(["version", "--client"]).output();
    let found = found.ok().filter(|output| output.status.success());
    prerequisite(KUBECTL, found.map(|_| program))
}

/// Returns each kubectl that is there: the oldest, the one of Keelson's version, the newest.
fn every_kubectl() -> Vec<PathBuf> {
    let oldest = kubernetes_program(KUBECTL_OLDEST, KUBECTL_OLDEST.name);
    let newest = kubernetes_program(KUBECTL_NEWEST, KUBECTL_NEWEST.name);
    [oldest, stock_kubectl(), newest].into_iter().flatten().collect()
}

/// A server, and a home directory for kubectl.
struct Kubectl {
    server: Server,
    home: Home,
}

impl Deref for Kubectl {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

impl Kubectl {
    /// Starts a server; `None` if kubectl is missing.
    fn start(builder: keelson::Builder) -> Option<Kubectl> {
        let program = stock_kubectl()?;
        let server = Server::start(builder);
        let home = Home::new(program, server.keelson.kubeconfig().text());
        std::fs::write(home.dir.path().join("shop.yaml"), SHOP).expect("a file");
        Some(Kubectl { server, home })
    }
}

/// Runs rows with a new server.
fn check(rows: &[Row]) {
    check_with(Keelson::builder().in_memory(), rows);
}

fn check_with(builder: keelson::Builder, rows: &[Row]) {
    if let Some(kubectl) = Kubectl::start(builder) {
        kubectl.run(rows);
        kubectl.server.stop();
    }
}

#[test]
fn discovery_and_identity() {
    check(&[
        ("k version", 0, "Server Version: v1.36"),
        ("k version -o json", 0, r#""gitVersion": "v1.36"#),
        ("k cluster-info", 0, "control plane"),
        ("k api-resources", 0, "deployments"),
        ("k api-resources --verbs=list --namespaced=false -o name", 0, "nodes"),
        ("k api-resources --api-group=apps -o wide", 0, "StatefulSet"),
        ("k api-resources | wc -l", 0, "68"),
        ("k api-versions", 0, "admissionregistration.k8s.io/v1"),
        ("k explain pod.spec.containers", 0, "FIELD: containers <[]Container>"),
        ("k explain pod --recursive", 0, "preferredDuringSchedulingIgnoredDuringExecution"),
        ("k explain deploy.spec.strategy.type", 0, "ENUM:\n    Recreate\n    RollingUpdate\n"),
        ("k explain hpa --api-version=autoscaling/v1", 0, "VERSION:    v1"),
        ("k explain pod.spec.nothing", 1, r#"field "nothing" does not exist"#),
        ("k auth can-i create pods", 0, "yes"),
        ("k auth can-i --list", 0, "*.*"),
        ("k auth can-i get pods --as=nobody", 1, "no"),
        ("k auth whoami", 0, "system:masters"),
        ("k auth whoami -o yaml", 0, "kind: SelfSubjectReview"),
        ("k get --raw /readyz", 0, "ok"),
        ("k get --raw /version", 0, "v1.36"),
        ("k get nothings", 1, "doesn't have a resource type"),
        ("k get pod absent", 1, r#"pods "absent" not found"#),
        ("k events", 0, "No events found"),
    ]);
}

#[test]
fn objects_are_created_by_generators() {
    check(&[
        ("k create ns shop", 0, "namespace/shop created"),
        ("k create ns shop", 1, "already exists"),
        ("k create ns Shop", 1, "a lowercase RFC 1123 label"),
        ("k create deployment web --image=nginx --replicas=2 --port=80", 0, "web created"),
        ("k create cm settings --from-literal=a=b", 0, "configmap/settings created"),
        ("k create secret generic word --from-literal=a=b", 0, "secret/word created"),
        ("k create secret docker-registry hub --docker-username=u --docker-password=p", 0, "hub"),
        ("k create service clusterip web --tcp=80:8080", 0, "service/web created"),
        ("k create service nodeport out --tcp=80 --node-port=30080", 0, "service/out created"),
        ("k create job once --image=busybox -- true", 0, "job.batch/once created"),
        ("k create cronjob tidy --image=busybox --schedule='0 3 * * *'", 0, "tidy created"),
        ("k create job now --from=cronjob/tidy", 0, "job.batch/now created"),
        ("k create role reader --verb=get,list --resource=pods", 0, "reader created"),
        ("k create rolebinding r --role=reader --user=u", 0, "r created"),
        ("k create clusterrole all --verb='*' --resource='*.*'", 0, "all created"),
        ("k create clusterrolebinding all --clusterrole=all --group=g", 0, "all created"),
        ("k create sa robot", 0, "serviceaccount/robot created"),
        ("k create quota few --hard=pods=3", 0, "resourcequota/few created"),
        ("k create pdb web --min-available=1 --selector=app=web", 0, "web created"),
        ("k create priorityclass high --value=100", 0, "high created"),
        ("k create ingress web --rule=a.example.org/*=web:80", 0, "web created"),
        ("k run one --image=nginx --labels=app=one", 0, "pod/one created"),
        ("k expose deployment web --name=web2 --port=80", 0, "service/web2 exposed"),
        ("k autoscale deployment web --max=5", 0, "web autoscaled"),
        ("k create cm dry --from-literal=a=b --dry-run=server", 0, "created (server dry run)"),
        ("k get cm dry", 1, "not found"),
        ("k get all", 0, "deployment.apps/web"),
    ]);
}

#[test]
fn objects_are_shown_in_every_format() {
    check(&[
        ("k apply -f shop.yaml", 0, "networkpolicy.networking.k8s.io/web created"),
        ("k -n shop get deploy", 0, "READY   UP-TO-DATE   AVAILABLE   AGE"),
        ("k -n shop get deploy -o wide", 0, "nginx:1"),
        ("k -n shop get deploy web -o yaml", 0, "  replicas: 2\n"),
        ("k -n shop get deploy web -o json", 0, r#""kind": "Deployment""#),
        ("k -n shop get deploy web -o jsonpath='{.spec.replicas}'", 0, "2"),
        ("k -n shop get deploy -o custom-columns=A:.metadata.name", 0, "A\nweb\n"),
        ("k -n shop get deploy -o name", 0, "deployment.apps/web"),
        ("k -n shop get deploy web --template='{{.spec.replicas}}'", 0, "2"),
        ("k -n shop get deploy,svc,cm", 0, "configmap/settings"),
        ("k -n shop get svc --show-labels", 0, "app=web"),
        ("k -n shop get svc -L app", 0, "APP"),
        ("k -n shop get svc -o wide", 0, "SELECTOR"),
        ("k -n shop get secret password -o jsonpath='{.data.word}'", 0, "c3dvcmRmaXNo"),
        ("k get deploy -A", 0, "shop        web"),
        ("k get svc -A -l app=web -o name | wc -l", 0, "1"),
        ("k get svc -A -l 'app in (web,x)' -o name", 0, "service/web"),
        ("k get svc -A -l '!app' -o name", 0, "service/kubernetes"),
        ("k get svc -A --field-selector=metadata.name=kubernetes -o name", 0, "kubernetes"),
        ("k get svc -A --field-selector=spec.colour=red", 1, "field label not supported"),
        ("k get ns --sort-by=.metadata.name -o name | tail -1", 0, "namespace/shop"),
        ("k get ns --chunk-size=1 -o name | wc -l", 0, "5"),
        ("k -n shop get deploy web --show-managed-fields -o yaml", 0, "kubectl-client-side-apply"),
        ("k -n shop get deploy web --subresource=scale", 0, "web"),
        ("k get ingress -A", 0, "shop.example.org"),
    ]);
}

#[test]
fn applied_files_stay_unchanged() {
    check(&[
        ("k apply -f shop.yaml | grep -c ' created$'", 0, "10"),
        ("k apply -f shop.yaml | grep -c ' unchanged$'", 0, "10"),
        ("k apply -f shop.yaml | grep -vc ' unchanged$'", 1, "0"),
        ("k diff -f shop.yaml", 0, ""),
        ("sed s/red/blue/ shop.yaml > blue.yaml", 0, ""),
        ("k diff -f blue.yaml", 1, "+  colour: blue"),
        ("k apply -f blue.yaml --dry-run=server | grep -v unchanged", 0, "configured"),
        ("k diff -f blue.yaml", 1, "-  colour: red"),
        ("k apply -f blue.yaml | grep -v unchanged", 0, "configmap/settings configured"),
        ("k diff -f blue.yaml", 0, ""),
        ("k apply view-last-applied -n shop cm settings", 0, "colour: blue"),
        ("k create cm free --from-literal=a=b --dry-run=client -o yaml > free.yaml", 0, ""),
        ("k apply --server-side --field-manager=one -f free.yaml", 0, "serverside-applied"),
        ("k apply --server-side --field-manager=one -f free.yaml", 0, "serverside-applied"),
        ("sed 's/a: b/a: c/' free.yaml > taken.yaml", 0, ""),
        ("k apply --server-side --field-manager=two -f taken.yaml", 1, "conflict with \"one\""),
        ("k get cm free -o jsonpath='{.data.a}'", 0, "b"),
        ("k diff --server-side --field-manager=two --force-conflicts -f taken.yaml", 1, "+  a: c"),
        (
            "k apply --server-side --field-manager=two --force-conflicts -f taken.yaml",
            0,
            "serverside-applied",
        ),
        ("k get cm free -o jsonpath='{.data.a}'", 0, "c"),
        ("k apply --server-side -f shop.yaml --force-conflicts | wc -l", 0, "10"),
        ("k delete -f shop.yaml --ignore-not-found", 0, "\"shop\" deleted"),
    ]);
}

#[test]
fn objects_are_changed_in_place() {
    check(&[
        ("k create deployment web --image=nginx:1", 0, "created"),
        ("k create cm settings --from-literal=colour=red", 0, "created"),
        ("k label cm settings tier=gold", 0, "labeled"),
        ("k label cm settings tier=iron", 1, "already has a value"),
        ("k label cm settings tier=iron --overwrite", 0, "labeled"),
        ("k get cm -l tier=iron -o name", 0, "configmap/settings"),
        ("k label cm settings tier-", 0, "unlabeled"),
        ("k annotate cm settings note=hello", 0, "annotated"),
        ("k annotate cm settings note-", 0, "annotated"),
        ("k set image deploy/web nginx=nginx:2", 0, "image updated"),
        ("k get deploy web -o jsonpath='{..image}'", 0, "nginx:2"),
        ("k set env deploy/web A=b", 0, "env updated"),
        ("k set resources deploy/web --limits=cpu=1", 0, "resource requirements updated"),
        ("k scale deploy web --replicas=3", 0, "scaled"),
        ("k get deploy web -o jsonpath='{.spec.replicas}'", 0, "3"),
        ("k scale deploy web --current-replicas=9 --replicas=1", 1, "xpected replicas to be 9"),
        (r#"k patch cm settings -p '{"data":{"a":"1"}}'"#, 0, "patched"),
        (r#"k patch cm settings -p '{"data":{"a":"1"}}'"#, 0, "patched (no change)"),
        (r#"k patch cm settings --type=merge -p '{"data":{"b":"2"}}'"#, 0, "patched"),
        (
            r#"k patch cm settings --type=json -p '[{"op":"remove","path":"/data/a"}]'"#,
            0,
            "patched",
        ),
        (
            r#"k patch cm settings --type=json -p '[{"op":"remove","path":"/data/a"}]'"#,
            1,
            "the server rejected our request",
        ),
        ("k get cm settings -o jsonpath='{.data}'", 0, r#"{"b":"2","colour":"red"}"#),
        ("KUBE_EDITOR='sed -i s/red/blue/' k edit cm settings", 0, "edited"),
        ("KUBE_EDITOR=true k edit cm settings", 0, "no changes made"),
        ("k get cm settings -o jsonpath='{.data.colour}'", 0, "blue"),
        ("k get cm settings -o yaml | sed s/blue/green/ > new.yaml", 0, ""),
        ("k replace -f new.yaml", 0, "replaced"),
        ("k replace -f new.yaml", 1, "the object has been modified"),
        ("k replace --force -f new.yaml", 0, "replaced"),
        ("k get cm settings -o jsonpath='{.data.colour}'", 0, "green"),
        (r#"k patch deploy web -p '{"spec":{"replicas":-1}}'"#, 1, "greater than or equal to 0"),
        (
            r#"k patch deploy web -p '{"spec":{"colour":"red"}}'"#,
            0,
            r#"unknown field "spec.colour""#,
        ),
    ]);
}

#[test]
fn rollouts_are_followed() {
    check(&[
        ("k create deployment web --image=nginx:1", 0, "created"),
        ("k rollout history deploy/web", 0, "No rollout history found."),
        ("k rollout status deploy/web --watch=false", 0, "Waiting for deployment"),
        (
            r#"k patch deploy web --subresource=status --type=merge -p '{"status":
            {"observedGeneration":99,"replicas":1,"updatedReplicas":1,"readyReplicas":1,
            "availableReplicas":1}}'"#,
            0,
            "patched",
        ),
        ("k rollout status deploy/web --timeout=20s", 0, "successfully rolled out"),
        ("k get deploy web --no-headers", 0, "1/1"),
        ("k rollout restart deploy/web", 0, "restarted"),
        ("k get deploy web -o yaml", 0, "kubectl.kubernetes.io/restartedAt"),
        ("k rollout pause deploy/web", 0, "paused"),
        ("k rollout resume deploy/web", 0, "resumed"),
        ("k get deploy web -o jsonpath='{.metadata.generation}'", 0, "4"),
    ]);
}

#[test]
fn ten_kinds_are_described() {
    check(&[
        ("k apply -f shop.yaml", 0, "created"),
        ("k -n shop run one --image=nginx", 0, "created"),
        ("k -n shop create job once --image=busybox", 0, "created"),
        ("k -n shop describe deploy web", 0, "RollingUpdateStrategy"),
        ("k -n shop describe pod one", 0, "Image:"),
        ("k -n shop describe svc web", 0, "Session Affinity:"),
        ("k -n shop describe cm settings", 0, "colour:"),
        ("k -n shop describe secret password", 0, "word:  9 bytes"),
        ("k -n shop describe sa web", 0, "Image pull secrets:"),
        ("k -n shop describe role reader", 0, "[get list]"),
        ("k -n shop describe ingress web", 0, "shop.example.org"),
        ("k -n shop describe netpol web", 0, "PodSelector:"),
        ("k -n shop describe cronjob tidy", 0, "Schedule:"),
        ("k -n shop describe job once", 0, "Completions:"),
        ("k describe ns shop", 0, "Status:       Active"),
        ("k describe priorityclass system-node-critical", 0, "2000001000"),
        ("k describe svc kubernetes", 0, "component=apiserver"),
    ]);
}

#[test]
fn objects_are_waited_for() {
    check(&[
        ("k create cm held --from-literal=a=b", 0, "created"),
        ("k wait --for=jsonpath='{.data.a}'=b cm/held --timeout=20s", 0, "condition met"),
        ("k wait --for=jsonpath='{.data.a}'=c cm/held --timeout=1s", 1, "timed out"),
        (
            r#"k wait --for=jsonpath='{.data.a}'=c cm/held --timeout=20s & waits=$!
            k patch cm held -p '{"data":{"a":"c"}}'; wait $waits"#,
            0,
            "condition met",
        ),
        (r#"k patch cm held -p '{"metadata":{"finalizers":["example.org/hold"]}}'"#, 0, "patched"),
        ("k delete cm held --wait=false", 0, "deleted"),
        ("k wait --for=delete cm/held --timeout=1s", 1, "timed out"),
        (
            r#"k wait --for=delete cm/held --timeout=20s & waits=$!
            k patch cm held --type=merge -p '{"metadata":{"finalizers":null}}'; wait $waits"#,
            0,
            "patched",
        ),
        ("k get cm held", 1, "not found"),
        ("k wait --for=create cm/kube-root --timeout=1s", 1, "timed out"),
    ]);
}

#[test]
fn objects_are_deleted_in_every_way() {
    const FINALIZERS: &str = "k get deploy web -o jsonpath='{.metadata.finalizers}'";
    const FREE: &str = r#"k patch deploy web --type=merge -p '{"metadata":{"finalizers":null}}'"#;
    const MAKE: &str = "k create deployment web --image=nginx";
    check_with(
        without_controllers().in_memory(),
        &[
            ("for i in a b c d; do k create cm $i; k label cm $i app=$i; done", 0, "created"),
            ("k delete cm a", 0, r#"configmap "a" deleted"#),
            ("k delete cm a", 1, "not found"),
            ("k delete cm a --ignore-not-found", 0, ""),
            ("k delete cm -l app=b", 0, r#"configmap "b" deleted"#),
            ("k get cm -o name | tr '\\n' ' '", 0, "configmap/c configmap/d"),
            ("k delete cm --all --dry-run=server", 0, "server dry run"),
            ("k delete cm --all", 0, r#"configmap "d" deleted"#),
            ("k get cm", 0, "No resources found"),
            (MAKE, 0, "created"),
            ("k delete deploy web --cascade=orphan --wait=false", 0, "deleted"),
            (FINALIZERS, 0, r#"["orphan"]"#),
            (FREE, 0, "patched"),
            (MAKE, 0, "created"),
            ("k delete deploy web --cascade=foreground --wait=false", 0, "deleted"),
            (FINALIZERS, 0, r#"["foregroundDeletion"]"#),
            (FREE, 0, "patched"),
            (MAKE, 0, "created"),
            ("k delete deploy web --cascade=background", 0, "deleted"),
            ("k get deploy web", 1, "not found"),
            ("k run one --image=nginx", 0, "created"),
            ("k delete pod one --now", 0, "deleted"),
            ("k run one --image=nginx", 0, "created"),
            ("k delete pod one --force --grace-period=0", 0, "force deleted"),
            ("k delete ns default --timeout=20s", 1, "this namespace may not be deleted"),
        ],
    );
}

#[test]
fn a_deleted_namespace_removes_its_contents() {
    check(&[
        ("k apply -f shop.yaml", 0, "created"),
        ("k delete ns shop --timeout=20s", 0, "\"shop\" deleted"),
        ("k get ns shop", 1, "not found"),
        ("k -n shop get all,cm,secret,ingress,role,netpol", 0, "No resources found"),
        ("k apply -f shop.yaml | grep -c ' created$'", 0, "10"),
    ]);
}

#[test]
fn events_are_listed() {
    const EVENT: &str = r#"uid=$(k get pod one -o jsonpath='{.metadata.uid}')
        echo '{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "one",
            "namespace": "default", "uid": "'$uid'"},
        "reason": "Started", "message": "it runs", "type": "Normal", "count": 1,
        "lastTimestamp": "2024-01-01T00:00:00Z"}' | k create -f -"#;
    check(&[
        ("k run one --image=nginx", 0, "created"),
        ("k events", 0, "No events found in default namespace."),
        (EVENT, 0, "event/e created"),
        ("k events", 0, "it runs"),
        ("k events --for pod/one", 0, "it runs"),
        ("k events --types=Warning", 0, "No events found"),
        ("k get events", 0, "Started"),
        ("k get events.events.k8s.io", 0, "it runs"),
        ("k describe pod one", 0, "it runs"),
    ]);
}

#[test]
fn watches_show_changes() {
    let builder = Keelson::builder().in_memory().no_controllers();
    let Some(kubectl) = Kubectl::start(builder) else { return };
    kubectl.run(&[("k create cm first", 0, "created")]);
    let path = "\"$KUBECTL\" --kubeconfig=admin.kubeconfig --cache-dir=cache";
    let mut table = kubectl.spawn(&format!("{path} get cm --watch"));
    let mut names = kubectl.spawn(&format!("{path} get cm -o name --watch"));
    assert!(table.line().starts_with("NAME"));
    assert!(table.line().starts_with("first"));
    assert_eq!(names.line(), "configmap/first");
    kubectl.run(&[("k create cm second", 0, "created"), ("k label cm first a=b", 0, "labeled")]);
    assert!(table.line().starts_with("second"));
    assert!(table.line().starts_with("first"));
    assert_eq!(names.line(), "configmap/second");
    assert_eq!(names.line(), "configmap/first");
    let events = format!("{path} get cm --watch-only --output-watch-events");
    let mut events = kubectl.spawn(&events);
    // The start of the watch cannot be observed, so changes continue until it prints one.
    let deadline = Instant::now() + POLL_TIMEOUT;
    let mut round = 0;
    while events.lines.try_recv().is_err() {
        assert!(Instant::now() < deadline, "the watch sees nothing");
        let label = format!("k label --overwrite cm first round={round} > label.txt");
        assert!(kubectl.shell(&label).status().expect("a shell").success());
        round += 1;
    }
    assert!(events.line().contains("MODIFIED"));
    kubectl.server.stop();
}

#[test]
fn the_proxy_carries_plain_requests() {
    let Some(kubectl) = Kubectl::start(Keelson::builder().in_memory()) else { return };
    let path = "\"$KUBECTL\" --kubeconfig=admin.kubeconfig --cache-dir=cache";
    let mut proxy = kubectl.spawn(&format!("{path} proxy --port=0"));
    let line = proxy.line();
    let address = line.rsplit(' ').next().and_then(|word| word.parse().ok());
    let client = Client { address: address.unwrap_or_else(|| panic!("no address: {line}")) };
    let answer = client.get("/api/v1/namespaces/default");
    assert_eq!((answer.status, &answer.body["metadata"]["name"]), (200, &"default".into()));
    assert_eq!(client.get("/healthz").body, "ok");
    drop(proxy);
    kubectl.server.stop();
}
