//! A cluster of processes: a server, kube-controller-manager and kube-scheduler with their own
//! users, and fake kubelets.

use super::identity;
use keelson::Pki;
use keelson_testkit::api::Api;
use keelson_testkit::kubelet::{Kubelet, NodeOptions};
use keelson_testkit::prerequisites::{API_SERVER, CONTROLLERS, ETCD, kubernetes_program};
use keelson_testkit::process::Process;
use keelson_testkit::{klog, poll};
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

/// Timeout for the start of a program on a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// The node that stops. Only Pods that tolerate its taint run on it.
pub const LOST_NODE: &str = "node-lost";
/// The key of the label and the taint of this node.
pub const LOST_KEY: &str = "testkit.keelson/lost";

/// Paths of Kubernetes programs.
pub struct Programs {
    manager: PathBuf,
    scheduler: PathBuf,
}

impl Programs {
    /// Returns the programs needed with any server, or `None` if one is missing.
    pub fn find() -> Option<Programs> {
        let manager = kubernetes_program(CONTROLLERS, "kube-controller-manager")?;
        Some(Programs { manager, scheduler: kubernetes_program(CONTROLLERS, "kube-scheduler")? })
    }

    /// Starts the programs. `more` are further flags of kube-controller-manager.
    fn start(&self, files: &Files, more: &[&str]) -> Vec<(&'static str, Process)> {
        let manager = start_manager(self, files, more);
        let scheduler = start_scheduler(&self.scheduler, files);
        vec![("kube-controller-manager", manager), ("kube-scheduler", scheduler)]
    }
}

/// A running cluster. Dropping it stops the processes in reverse order of their start.
pub struct Cluster {
    pub admin: Api,
    pub kubelets: Vec<Kubelet>,
    /// The kubelet of `LOST_NODE` until a scenario stops it.
    pub lost: Mutex<Option<Kubelet>>,
    /// The running programs, by name.
    programs: Vec<(&'static str, Process)>,
    servers: Vec<Process>,
    files: Files,
}

/// Files of the cluster, and the URL of the server.
pub struct Files {
    dir: TempDir,
    url: String,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn pki(&self, name: &str) -> String {
        self.path("pki").join(name).to_string_lossy().into_owned()
    }

    /// Writes the kubeconfig of a user.
    fn kubeconfig(&self, user: &str, groups: &[&str]) -> PathBuf {
        let mut command = Command::new(KEELSON);
        command.args(["kubeconfig", "--server", &self.url, "--user", user]);
        command.args(groups.iter().flat_map(|group| ["--group", group]));
        command.arg("--cert-dir").arg(self.path("pki"));
        let output = command.output().expect("keelson runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = self.path(&format!("{}.kubeconfig", user.replace(':', "-")));
        std::fs::write(&path, output.stdout).expect("a kubeconfig can be written");
        path
    }

    /// Returns a client with a new client certificate for a user.
    pub fn api(&self, user: &str, groups: &[&str]) -> Api {
        Api::from_kubeconfig(&self.kubeconfig(user, groups)).expect("a kubeconfig")
    }
}

fn start(command: Command, log: PathBuf) -> Process {
    Process::start(command, &log).expect("the program starts")
}

impl Cluster {
    /// Starts a cluster with Keelson as the server.
    pub fn of_keelson(programs: &Programs) -> Cluster {
        let (server, files) = start_keelson(&[]);
        Cluster::around(vec![server], files, |files| programs.start(files, &[]))
    }

    /// Starts Keelson without kube-controller-manager and kube-scheduler.
    pub fn of_keelson_alone() -> Cluster {
        let (server, files) = start_keelson(&[]);
        Cluster::around(vec![server], files, |_| vec![])
    }

    /// Starts Keelson with its own workload controllers and scheduler, where five seconds pass in
    /// one: its intervals are those of kube-controller-manager, which is started with shorter ones.
    pub fn of_simulation() -> Cluster {
        let flags = ["--simulate", "--simulate-nodes=0", "--simulate-rate=5"];
        let (server, files) = start_keelson(&flags);
        Cluster::around(vec![server], files, |_| vec![])
    }

    /// Starts a cluster with kube-apiserver and etcd. `more` are further flags of
    /// kube-controller-manager.
    pub fn of_reference(programs: &Programs, more: &[&str]) -> Option<Cluster> {
        let etcd = kubernetes_program(ETCD, "etcd")?;
        let api_server = kubernetes_program(API_SERVER, "kube-apiserver")?;
        let dir = tempfile::tempdir().expect("a folder");
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        std::fs::create_dir(dir.path().join("pki")).expect("a folder");
        Pki::load_or_make(&dir.path().join("pki"), &names).expect("an authority");
        // All are open at the same time, so that the ports differ.
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [port, client, peer] =
            listeners.map(|listener| listener.local_addr().expect("an address").port());
        let files = Files { dir, url: format!("https://127.0.0.1:{port}") };
        let key = KeyPair::generate().expect("a key");
        for (name, pem) in [("sa.key", key.serialize_pem()), ("sa.pub", key.public_key_pem())] {
            std::fs::write(files.pki(name), pem).expect("a key can be written");
        }
        let mut command = Command::new(etcd);
        let etcd_url = format!("http://127.0.0.1:{client}");
        command.arg("--data-dir").arg(files.path("etcd"));
        command.args(["--listen-client-urls", &etcd_url, "--advertise-client-urls", &etcd_url]);
        command.args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}")]);
        let etcd = start(command, files.path("etcd.log"));
        let mut command = Command::new(api_server);
        command.args(["--etcd-servers", &etcd_url, "--secure-port", &port.to_string()]);
        command.args(["--bind-address=127.0.0.1", "--advertise-address=10.1.1.1"]);
        command.args(["--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=Node,RBAC"]);
        command
            .args(["--enable-bootstrap-token-auth", "--enable-admission-plugins=NodeRestriction"]);
        command.arg("--service-account-issuer=https://kubernetes.default.svc");
        for (flag, file) in [
            ("--client-ca-file", "ca.crt"),
            ("--tls-cert-file", "serving.crt"),
            ("--tls-private-key-file", "serving.key"),
            ("--service-account-key-file", "sa.pub"),
            ("--service-account-signing-key-file", "sa.key"),
        ] {
            command.args([flag, &files.pki(file)]);
        }
        let server = start(command, files.path("server.log"));
        let servers = vec![server, etcd];
        Some(Cluster::around(servers, files, |files| programs.start(files, more)))
    }

    /// Starts the other programs of a cluster, then the nodes.
    fn around(
        servers: Vec<Process>,
        files: Files,
        start: impl Fn(&Files) -> Vec<(&'static str, Process)>,
    ) -> Cluster {
        let admin = files.api("admin", &["system:masters"]);
        let ready =
            poll(START_TIME_MAX, || admin.get("/readyz").ok().filter(|got| got.code == 200));
        assert!(ready.is_some(), "no server: {}", servers[0].log());
        define_resources(&admin);
        let programs = start(&files);
        let held = |name: &str| {
            let lease = admin.get(&format!("{LEASES}/{name}")).ok()?;
            lease.body["spec"]["holderIdentity"].as_str().map(str::to_owned)
        };
        for (name, process) in &programs {
            let holder = poll(START_TIME_MAX, || held(name));
            assert!(holder.is_some(), "{name} does not get its lease: {}", process.log());
        }
        let mut kubelets = vec![];
        let options = |name: &str, subnet| NodeOptions {
            name: name.to_owned(),
            labels: json!({}),
            taints: json!([]),
            subnet,
        };
        let node = |name: &str| files.api(&format!("system:node:{name}"), &["system:nodes"]);
        kubelets.push(kubelet(&node("node-a"), options("node-a", 1)));
        kubelets.push(kubelet(&identity::bootstrap(&admin, "node-b"), options("node-b", 2)));
        let taint = json!([{"key": LOST_KEY, "effect": "NoSchedule"}]);
        let labels = json!({LOST_KEY: ""});
        let lost = NodeOptions { labels, taints: taint, ..options(LOST_NODE, 3) };
        let lost = Mutex::new(Some(kubelet(&node(LOST_NODE), lost)));
        Cluster { admin, kubelets, lost, programs, servers, files }
    }

    /// Returns the errors in the logs of the programs.
    pub fn errors(&self) -> BTreeSet<String> {
        let named = |(name, process): &(&str, Process)| -> Vec<String> {
            let errors = klog::errors(&process.log());
            errors.into_iter().map(|line| format!("{name}: {line}")).collect()
        };
        self.programs.iter().flat_map(named).collect()
    }

    /// Returns whether Keelson stopped its controllers because kube-controller-manager holds the
    /// lease.
    pub fn has_stepped_aside(&self) -> bool {
        self.servers[0]
            .log()
            .contains("kube-controller-manager has its lease; stopping controllers")
    }
}

impl Drop for Cluster {
    /// Copies the logs into the folder that `KEELSON_SWAP_LOGS` names.
    fn drop(&mut self) {
        let Some(dir) = std::env::var_os("KEELSON_SWAP_LOGS") else { return };
        for name in ["manager.log", "scheduler.log", "server.log"] {
            let _ = std::fs::copy(self.files.path(name), Path::new(&dir).join(name));
        }
    }
}

fn kubelet(api: &Api, options: NodeOptions) -> Kubelet {
    Kubelet::start(api, options).expect("the node is registered")
}

/// Starts Keelson with a new data directory and more flags.
pub fn start_keelson(flags: &[&str]) -> (Process, Files) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(KEELSON);
    command.args(["serve", "--secure-port=0", "--bind-address=127.0.0.1", "--v=2"]);
    command.args(["--enable-bootstrap-token-auth", "--enable-admission-plugins=NodeRestriction"]);
    command.args(flags).arg("--data-dir").arg(dir.path());
    let server = start(command, dir.path().join("server.log"));
    let kubeconfig = dir.path().join("admin.kubeconfig");
    let url = poll(START_TIME_MAX, || {
        let text = std::fs::read_to_string(&kubeconfig).ok()?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix("server: "))?;
        Some(line.trim_matches('"').to_owned())
    })
    .unwrap_or_else(|| panic!("Keelson does not start: {}", server.log()));
    (server, Files { dir, url })
}

/// Starts kube-controller-manager with its own user and further flags.
pub fn start_manager(programs: &Programs, files: &Files, more: &[&str]) -> Process {
    let kubeconfig = files.kubeconfig("system:kube-controller-manager", &[]);
    let mut command = Command::new(&programs.manager);
    command.args(more);
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--use-service-account-credentials=true", "--leader-elect=true"]);
    // Short intervals, so that changes are noticed soon.
    command.args(["--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400"]);
    command.args(["--node-monitor-period=1s", "--node-monitor-grace-period=8s"]);
    command.args(["--pvclaimbinder-sync-period=1s", "--horizontal-pod-autoscaler-sync-period=1s"]);
    for (flag, file) in [
        ("--root-ca-file", "ca.crt"),
        ("--cluster-signing-cert-file", "ca.crt"),
        ("--cluster-signing-key-file", "ca.key"),
        ("--service-account-private-key-file", "sa.key"),
    ] {
        command.args([flag, &files.pki(file)]);
    }
    start(command, files.path("manager.log"))
}

fn start_scheduler(program: &Path, files: &Files) -> Process {
    let kubeconfig = files.kubeconfig("system:kube-scheduler", &[]);
    let mut command = Command::new(program);
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(flag).arg(&kubeconfig);
    }
    command.args(["--secure-port=0", "--leader-elect=true"]);
    command.args(["--kube-api-qps=200", "--kube-api-burst=400"]);
    start(command, files.path("scheduler.log"))
}

/// Creates a CustomResourceDefinition before kube-controller-manager reads discovery.
fn define(admin: &Api, group: &str, version: &str, names: Value) {
    let plural = names["plural"].as_str().expect("a name").to_owned();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions = json!([{"name": version, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}}]);
    // Groups below k8s.io need an approval annotation, which may state that they are unapproved.
    let annotations = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    let metadata = json!({"name": format!("{plural}.{group}"), "annotations": annotations});
    let spec = json!({"group": group, "scope": "Namespaced", "versions": versions, "names": names});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = admin.post(path, &json!({"metadata": metadata, "spec": spec})).expect("an answer");
    assert_eq!(made.code, 201, "{made:?}");
    let served = poll(START_TIME_MAX, || {
        let list = admin.get(&format!("/apis/{group}/{version}/{plural}")).ok()?;
        (list.code == 200).then_some(())
    });
    assert!(served.is_some(), "{plural}.{group} is not served");
}

/// Creates a custom resource for owners and dependents, and one that replaces the resource metrics
/// API.
fn define_resources(admin: &Api) {
    let widgets = json!({"plural": "widgets", "singular": "widget", "kind": "Widget"});
    define(admin, "testkit.keelson", "v1", widgets);
    let metrics = json!({"plural": "pods", "singular": "podmetrics", "kind": "PodMetrics"});
    define(admin, "metrics.k8s.io", "v1beta1", metrics);
}

/// Returns the items of a list.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}
