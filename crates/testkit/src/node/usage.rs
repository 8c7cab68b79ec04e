//! [`Usage`]: what the containers of a node use, as metrics-server reads it.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

/// When all containers of all nodes have started, in seconds since 1970.
const STARTED_SECONDS: u64 = 1_700_000_000;

/// What a node uses.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Of the node itself, in cores, all the time.
    pub cores: f64,
    /// Memory of the node, in bytes.
    pub bytes: u64,
    /// Of its containers.
    pub containers: Vec<ContainerUsage>,
}

/// What a container uses.
#[derive(Clone, Debug)]
pub struct ContainerUsage {
    /// The namespace, the pod, and the name.
    pub container: [&'static str; 3],
    /// Cores, all the time.
    pub cores: f64,
    /// Memory in bytes.
    pub bytes: u64,
}

impl Usage {
    /// Returns the page `/metrics/resource` at a time: seconds of processors so far, with the time
    /// in milliseconds, and memory.
    pub(super) fn page(&self, now: SystemTime) -> String {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        // The rates are exact only if both have the same precision.
        let now = u64::try_from(now).unwrap_or_default();
        let up = Duration::from_millis(now).as_secs_f64() - STARTED_SECONDS as f64;
        let labels = |of: &ContainerUsage| {
            let [namespace, pod, container] = of.container;
            format!("{{container=\"{container}\",namespace=\"{namespace}\",pod=\"{pod}\"}}")
        };
        let mut out = String::new();
        let mut family = |name: &str, of: &str, samples: Vec<(String, String)>| {
            let _ = writeln!(out, "# TYPE {name} {of}");
            for (labels, value) in samples {
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        };
        let of_node = |value: String| vec![(String::new(), format!("{value} {now}"))];
        let of_containers = |value: &dyn Fn(&ContainerUsage) -> String| {
            let samples = self.containers.iter().map(|of| (labels(of), value(of)));
            samples.collect::<Vec<_>>()
        };
        let seconds = |cores: f64| format!("{:.6}", cores * up);
        family("node_cpu_usage_seconds_total", "counter", of_node(seconds(self.cores)));
        family("node_memory_working_set_bytes", "gauge", of_node(self.bytes.to_string()));
        let used = of_containers(&|of| format!("{} {now}", seconds(of.cores)));
        family("container_cpu_usage_seconds_total", "counter", used);
        let memory = of_containers(&|of| format!("{} {now}", of.bytes));
        family("container_memory_working_set_bytes", "gauge", memory);
        let started = of_containers(&|_| STARTED_SECONDS.to_string());
        family("container_start_time_seconds", "gauge", started);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_seconds_so_far_and_their_time() {
        let container = ContainerUsage { container: ["ns", "pod", "main"], cores: 0.25, bytes: 5 };
        let usage = Usage { cores: 1.5, bytes: 7, containers: vec![container] };
        let at = Duration::from_millis(STARTED_SECONDS * 1000 + 2500);
        let page = usage.page(SystemTime::UNIX_EPOCH + at);
        let labels = "{container=\"main\",namespace=\"ns\",pod=\"pod\"}";
        for line in [
            "node_cpu_usage_seconds_total 3.750000 1700000002500".to_owned(),
            "node_memory_working_set_bytes 7 1700000002500".to_owned(),
            format!("container_cpu_usage_seconds_total{labels} 0.625000 1700000002500"),
            format!("container_memory_working_set_bytes{labels} 5 1700000002500"),
            format!("container_start_time_seconds{labels} 1700000000"),
        ] {
            assert!(page.lines().any(|got| got == line), "{line}: {page}");
        }
    }
}
