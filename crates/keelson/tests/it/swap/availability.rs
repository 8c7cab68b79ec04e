//! Scenarios of availability: disruption budgets, endpoints, autoscaling, the loss of a node.

use super::cluster::{LOST_KEY, LOST_NODE, items};
use super::scene::{Scene, conditions, each, facts, has, name, template};
use keelson_testkit::kubelet::now;
use serde_json::{Value, json};

fn deployment(name: &str, replicas: u32, template: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "template": template,
        "selector": {"matchLabels": {"app": name}}}})
}

/// A PodDisruptionBudget for the Pods of a Deployment.
pub fn disruption(scene: &Scene) {
    scene.create("apps/v1/deployments", deployment("web", 3, template("web", "web:1", json!({}))));
    budget(scene, |_| ());
}

/// Evictions that a PodDisruptionBudget rejects and allows. `replace` replaces an evicted Pod.
pub fn budget(scene: &Scene, replace: impl Fn(&str)) {
    let budget = json!({"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}});
    let budgets = "policy/v1/poddisruptionbudgets";
    scene.create(budgets, json!({"metadata": {"name": "web"}, "spec": budget}));
    let path = "policy/v1/poddisruptionbudgets/web";
    let counts = [
        "/status/currentHealthy",
        "/status/desiredHealthy",
        "/status/expectedPods",
        "/status/disruptionsAllowed",
    ];
    let is_healthy = |budget: &Value, allowed: u64| {
        let status = &budget["status"];
        status["observedGeneration"] == budget["metadata"]["generation"]
            && status["currentHealthy"] == 3
            && status["expectedPods"] == 3
            && status["disruptedPods"].is_null()
            && status["disruptionsAllowed"] == allowed
    };
    let found = scene.wait_until(path, |budget| is_healthy(budget, 0));
    scene.record(format!("{} {}", facts(&found, &counts), conditions(&found)));
    let pods = scene.get("v1/pods").body;
    let pod = name(&pods["items"][0]).to_owned();
    let evict = || {
        let eviction = json!({"metadata": {"name": pod}});
        scene
            .api
            .post(&scene.path(&format!("v1/pods/{pod}/eviction")), &eviction)
            .expect("an answer")
    };
    let refused = evict();
    scene.record(format!(
        "{} {} {}",
        refused.code, refused.body["message"], refused.body["details"]
    ));
    scene.patch(path, json!({"spec": {"minAvailable": 2}}));
    let found = scene.wait_until(path, |budget| is_healthy(budget, 1));
    scene.record(format!("{} {}", facts(&found, &counts), conditions(&found)));
    let evicted = evict();
    scene.record(format!("{} {}", evicted.code, evicted.body["status"]));
    scene.wait_deleted(&format!("v1/pods/{pod}"));
    replace(&pod);
    let found = scene.wait_until(path, |budget| is_healthy(budget, 1));
    scene.record(format!("{} {}", facts(&found, &counts), found["status"]["disruptedPods"]));
}

/// Services of a Deployment.
pub fn endpoints(scene: &Scene) {
    services(scene, |count| {
        if count == 2 {
            let pods = template("web", "web:1", json!({}));
            scene.create("apps/v1/deployments", deployment("web", 2, pods));
        } else {
            scene.patch("apps/v1/deployments/web", json!({"spec": {"replicas": count}}));
        }
    });
}

/// Endpoints and EndpointSlices of Services with and without selectors. `scale` changes the number
/// of Pods.
pub fn services(scene: &Scene, scale: impl Fn(usize)) {
    let service = |name: &str, more: Value| {
        let mut spec = json!({"ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        json!({"metadata": {"name": name}, "spec": spec})
    };
    scene.create("v1/services", service("web", json!({"selector": {"app": "web"}})));
    let headless = json!({"selector": {"app": "web"}, "clusterIP": "None"});
    scene.create("v1/services", service("headless", headless));
    scene.create("v1/services", service("outside", json!({})));
    scale(2);
    let subsets =
        json!([{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"name": "http", "port": 80}]}]);
    scene.create("v1/endpoints", json!({"metadata": {"name": "outside"}, "subsets": subsets}));
    for (service, count) in [("web", 2), ("headless", 2), ("outside", 1)] {
        slices_of(scene, service, count);
    }
    scale(1);
    slices_of(scene, "web", 1);
    let found = scene.wait_until("v1/endpoints/web", |found| {
        found["subsets"][0]["addresses"].as_array().is_some_and(|all| all.len() == 1)
    });
    scene.record(format!("{} {}", found["subsets"][0]["ports"], found["metadata"]["labels"]));
    scene.delete("v1/services/web", "Background");
    scene.wait_for_count(
        "discovery.k8s.io/v1/endpointslices?labelSelector=kubernetes.io/service-name%3Dweb",
        0,
    );
    scene.wait_deleted("v1/endpoints/web");
}

/// Waits until the only EndpointSlice of a Service has a number of ready endpoints, and records it.
fn slices_of(scene: &Scene, service: &str, count: usize) {
    let selector = format!("labelSelector=kubernetes.io/service-name%3D{service}");
    let list =
        scene.wait_until(&format!("discovery.k8s.io/v1/endpointslices?{selector}"), |list| {
            let endpoints = list["items"][0]["endpoints"].as_array();
            endpoints.is_some_and(|all| {
                all.len() == count && all.iter().all(|one| one["conditions"]["ready"] == true)
            })
        });
    let slice = &list["items"][0];
    let mut labels = slice["metadata"]["labels"].clone();
    let label = "endpointslice.kubernetes.io/managed-by";
    let manager = labels[label].take();
    let kind = &slice["endpoints"][0]["targetRef"]["kind"];
    let facts = facts(slice, &["/addressType", "/ports"]);
    let conditions = &slice["endpoints"][0]["conditions"];
    scene.record(format!("{service}: {count} {facts} {manager} {kind} {conditions}"));
}

/// HorizontalPodAutoscalers of a Deployment without metrics, and with a load that grows and falls.
pub fn autoscaling(scene: &Scene) {
    let mut pods = template("web", "web:1", json!({}));
    pods["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    scene.create("apps/v1/deployments", deployment("web", 2, pods));
    let autoscaler = autoscaler(scene, "web", 3, 5);
    // minReplicas applies without metrics too.
    let web =
        scene.wait_until("apps/v1/deployments/web", |web| web["status"]["availableReplicas"] == 3);
    scene.record(facts(&web, &["/spec/replicas", "/status/replicas"]));
    let found = scene.wait_until(&autoscaler, |found| {
        has(found, "ScalingActive", "False") && found["status"]["currentReplicas"] == 3
    });
    scene.record(format!("{} {}", facts(&found, &["/status/desiredReplicas"]), conditions(&found)));
    scene.patch(&autoscaler, json!({"spec": {"minReplicas": 1}}));
    // The target is 50m per Pod, so the number of Pods is load / 50m, within the limits.
    for (load, replicas) in [(200, 4), (1000, 5), (100, 2), (10, 1)] {
        let found = scene.wait_until(&autoscaler, |found| {
            measure(scene, load);
            found["status"]["currentReplicas"] == replicas
                && found["status"]["desiredReplicas"] == replicas
                && found["status"]["currentMetrics"][0]["resource"]["current"]["averageValue"]
                    == format!("{}m", load / replicas)
                && has(found, "ScalingActive", "True")
        });
        scene.wait_for_count("v1/pods", usize::try_from(replicas).expect("a few"));
        let metrics = &found["status"]["currentMetrics"];
        scene.record(format!("{load}m: {replicas} {metrics} {}", conditions(&found)));
    }
    let web =
        scene.wait_until("apps/v1/deployments/web", |web| web["status"]["availableReplicas"] == 1);
    scene.record(facts(&web, &["/spec/replicas", "/status/replicas"]));
}

/// Creates an autoscaler of a deployment with a target of 50 % CPU utilization. Returns its path.
fn autoscaler(scene: &Scene, name: &str, min: u32, max: u32) -> String {
    let metric = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}});
    let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    // Scales up and down at once, by any number.
    let policies = json!([{"type": "Pods", "value": 100, "periodSeconds": 1}]);
    let rules = json!({"stabilizationWindowSeconds": 0, "policies": policies});
    let spec = json!({"minReplicas": min, "maxReplicas": max, "scaleTargetRef": scaled,
        "metrics": [metric], "behavior": {"scaleUp": rules, "scaleDown": rules}});
    let autoscalers = "autoscaling/v2/horizontalpodautoscalers";
    scene.create(autoscalers, json!({"metadata": {"name": name}, "spec": spec}));
    format!("{autoscalers}/{name}")
}

/// Writes the metrics of all Pods as metrics-server would serve them. `load`, in millicores, is
/// divided among them.
fn measure(scene: &Scene, load: u64) {
    let pods = scene.get("v1/pods").body;
    let is_live = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
    let pods: Vec<&Value> = items(&pods).filter(is_live).collect();
    let share = load / u64::try_from(pods.len().max(1)).expect("a few");
    for pod in pods {
        let metadata = json!({"name": name(pod), "labels": pod["metadata"]["labels"]});
        // With a window of 0 s, samples count from the moment when the Pod is ready.
        let metrics = json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
            "metadata": metadata, "timestamp": now(), "window": "0s",
            "containers": [{"name": "main", "usage": {"cpu": format!("{share}m")}}]});
        let path = scene.path("metrics.k8s.io/v1beta1/pods");
        let put = scene.api.post(&path, &metrics).expect("an answer");
        if put.code == 409 {
            let path = format!("{path}/{}", name(pod));
            let put = scene.api.patch(&path, &metrics).expect("an answer");
            assert_eq!(put.code, 200, "{put:?}");
        }
    }
}

/// A node whose kubelet stops.
pub fn node_loss(scene: &Scene) {
    let mut pods = template("web", "web:1", json!({}));
    let tolerated = |key: &str, effect: &str, seconds: Option<u32>| json!({"key": key, "operator": "Exists", "effect": effect, "tolerationSeconds": seconds});
    pods["spec"]["nodeSelector"] = json!({LOST_KEY: ""});
    pods["spec"]["tolerations"] = json!([
        tolerated(LOST_KEY, "NoSchedule", None),
        tolerated("node.kubernetes.io/unreachable", "NoExecute", Some(1)),
        tolerated("node.kubernetes.io/not-ready", "NoExecute", Some(1)),
    ]);
    scene.create("apps/v1/deployments", deployment("web", 1, pods));
    let running =
        scene.wait_until("v1/pods", |pods| pods["items"][0]["status"]["phase"] == "Running");
    let first = format!("v1/pods/{}", name(&running["items"][0]));
    let kubelet = scene.cluster.lost.lock().expect("no scene failed with it").take();
    kubelet.expect("a node to lose").power_off();
    let node = scene.wait_until(&format!("/api/v1/nodes/{LOST_NODE}"), |node| {
        has(node, "Ready", "Unknown")
            && node["spec"]["taints"].as_array().is_some_and(|taints| taints.len() == 3)
    });
    scene.record(conditions(&node));
    let mut taints: Vec<String> = node["spec"]["taints"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|taint| facts(taint, &["/key", "/effect"]))
        .collect();
    taints.sort();
    scene.record(taints.join(", "));
    let evicted = scene.wait_until(&first, |pod| pod["metadata"]["deletionTimestamp"].is_string());
    scene.record(format!("{} {}", evicted["status"]["phase"], conditions(&evicted)));
    let pods = scene.wait_until("v1/pods", |pods| {
        pods["items"].as_array().is_some_and(|all| {
            all.len() == 2 && all.iter().any(|pod| has(pod, "PodScheduled", "False"))
        })
    });
    let deleted = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    scene.record(each(&pods, |pod| format!("deleted={} {}", deleted(pod), conditions(pod))));
    let options = json!({"gracePeriodSeconds": 0});
    let forced = scene.api.delete(&scene.path(&first), Some(&options)).expect("an answer");
    scene.record(format!("forced: {}", forced.code));
    scene.wait_deleted(&first);
}
