//! A fake kubelet: a node with a Lease, whose pods "run" without containers.
//!
//! It authenticates as `system:node:NAME`, so the Node authorizer and NodeRestriction apply. It
//! reacts to the events of one watch, and renews the Lease periodically.

use crate::api::{Api, STRATEGIC_PATCH};
use crate::pods::{Step, next_step};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Renewal interval of the Lease.
const RENEWAL_PERIOD: Duration = Duration::from_secs(1);
/// Duration of the Lease.
const LEASE_SECONDS: u32 = 40;
/// Timeout of a watch. Then the pods are listed again, which retries failed steps.
const WATCH_SECONDS: u32 = 5;
/// Retry interval after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// The options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The name.
    pub name: String,
    /// Labels in addition to the default ones.
    pub labels: Value,
    /// The taints.
    pub taints: Value,
    /// The third byte of the pod subnet `10.244.0.0/24`.
    pub subnet: u8,
}

/// A fake kubelet; it stops when it is dropped.
pub struct Kubelet {
    stopped: Arc<AtomicBool>,
    /// Dropping it stops the renewal of the Lease.
    renewal: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Kubelet {
    /// Registers the node and starts the kubelet. `api` must act as the node's user.
    pub fn start(api: &Api, options: NodeOptions) -> io::Result<Kubelet> {
        let created = api.post("/api/v1/nodes", &node(&options))?;
        if !created.is_ok() {
            return Err(io::Error::other(format!("node not registered: {created:?}")));
        }
        let (renewal, ended) = channel();
        let lease = Lease { api: api.with_new_connection(), node: created.body };
        let errors = Arc::<Mutex<Vec<String>>>::default();
        let stopped = Arc::<AtomicBool>::default();
        lease.renew()?;
        let lease_errors = errors.clone();
        let renewing = std::thread::spawn(move || {
            while ended.recv_timeout(RENEWAL_PERIOD) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = lease.renew() {
                    add_error(&lease_errors, format!("lease not renewed: {error}"));
                }
            }
        });
        let mut pods = Pods {
            api: api.with_new_connection(),
            options,
            ips: BTreeMap::new(),
            stopped: stopped.clone(),
            errors: errors.clone(),
        };
        let syncing = std::thread::spawn(move || pods.run());
        let threads = vec![renewing, syncing];
        Ok(Kubelet { stopped, renewal: Some(renewal), threads, errors })
    }

    /// Returns the errors of steps that were retried.
    pub fn errors(&self) -> Vec<String> {
        self.errors.lock().map(|errors| errors.clone()).unwrap_or_default()
    }

    /// Simulates a power loss: the Lease is not renewed and no status is reported. The pods stay.
    pub fn power_off(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.renewal = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop();
    }
}

fn add_error(errors: &Mutex<Vec<String>>, error: String) {
    const ERRORS_MAX: usize = 100;
    if let Ok(mut errors) = errors.lock()
        && errors.len() < ERRORS_MAX
    {
        errors.push(error);
    }
}

/// Returns the current time as a `MicroTime`.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let micros = since.subsec_micros();
    let days = seconds / 86_400;
    let of_day = seconds % 86_400;
    // In years that begin in March, the leap day is the last day.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let hour = of_day / 3600;
    let minute = of_day / 60 % 60;
    let second = of_day % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

fn now_in_seconds() -> String {
    let now = now();
    format!("{}Z", now.split('.').next().unwrap_or_default())
}

fn host_ip(options: &NodeOptions) -> String {
    format!("10.1.0.{}", options.subnet)
}

fn node(options: &NodeOptions) -> Value {
    let name = &options.name;
    let now = now_in_seconds();
    let mut labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64"});
    if let (Some(labels), Some(more)) = (labels.as_object_mut(), options.labels.as_object()) {
        labels.extend(more.clone());
    }
    let resources =
        json!({"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    let condition = |name: &str, status: &str, reason: &str| {
        json!({"type": name, "status": status, "reason": reason, "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": options.taints}, "status": {
        "capacity": resources, "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": host_ip(options)},
            {"type": "Hostname", "address": name}],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady")],
        "nodeInfo": {"machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "6.0",
            "osImage": "testkit", "containerRuntimeVersion": "testkit://1", "kubeletVersion": "v1.36.2",
            "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"}}})
}

/// The Lease of a node.
struct Lease {
    api: Api,
    node: Value,
}

impl Lease {
    fn renew(&self) -> io::Result<()> {
        let name = self.node["metadata"]["name"].as_str().unwrap_or_default();
        let spec = json!({"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now()});
        let patched = self.api.patch(&format!("{LEASES}/{name}"), &json!({"spec": spec}))?;
        if patched.code != 404 {
            return check(patched.code, &patched.body);
        }
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name,
            "uid": self.node["metadata"]["uid"]});
        let lease = json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec});
        let created = self.api.post(LEASES, &lease)?;
        check(created.code, &created.body)
    }
}

/// Returns an error unless the code is 2xx.
fn check(code: u16, body: &Value) -> io::Result<()> {
    match code {
        200..300 => Ok(()),
        _ => Err(io::Error::other(format!("{code}: {}", body["message"]))),
    }
}

/// The pods of a node.
struct Pods {
    api: Api,
    options: NodeOptions,
    /// Allocated addresses by uid of the pod.
    ips: BTreeMap<String, String>,
    stopped: Arc<AtomicBool>,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Pods {
    fn run(&mut self) {
        while !self.stopped.load(Ordering::Relaxed) {
            if let Err(error) = self.list_and_watch() {
                add_error(&self.errors, format!("pods cannot be watched: {error}"));
                std::thread::park_timeout(RETRY_INTERVAL);
            }
        }
    }

    fn list_and_watch(&mut self) -> io::Result<()> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", self.options.name);
        let list = self.api.get(&path)?;
        check(list.code, &list.body)?;
        for pod in list.body["items"].as_array().into_iter().flatten() {
            self.sync(pod);
        }
        let revision = list.body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let path =
            format!("{path}&watch=1&resourceVersion={revision}&timeoutSeconds={WATCH_SECONDS}");
        let mut watch = self.api.watch(&path)?;
        while let Ok(event) = watch.next_event() {
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            match event["type"].as_str() {
                Some("ADDED" | "MODIFIED") => self.sync(&event["object"]),
                Some("ERROR") => return Err(io::Error::other(event["object"].to_string())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Does the next step of a pod. Its result is another event.
    fn sync(&mut self, pod: &Value) {
        if let Err(error) = self.try_sync(pod) {
            add_error(&self.errors, format!("pod {}: {error}", pod["metadata"]["name"]));
        }
    }

    fn try_sync(&mut self, pod: &Value) -> io::Result<()> {
        let metadata = &pod["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = text(&metadata["namespace"]);
        let name = text(&metadata["name"]);
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let next = self.ips.len() + 1;
        let subnet = self.options.subnet;
        let ip = self
            .ips
            .entry(text(&metadata["uid"]))
            .or_insert_with(|| format!("10.244.{subnet}.{next}"));
        let response = match next_step(pod, ip, &host_ip(&self.options), &now_in_seconds()) {
            Step::Wait => return Ok(()),
            Step::Report(patch) => {
                let path = format!("{path}/status");
                self.api.call("PATCH", &path, STRATEGIC_PATCH, Some(&patch))?
            }
            Step::Remove => {
                let options = json!({"gracePeriodSeconds": 0,
                    "preconditions": {"uid": metadata["uid"]}});
                self.api.delete(&path, Some(&options))?
            }
        };
        // A pod that was changed or deleted has another event.
        match response.code {
            404 | 409 => Ok(()),
            code => check(code, &response.body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn the_time_has_the_form_of_a_micro_time() {
        let now = now();
        assert_eq!(now.len(), "2026-01-01T00:00:00.000000Z".len());
        assert!(now.as_str() > "2025-01-01" && now.as_str() < "2200-01-01", "{now}");
    }
}
