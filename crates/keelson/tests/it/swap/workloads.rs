//! Scenarios of workloads: Deployments, StatefulSets with claims, Jobs, CronJobs, DaemonSets.

use super::scene::{Scene, conditions, each, facts, has, name, template};
use keelson_testkit::pods::{EXIT_CODES, UNREADY};
use serde_json::{Value, json};

const REVISION: &str = "/metadata/annotations/deployment.kubernetes.io~1revision";
const DEPLOYMENT: &str = "apps/v1/deployments/web";
const REPLICA_SETS: &str = "apps/v1/replicasets";

/// A Deployment that is rolled out, rolled back, stuck and scaled.
pub fn rollout(scene: &Scene) {
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": template("web", "web:1", json!({}))});
    scene.create("apps/v1/deployments", json!({"metadata": {"name": "web"}, "spec": spec}));
    rolled_out(scene, 3);
    scene.patch(DEPLOYMENT, json!({"spec": {"template": template("web", "web:2", json!({}))}}));
    rolled_out(scene, 3);
    scene.patch(DEPLOYMENT, json!({"spec": {"template": template("web", "web:1", json!({}))}}));
    rolled_out(scene, 3);
    scene.patch(DEPLOYMENT, json!({"spec": {"replicas": 1}}));
    rolled_out(scene, 1);
    let stuck = template("web", "web:3", json!({UNREADY: ""}));
    scene.patch(DEPLOYMENT, json!({"spec": {"progressDeadlineSeconds": 2, "template": stuck}}));
    let web = scene.wait_until(DEPLOYMENT, |web| has(web, "Progressing", "False"));
    scene.record(conditions(&web));
    let replicas = "/status/replicas";
    let unavailable = "/status/unavailableReplicas";
    scene.record(facts(&web, &[replicas, unavailable, "/status/availableReplicas"]));
}

/// Waits until the rollout is complete, and records it.
fn rolled_out(scene: &Scene, replicas: usize) {
    let web = scene.wait_until(DEPLOYMENT, |web| {
        let status = &web["status"];
        let counts = ["replicas", "updatedReplicas", "availableReplicas"];
        status["observedGeneration"] == web["metadata"]["generation"]
            && counts.iter().all(|count| status[count] == replicas)
            && status["terminatingReplicas"].as_u64().unwrap_or(0) == 0
            && web["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["reason"] == "NewReplicaSetAvailable"))
    });
    scene.record(format!("{} {}", facts(&web, &[REVISION]), conditions(&web)));
    // The counts of ReplicaSets follow those of the Deployment.
    let sets = scene.wait_until(REPLICA_SETS, |sets| {
        let of = |set: &Value| set["status"]["replicas"] == set["spec"]["replicas"];
        sets["items"].as_array().is_some_and(|sets| sets.iter().all(of))
    });
    let history = "/metadata/annotations/deployment.kubernetes.io~1revision-history";
    scene.record(each(&sets, |set| facts(set, &[REVISION, history, "/spec/replicas"])));
    let pods = scene.wait_for_count("v1/pods", replicas);
    scene.record(each(&pods, |pod| format!("{} {}", pod["status"]["phase"], conditions(pod))));
}

/// A StatefulSet with claims, which are deleted with it.
pub fn stateful_set(scene: &Scene) {
    for number in 0..3 {
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "swap", "hostPath": {"path": "/tmp"},
            "persistentVolumeReclaimPolicy": "Retain"});
        let metadata = json!({"name": format!("swap-{number}")});
        scene.create("/api/v1/persistentvolumes", json!({"metadata": metadata, "spec": spec}));
    }
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "swap", "resources": {"requests": {"storage": "1Gi"}}}});
    let mut pods = template("db", "db:1", json!({}));
    pods["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let spec = json!({"replicas": 3, "serviceName": "db", "template": pods,
        "selector": {"matchLabels": {"app": "db"}}, "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}});
    scene.create("apps/v1/statefulsets", json!({"metadata": {"name": "db"}, "spec": spec}));
    let set = "apps/v1/statefulsets/db";
    let is_ready = |db: &Value, count: u64| {
        let status = &db["status"];
        status["observedGeneration"] == db["metadata"]["generation"]
            && status["availableReplicas"] == count
            && status["replicas"] == count
            && status["updatedReplicas"] == count
            && status["currentRevision"] == status["updateRevision"]
    };
    scene.wait_until(set, |db| is_ready(db, 3));
    let bound = |list: &Value| {
        list["items"]
            .as_array()
            .is_some_and(|all| all.iter().all(|one| one["status"]["phase"] == "Bound"))
    };
    let claims = scene.wait_until("v1/persistentvolumeclaims", bound);
    scene.record(each(&claims, |claim| format!("{} {}", name(claim), claim["status"])));
    let pods = scene.get("v1/pods").body;
    scene.record(each(&pods, |pod| format!("{} {}", name(pod), conditions(pod))));
    scene.patch(set, json!({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}));
    let db = scene.wait_until(set, |db| is_ready(db, 3));
    let revision = &db["status"]["updateRevision"];
    let label = "controller-revision-hash";
    let pods = scene.get("v1/pods").body;
    scene.record(each(&pods, |pod| {
        format!("{} {}", name(pod), &pod["metadata"]["labels"][label] == revision)
    }));
    scene.patch(set, json!({"spec": {"replicas": 1}}));
    let db = scene.wait_until(set, |db| is_ready(db, 1));
    scene.record(facts(
        &db,
        &["/status/replicas", "/status/readyReplicas", "/status/collisionCount"],
    ));
    scene.wait_for_count("v1/pods", 1);
    scene
        .record(each(&scene.get("v1/persistentvolumeclaims").body, |claim| name(claim).to_owned()));
    scene.delete(set, "Background");
    scene.wait_for_count("v1/persistentvolumeclaims", 0);
    scene.wait_for_count("v1/pods", 0);
    let volumes = scene.wait_until("/api/v1/persistentvolumes", |list| {
        list["items"]
            .as_array()
            .is_some_and(|all| all.iter().all(|one| one["status"]["phase"] == "Released"))
    });
    scene.record(each(&volumes, |volume| facts(volume, &["/metadata/name", "/status/phase"])));
}

fn job(name: &str, codes: &str, mut spec: Value) -> Value {
    let mut template = template(name, "job:1", json!({EXIT_CODES: codes}));
    template["spec"]["restartPolicy"] = json!("Never");
    spec["template"] = template;
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Jobs that succeed, fail, are indexed, and are deleted after their TTL.
pub fn jobs(scene: &Scene) {
    let jobs = "batch/v1/jobs";
    let rule = json!({"rules": [{"action": "FailJob",
        "onExitCodes": {"operator": "In", "values": [42]}}]});
    let rows = [
        job("plain", "0", json!({"completions": 3, "parallelism": 2})),
        job(
            "indexed",
            "0,3,0",
            json!({"completions": 3, "parallelism": 3,
            "completionMode": "Indexed", "backoffLimitPerIndex": 0}),
        ),
        job("failing", "1", json!({"backoffLimit": 0})),
        job("policy", "42", json!({"backoffLimit": 6, "podFailurePolicy": rule})),
    ];
    for row in rows {
        let path = format!("{jobs}/{}", name(&row));
        scene.create(jobs, row);
        let ended = scene
            .wait_until(&path, |job| has(job, "Complete", "True") || has(job, "Failed", "True"));
        let counts = [
            "/status/succeeded",
            "/status/failed",
            "/status/active",
            "/status/ready",
            "/status/completedIndexes",
            "/status/failedIndexes",
            "/status/uncountedTerminatedPods",
        ];
        scene.record(format!("{} {} {}", name(&ended), facts(&ended, &counts), conditions(&ended)));
        let label = format!("v1/pods?labelSelector=job-name%3D{}", name(&ended));
        let pods = scene.get(&label).body;
        scene.record(each(&pods, |pod| {
            format!("{} {}", pod["status"]["phase"], pod["metadata"]["finalizers"])
        }));
    }
    scene.create(jobs, job("brief", "0", json!({"ttlSecondsAfterFinished": 1})));
    scene.wait_deleted("batch/v1/jobs/brief");
    scene.wait_for_count("v1/pods?labelSelector=job-name%3Dbrief", 0);
    scene.create(jobs, job("paused", "0", json!({"suspend": true})));
    let paused = scene.wait_until("batch/v1/jobs/paused", |job| has(job, "Suspended", "True"));
    scene.record(conditions(&paused));
    scene.patch("batch/v1/jobs/paused", json!({"spec": {"suspend": false}}));
    let ended = scene.wait_until("batch/v1/jobs/paused", |job| has(job, "Complete", "True"));
    scene.record(conditions(&ended));
}

/// A CronJob that runs once a minute.
pub fn cron_job(scene: &Scene) {
    let template = job("tick", "0", json!({}));
    let spec = json!({"schedule": "* * * * *", "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 1, "jobTemplate": {"spec": template["spec"]}});
    let made =
        scene.create("batch/v1/cronjobs", json!({"metadata": {"name": "tick"}, "spec": spec}));
    let jobs = scene.wait_until("batch/v1/jobs", |jobs| {
        jobs["items"]
            .as_array()
            .is_some_and(|all| all.iter().any(|job| has(job, "Complete", "True")))
    });
    let owner =
        |job: &Value| job["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"];
    scene.record(each(&jobs, |job| format!("owned={} {}", owner(job), conditions(job))));
    let path = "batch/v1/cronjobs/tick";
    let tick = scene.wait_until(path, |tick| tick["status"]["lastSuccessfulTime"].is_string());
    let scheduled = tick["status"]["lastScheduleTime"].as_str().unwrap_or_default();
    scene.record(format!("on the minute: {}", scheduled.ends_with(":00Z")));
    scene.delete(path, "Background");
    scene.wait_for_count("batch/v1/jobs", 0);
    scene.wait_for_count("v1/pods", 0);
}

/// A DaemonSet, whose Pods run on each node whose taints they tolerate.
pub fn daemon_set(scene: &Scene) {
    let update = json!({"rollingUpdate": {"maxUnavailable": 2}});
    let spec = json!({"selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": update,
        "template": template("agent", "agent:1", json!({}))});
    scene.create("apps/v1/daemonsets", json!({"metadata": {"name": "agent"}, "spec": spec}));
    let path = "apps/v1/daemonsets/agent";
    let is_rolled_out = |set: &Value| {
        let status = &set["status"];
        status["observedGeneration"] == set["metadata"]["generation"]
            && ["desiredNumberScheduled", "numberAvailable", "updatedNumberScheduled"]
                .iter()
                .all(|count| status[count] == 2)
    };
    let agent = scene.wait_until(path, is_rolled_out);
    let counts = [
        "/status/desiredNumberScheduled",
        "/status/currentNumberScheduled",
        "/status/numberMisscheduled",
        "/status/numberReady",
    ];
    scene.record(facts(&agent, &counts));
    scene.patch(path, json!({"spec": {"template": template("agent", "agent:2", json!({}))}}));
    scene.record(facts(&scene.wait_until(path, is_rolled_out), &counts));
    let pods = scene.wait_for_count("v1/pods", 2);
    let pointers = ["/spec/nodeName", "/spec/containers/0/image", "/status/phase"];
    scene.record(each(&pods, |pod| facts(pod, &pointers)));
    let revisions = scene.get("apps/v1/controllerrevisions").body;
    scene.record(each(&revisions, |revision| facts(revision, &["/revision"])));
}
