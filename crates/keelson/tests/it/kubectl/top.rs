//! `kubectl top` with a stock metrics-server, behind Keelson and behind a stock kube-apiserver. It
//! measures two nodes, whose containers use the same all the time.

use super::streams::world::{ExactRow, World};
use super::{every_kubectl, stock_kubectl};
use crate::certificates::client_files;
use crate::front_proxy;
use crate::http::without_service_accounts;
use keelson_testkit::node::{ContainerUsage, NodeServer, ServerOptions, Usage, machine_address};
use keelson_testkit::poll;
use keelson_testkit::prerequisites::{METRICS_SERVER, kubernetes_program};
use keelson_testkit::process::Process;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// metrics-server asks each node every ten seconds, and needs two answers.
const MEASURED_TIME_MAX: Duration = Duration::from_secs(180);
const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const MIB: u64 = 1 << 20;

/// A world with a metrics-server. It is stopped first.
struct Measured {
    metrics_server: Process,
    world: World,
    _node: NodeServer,
    _files: TempDir,
}

/// A certificate for requests to servers behind this one, and the file of its authority.
struct FrontProxy {
    files: TempDir,
    authority: PathBuf,
    certificate: (PathBuf, PathBuf),
}

impl FrontProxy {
    fn new() -> FrontProxy {
        let files = TempDir::new().expect("a folder");
        let (pem, certificate) = client_files(files.path(), "aggregator");
        let authority = files.path().join("proxies.crt");
        std::fs::write(&authority, pem).expect("a file");
        FrontProxy { files, authority, certificate }
    }
}

impl Measured {
    fn by_keelson(metrics_server: &Path, kubectl: PathBuf) -> Measured {
        let proxy = FrontProxy::new();
        // A controller publishes the authority of front proxies.
        let builder = without_service_accounts().with(|builder| {
            let options = front_proxy::options(&proxy.authority, &["aggregator"]);
            builder.authentication.front_proxy = Some(options);
            builder.far_side.proxy_client_certificate = Some(proxy.certificate.clone());
        });
        let world = World::of_builder(builder, kubectl, false);
        Measured::start(metrics_server, world, proxy.files)
    }

    /// `None`: there is no kube-apiserver.
    fn by_reference(metrics_server: &Path, kubectl: PathBuf) -> Option<Measured> {
        let proxy = FrontProxy::new();
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let flags = [
            flag("requestheader-client-ca-file", &proxy.authority),
            flag("proxy-client-cert-file", &proxy.certificate.0),
            flag("proxy-client-key-file", &proxy.certificate.1),
            "--requestheader-allowed-names=aggregator".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        ];
        let world = World::of_reference_with(kubectl, &flags.each_ref().map(String::as_str))?;
        Some(Measured::start(metrics_server, world, proxy.files))
    }

    /// Creates nodes and pods, starts metrics-server, and waits until it knows all of them.
    fn start(program: &Path, world: World, files: TempDir) -> Measured {
        let usage = |container, cores, mib| ContainerUsage { container, cores, bytes: mib * MIB };
        world.node.set_usage(Usage {
            cores: 0.7505,
            bytes: 1024 * MIB,
            containers: vec![
                usage(["default", "web", "main"], 0.1255, 64),
                usage(["default", "web", "side"], 0.0107, 16),
                usage(["shop", "db", "main"], 0.5005, 512),
            ],
        });
        let address = machine_address();
        let node = NodeServer::start(ServerOptions { address, ..ServerOptions::default() });
        let node = node.expect("a node");
        node.set_usage(Usage {
            cores: 0.2505,
            bytes: 3072 * MIB,
            containers: vec![usage(["default", "job", "main"], 0.0335, 20)],
        });
        world.add_node_at("n2", node.address(), &[]);
        let api = &world.api;
        for (name, cpu, memory) in [("n1", "4", "8Gi"), ("n2", "2", "4Gi")] {
            let amounts = json!({"cpu": cpu, "memory": memory, "pods": "110"});
            let path = format!("/api/v1/nodes/{name}");
            world.set_status(
                &path,
                &json!({"capacity": amounts, "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True"}]}),
            );
            let pool = json!({"metadata": {"labels": {"pool": name}}});
            assert_eq!(api.patch(&path, &pool).expect("an answer").code, 200);
        }
        create(&world, "/api/v1/namespaces", &json!({"metadata": {"name": "shop"}}));
        add_pod(&world, "shop", "db", "n1");
        add_pod(&world, "default", "job", "n2");
        // Nobody says what it uses.
        add_pod(&world, "default", "idle", "n2");
        let metrics_server = start_metrics_server(program, &world);
        let measured = Measured { metrics_server, world, _node: node, _files: files };
        let items = |of: &str, count: usize| {
            let answer = measured.world.api.get(&format!("{METRICS}/{of}")).ok()?;
            let items = answer.body["items"].as_array()?.len();
            (answer.code == 200 && items == count).then_some(())
        };
        let all = poll(MEASURED_TIME_MAX, || items("nodes", 2).and(items("pods", 3)));
        assert!(all.is_some(), "not measured: {}", measured.metrics_server.log());
        measured
    }

    fn stop(self) {
        self.metrics_server.terminate();
        self.world.stop();
    }
}

fn create(world: &World, path: &str, object: &Value) {
    let answer = world.api.post(path, object).expect("an answer");
    assert_eq!(answer.code, 201, "{path}: {}", answer.body);
}

/// Creates a pod that runs on a node.
fn add_pod(world: &World, namespace: &str, name: &str, node: &str) {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = json!({"metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "i"}]}});
    create(world, &path, &pod);
    world.set_status(
        &format!("{path}/{name}"),
        &json!({"phase": "Running",
        "startTime": "2026-01-01T00:00:00Z"}),
    );
}

/// Starts metrics-server, and registers it.
fn start_metrics_server(program: &Path, world: &World) -> Process {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let home = world.home.dir.path();
    let mut command = Command::new(program);
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(flag).arg(home.join("admin.kubeconfig"));
    }
    command.arg("--cert-dir").arg(home.join("metrics-server"));
    command.args(["--bind-address=127.0.0.1", "--secure-port", &port.to_string()]);
    command.args(["--kubelet-insecure-tls", "--kubelet-preferred-address-types=InternalIP"]);
    command.args(["--kubelet-use-node-status-port", "--metric-resolution=10s"]);
    command.arg("--kubelet-request-timeout=5s");
    let process = Process::start(command, &home.join("metrics-server.log"));
    create(
        world,
        "/api/v1/namespaces/default/services",
        &json!({
        "metadata": {"name": "metrics-server"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}}),
    );
    create(
        world,
        "/apis/apiregistration.k8s.io/v1/apiservices",
        &json!({
        "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "insecureSkipTLSVerify": true,
            "service": {"name": "metrics-server", "namespace": "default", "port": port}}}),
    );
    process.expect("the program starts")
}

/// What differs from run to run: times, and the last digits of a rate.
const NORMAL: &str = r#"
normal() { sed -E 's/"(timestamp|window|creationTimestamp)":"[^"]*"/"\1":"T"/g; s/"[0-9]+[nu]"/"N"/g'; }
"#;

/// What kubectl shows, without the spaces at the ends of lines.
const TOP: &[ExactRow] = &[
    (
        "k top nodes",
        0,
        "\
         NAME   CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\n\
         n1     751m         18%      1024Mi          12%\n\
         n2     251m         12%      3072Mi          75%\n",
        "",
    ),
    (
        "k top node n1",
        0,
        "\
         NAME   CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\n\
         n1     751m         18%      1024Mi          12%\n",
        "",
    ),
    (
        "k top nodes --no-headers",
        0,
        "\
         n1    751m   18%   1024Mi   12%\n\
         n2    251m   12%   3072Mi   75%\n",
        "",
    ),
    (
        "k top nodes --sort-by=cpu",
        0,
        "\
         NAME   CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\n\
         n1     751m         18%      1024Mi          12%\n\
         n2     251m         12%      3072Mi          75%\n",
        "",
    ),
    (
        "k top nodes --sort-by=memory",
        0,
        "\
         NAME   CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\n\
         n2     251m         12%      3072Mi          75%\n\
         n1     751m         18%      1024Mi          12%\n",
        "",
    ),
    (
        "k top nodes -l pool=n2",
        0,
        "\
         NAME   CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)\n\
         n2     251m         12%      3072Mi          75%\n",
        "",
    ),
    ("k top nodes -l pool=absent", 1, "", "error: metrics not available yet"),
    ("k top node absent", 1, "", "Error from server (NotFound): node \"absent\" not found"),
    (
        "k top pods",
        0,
        "\
         NAME   CPU(cores)   MEMORY(bytes)\n\
         job    34m          20Mi\n\
         web    137m         80Mi\n",
        "",
    ),
    (
        "k top pods -A",
        0,
        "\
         NAMESPACE   NAME   CPU(cores)   MEMORY(bytes)\n\
         default     job    34m          20Mi\n\
         default     web    137m         80Mi\n\
         shop        db     501m         512Mi\n",
        "",
    ),
    (
        "k top pods -A --sum",
        0,
        "\
         NAMESPACE   NAME   CPU(cores)   MEMORY(bytes)\n\
         default     job    34m          20Mi\n\
         default     web    137m         80Mi\n\
         shop        db     501m         512Mi\n\
         \x20                  ________     ________\n\
         \x20                  671m         612Mi\n",
        "",
    ),
    (
        "k top pods -n shop",
        0,
        "\
         NAME   CPU(cores)   MEMORY(bytes)\n\
         db     501m         512Mi\n",
        "",
    ),
    ("k top pods -n empty", 0, "", "No resources found in empty namespace."),
    (
        "k top pod web",
        0,
        "\
         NAME   CPU(cores)   MEMORY(bytes)\n\
         web    137m         80Mi\n",
        "",
    ),
    (
        "k top pod web --containers",
        0,
        "\
         POD   NAME   CPU(cores)   MEMORY(bytes)\n\
         web   main   126m         64Mi\n\
         web   side   11m          16Mi\n",
        "",
    ),
    (
        "k top pods -A --containers",
        0,
        "\
         NAMESPACE   POD   NAME   CPU(cores)   MEMORY(bytes)\n\
         default     job   main   34m          20Mi\n\
         default     web   main   126m         64Mi\n\
         default     web   side   11m          16Mi\n\
         shop        db    main   501m         512Mi\n",
        "",
    ),
    (
        "k top pods -A --sort-by=cpu",
        0,
        "\
         NAMESPACE   NAME   CPU(cores)   MEMORY(bytes)\n\
         shop        db     501m         512Mi\n\
         default     web    137m         80Mi\n\
         default     job    34m          20Mi\n",
        "",
    ),
    (
        "k top pods -A --sort-by=memory",
        0,
        "\
         NAMESPACE   NAME   CPU(cores)   MEMORY(bytes)\n\
         shop        db     501m         512Mi\n\
         default     web    137m         80Mi\n\
         default     job    34m          20Mi\n",
        "",
    ),
    (
        "k top pods -A -l app=job",
        0,
        "\
         NAMESPACE   NAME   CPU(cores)   MEMORY(bytes)\n\
         default     job    34m          20Mi\n",
        "",
    ),
    ("k top pod absent", 1, "", "Error from server (NotFound): pods \"absent\" not found"),
    ("k top nodes --as=bob", 1, "", "User \"bob\" cannot list resource \"nodes\" in API group"),
];

/// What a kube-apiserver answers the same.
const COMPARED: &[&str] = &[
    "k top nodes --sort-by=nothing",
    "k top nodes --show-capacity",
    "k top pods --field-selector=metadata.name=job",
    "k top pods -A --field-selector=metadata.namespace=shop",
    "k top pods --use-protocol-buffers=false",
    "k top pod idle",
    "k top pod absent -n nowhere",
    "k top pods -A --as=bob",
    "k get nodes.metrics.k8s.io -o name",
    "k get pods.metrics.k8s.io -A -o name",
    "k get pods.metrics.k8s.io absent",
    "k delete nodes.metrics.k8s.io n1",
    "k get --raw /apis/metrics.k8s.io",
    "k get --raw /apis/metrics.k8s.io/v1beta1",
    "k get --raw /apis/metrics.k8s.io/v1beta1/nodes | normal",
    "k get --raw /apis/metrics.k8s.io/v1beta1/nodes/n1 | normal",
    "k get --raw /apis/metrics.k8s.io/v1beta1/nodes/absent",
    "k get --raw /apis/metrics.k8s.io/v1beta1/namespaces/shop/pods | normal",
    "k get --raw /apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/db | normal",
    "k get --raw '/apis/metrics.k8s.io/v1beta1/pods?labelSelector=app%3Djob' | normal",
    "k get --raw '/apis/metrics.k8s.io/v1beta1/pods?fieldSelector=bad%3D1'",
    "k get --raw /apis/metrics.k8s.io/v1beta1/things",
    "k api-resources --api-group=metrics.k8s.io -o wide",
    "k api-versions | grep metrics",
    "k explain podmetrics.containers.usage",
    "k get apiservice v1beta1.metrics.k8s.io -o jsonpath='{.status.conditions[*].reason}'",
    "k auth can-i get nodes.metrics.k8s.io",
];

#[test]
fn nodes_and_pods_are_measured() {
    let Some(program) = kubernetes_program(METRICS_SERVER, METRICS_SERVER.name) else { return };
    let Some(kubectl) = stock_kubectl() else { return };
    let mut measured = Measured::by_keelson(&program, kubectl);
    for kubectl in every_kubectl() {
        measured.world.home.program = kubectl;
        let rows = TOP.iter().filter_map(|(line, code, out, err)| {
            let did = measured.world.does(line);
            let lines = did.out.lines().map(|line| format!("{}\n", line.trim_end()));
            let shown: String = lines.collect();
            let is_same = did.code == Some(*code) && shown == *out && did.err.contains(err);
            (!is_same).then(|| format!("{line}\n  wants {code} {out:?} {err:?}\n  got {did:?}"))
        });
        let faults: Vec<String> = rows.collect();
        let program = measured.world.home.program.display();
        assert!(faults.is_empty(), "{program}: {}", faults.join("\n"));
    }
    measured.stop();
}

#[test]
fn a_kube_apiserver_measures_the_same() {
    let Some(program) = kubernetes_program(METRICS_SERVER, METRICS_SERVER.name) else { return };
    let Some(stock) = stock_kubectl() else { return };
    let reference = Measured::by_reference(&program, stock.clone());
    let Some(mut reference) = reference else { return };
    let mut ours = Measured::by_keelson(&program, stock.clone());
    let mut faults = vec![];
    let top: Vec<&str> = TOP.iter().map(|(line, ..)| *line).collect();
    for kubectl in every_kubectl() {
        for measured in [&mut ours, &mut reference] {
            measured.world.home.program = kubectl.clone();
        }
        // The other requests are the same in each of them.
        let more = if kubectl == stock { COMPARED } else { &[] };
        for line in top.iter().chain(more) {
            let line = format!("{NORMAL}{line}");
            let [did, expected] = [&ours, &reference].map(|of| of.world.does(&line));
            if did != expected {
                let program = kubectl.display();
                faults.push(format!(
                    "{program}: {line}\n  Keelson: {did:?}\n  kube-apiserver: {expected:?}"
                ));
            }
        }
    }
    ours.stop();
    reference.stop();
    assert!(faults.is_empty(), "{} differ:\n{}", faults.len(), faults.join("\n"));
}
