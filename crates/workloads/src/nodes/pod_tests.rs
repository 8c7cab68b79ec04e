//! Tests of the life of pods: what their status says at which second.

use super::*;

/// A pod whose status follows the time.
struct Run {
    pod: Object,
    needs: Needs,
    started: Started,
    now: Timestamp,
    events: Vec<String>,
    wake: Option<Timestamp>,
    is_removed: bool,
}

const BEGIN: i64 = 1_000_000;

impl Run {
    fn of(spec: Value, annotations: Value) -> Run {
        let fields = value!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1,
                "annotations": (annotations)},
            "spec": (spec), "status": {"phase": "Pending", "qosClass": "BestEffort"}
        });
        Run {
            pod: Object::from_value(fields).unwrap_or_default(),
            needs: Needs::default(),
            started: Started::new(),
            now: Timestamp::new(BEGIN, 300_000_000),
            events: vec![],
            wake: None,
            is_removed: false,
        }
    }

    /// Takes the step of a second after the begin, and returns the status in short.
    fn at(&mut self, seconds: f64) -> String {
        let begin = Timestamp::new(BEGIN, 300_000_000);
        self.now = after(begin, Duration::from_secs_f64(seconds));
        let surroundings = Surroundings {
            now: self.now,
            host_ips: &["10.0.0.1".into()],
            pod_ip: Some("10.1.0.2"),
            needs: &self.needs,
            rejection: None,
            started: &self.started,
        };
        let outcome = step(&self.pod, &surroundings);
        if let Some(status) = outcome.status {
            self.pod.root.insert("status", status);
        }
        self.started.extend(outcome.started);
        self.events.extend(outcome.events.iter().map(|event| event.reason.to_owned()));
        (self.wake, self.is_removed) = (outcome.wake, outcome.is_removed);
        self.text()
    }

    fn text(&self) -> String {
        let pod = &self.pod;
        let fields = ["initContainerStatuses", "containerStatuses"];
        let containers = fields.iter().flat_map(|field| pod.array_at(&["status", field]));
        let texts: Vec<String> = containers.map(container_text).collect();
        let conditions = pod.array_at(&["status", "conditions"]).iter();
        let ready: Vec<&str> = conditions
            .filter(|one| one.str_at(&["type"]) == Some("Ready"))
            .filter_map(|one| one.str_at(&["status"]))
            .collect();
        format!("{} {} {}", pod.str_at(&["status", "phase"]), texts.join(" "), ready.concat())
    }

    /// Returns how many seconds later the next step is due.
    fn due(&self) -> Option<f64> {
        let nanos = self.wake?.since(self.now).0;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)).as_secs_f64())
    }

    fn delete(&mut self, seconds: i64, grace: i64) {
        let at = Timestamp::new(BEGIN + seconds + grace, 0);
        self.pod.set_meta("deletionTimestamp", &at.text());
        self.pod.metadata_mut().insert("deletionGracePeriodSeconds", grace);
    }
}

fn container_text(status: &Value) -> String {
    let code = |field: &str| status.int_at(&[field, "terminated", "exitCode"]);
    let state = match (status.str_at(&["state", "waiting", "reason"]), code("state")) {
        (Some(reason), _) => reason.to_owned(),
        (None, Some(code)) => format!("exit{code}"),
        (None, None) => "running".to_owned(),
    };
    let restarts = status.int_at(&["restartCount"]).unwrap_or(0);
    let ready = status.at(&["ready"]).and_then(Value::as_bool) == Some(true);
    let tail = if restarts > 0 { format!("*{restarts}") } else { String::new() };
    format!("{state}{tail}{}", if ready { "+" } else { "" })
}

/// Checks what the status says at which second.
fn check(spec: Value, annotations: Value, want: &[(f64, &str)]) -> Run {
    let mut run = Run::of(spec, annotations);
    for (seconds, text) in want {
        assert_eq!(run.at(*seconds), *text, "after {seconds} s");
    }
    run
}

#[test]
fn a_pod_without_commands_runs_until_it_is_deleted() {
    let spec = value!({"containers": [{"name": "c", "image": "nginx"}]});
    let mut run = check(spec, value!({}), &[(0.0, "Running running+ True")]);
    assert_eq!((run.events.join(" "), run.due()), ("Pulled Created Started".to_owned(), None));
    let before = run.pod.clone();
    run.at(5.0);
    assert_eq!((run.pod == before, run.events.len()), (true, 3), "nothing happens");
    run.delete(10, 30);
    assert_eq!(run.at(11.0), "Succeeded exit0 False");
    assert_eq!((run.is_removed, run.events.last().cloned()), (true, Some("Killing".to_owned())));
}

#[test]
fn containers_end_and_restart_as_the_policy_says() {
    let spec = |policy: &str, command: &str| {
        value!({"restartPolicy": policy,
            "containers": [{"name": "c", "image": "i", "command": ["sh", "-c", command]}]})
    };
    let none = || value!({});
    check(spec("Never", "exit 3"), none(), &[(0.0, "Failed exit3 False")]);
    check(spec("OnFailure", "exit 0"), none(), &[(0.0, "Succeeded exit0 False")]);
    let sleeps = [(0.0, "Running running+ True"), (1.9, "Running running+ True")];
    let mut run = check(spec("Never", "sleep 2"), none(), &sleeps);
    assert_eq!(run.due().map(|due| (due * 10.0).round()), Some(1.0));
    assert_eq!(run.at(2.0), "Succeeded exit0 False");
    let crashes = [
        (0.0, "Running CrashLoopBackOff*1 False"),
        (9.0, "Running CrashLoopBackOff*1 False"),
        (10.0, "Running CrashLoopBackOff*2 False"),
        (29.0, "Running CrashLoopBackOff*2 False"),
        (30.0, "Running CrashLoopBackOff*3 False"),
    ];
    let run = check(spec("Always", "exit 1"), none(), &crashes);
    assert_eq!(run.events.iter().filter(|reason| *reason == "BackOff").count(), 3);
    let last = &run.pod.array_at(&["status", "containerStatuses"])[0];
    assert_eq!(last.int_at(&["lastState", "terminated", "exitCode"]), Some(1));
}

#[test]
fn init_containers_run_in_order_and_sidecars_end_last() {
    let spec = value!({"restartPolicy": "Never", "initContainers": [
        {"name": "i", "image": "i", "command": ["sleep", "1"]},
        {"name": "s", "image": "i", "restartPolicy": "Always",
            "startupProbe": {"initialDelaySeconds": 2}}],
        "containers": [{"name": "c", "image": "i", "command": ["sleep", "4"]}]});
    let steps = [
        (0.0, "Pending running PodInitializing PodInitializing False"),
        (1.0, "Pending exit0+ running PodInitializing False"),
        (3.0, "Running exit0+ running+ running+ True"),
        (7.0, "Succeeded exit0+ exit0 exit0 False"),
    ];
    check(spec, value!({}), &steps);
    let fails = value!({"restartPolicy": "Never",
        "initContainers": [{"name": "i", "image": "i", "command": ["false"]}],
        "containers": [{"name": "c", "image": "i"}]});
    check(fails, value!({}), &[(0.0, "Failed exit1 PodInitializing False")]);
}

#[test]
fn probes_and_annotations_delay_readiness() {
    let spec = value!({"containers": [{"name": "c", "image": "i", "readinessProbe":
        {"initialDelaySeconds": 3, "periodSeconds": 2, "successThreshold": 2}}]});
    let steps = [(0.0, "Running running False"), (5.0, "Running running+ True")];
    check(spec.clone(), value!({}), &steps);
    let unready = value!({"simulation.keelson.dev/unready": "c"});
    check(spec, unready, &[(0.0, "Running running False"), (99.0, "Running running False")]);
    let plain = value!({"containers": [{"name": "c", "image": "i"}]});
    let delayed = value!({"simulation.keelson.dev/start-delay": "2s"});
    let steps = [(0.0, "Pending ContainerCreating False"), (2.0, "Running running+ True")];
    check(plain.clone(), delayed, &steps);
    let broken = value!({"simulation.keelson.dev/image-pull-error": "true"});
    let steps = [(0.0, "Pending ErrImagePull False"), (10.0, "Pending ImagePullBackOff False")];
    check(plain, broken, &steps);
}

#[test]
fn a_deadline_ends_a_pod() {
    let spec = value!({"activeDeadlineSeconds": 5, "containers": [{"name": "c", "image": "i"}]});
    let run =
        check(spec, value!({}), &[(0.0, "Running running+ True"), (5.0, "Failed exit0 False")]);
    assert_eq!(run.pod.str_at(&["status", "reason"]), "DeadlineExceeded");
}

#[test]
fn a_pod_waits_for_what_it_needs() {
    let spec = value!({"containers": [{"name": "c", "image": "i"}]});
    let mut run = Run::of(spec, value!({}));
    run.needs.containers = vec![("c".into(), "secret \"s\" not found".to_owned())];
    assert_eq!(run.at(0.0), "Pending CreateContainerConfigError False");
    assert_eq!(run.at(1.0), "Pending CreateContainerConfigError False");
    assert_eq!(run.events.join(" "), "Failed");
    run.needs = Needs::default();
    assert_eq!(run.at(2.0), "Running running+ True");
}

#[test]
fn hooks_delay_the_end_up_to_the_grace_period() {
    let spec = |seconds: i64| {
        value!({"containers": [{"name": "c", "image": "i",
            "lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}}]})
    };
    let check = |seconds, grace, due| {
        let mut run = Run::of(spec(seconds), value!({}));
        run.at(0.0);
        run.delete(10, grace);
        run.at(9.7);
        assert_eq!((run.is_removed, run.due()), (false, Some(due)));
    };
    check(4, 30, 4.0);
    check(40, 30, 30.0);
}
