//! [`Behavior`]: what a container does, from its command and the annotations of its pod.
//!
//! | annotation | meaning |
//! |---|---|
//! | `simulation.keelson.dev/exit-codes` | the containers end by themselves with this code; a list separated by commas has one for each completion index of a Job, and the last one for all others |
//! | `simulation.keelson.dev/exit-after` | they end this long after their start (`1m30s`), with code 0 unless the annotation above says another |
//! | `simulation.keelson.dev/start-delay` | how long after its acceptance by the node the pod's containers start |
//! | `simulation.keelson.dev/unready` | `true`, or names of containers: they run and do not become ready |
//! | `simulation.keelson.dev/image-pull-error` | `true`, or names of containers: their image cannot be pulled |
//!
//! The first two concern the containers of `spec.containers` only.

use super::script::{self, Ending};
use keelson_meta::time::GoDuration;
use keelson_meta::{Object, Value};
use std::time::Duration;

const EXIT_CODES: &str = "simulation.keelson.dev/exit-codes";
const EXIT_AFTER: &str = "simulation.keelson.dev/exit-after";
const UNREADY: &str = "simulation.keelson.dev/unready";
const START_DELAY: &str = "simulation.keelson.dev/start-delay";
const PULL_ERROR: &str = "simulation.keelson.dev/image-pull-error";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The exit code of a process that SIGTERM ends (128 + 15).
const TERMINATED: i64 = 143;

/// What a container does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behavior {
    /// How it ends by itself.
    pub ending: Ending,
    /// Whether it never becomes ready.
    pub is_unready: bool,
    /// Whether its image cannot be pulled.
    pub is_pull_failing: bool,
    /// The exit code when it is told to end.
    pub terminated_code: i64,
}

/// Returns what a container of a pod does. `is_main`: it is one of `spec.containers`.
pub fn of(pod: &Object, container: &Value, is_main: bool) -> Behavior {
    let argv = argv(pod, container);
    let by_command = script::ending(&argv, &|name| variable(pod, container, name));
    let ending = if is_main { annotated_ending(pod) } else { None };
    let name = container.str_at(&["name"]).unwrap_or_default();
    let is_named = |annotation: &str| {
        let names = pod.annotation(annotation).unwrap_or_default();
        names == "true" || names.split(',').any(|one| one.trim() == name)
    };
    Behavior {
        ending: ending.unwrap_or(by_command),
        is_unready: is_named(UNREADY),
        is_pull_failing: is_named(PULL_ERROR),
        // Servers of images end cleanly; shells and sleeps are ended by the signal.
        terminated_code: if argv.is_empty() { 0 } else { TERMINATED },
    }
}

/// Returns how long after its acceptance the containers of a pod start.
pub fn start_delay(pod: &Object) -> Duration {
    duration(pod, START_DELAY).unwrap_or_default()
}

fn duration(pod: &Object, annotation: &str) -> Option<Duration> {
    let parsed = GoDuration::parse(pod.annotation(annotation)?).ok()?;
    Some(super::span(parsed))
}

fn annotated_ending(pod: &Object) -> Option<Ending> {
    let after = duration(pod, EXIT_AFTER);
    let code = pod.annotation(EXIT_CODES).and_then(|codes| {
        let codes: Vec<&str> = codes.split(',').collect();
        let index = pod.annotation(COMPLETION_INDEX).and_then(|index| index.parse().ok());
        codes.get(index.unwrap_or(0_usize)).or(codes.last())?.trim().parse::<i64>().ok()
    });
    if after.is_none() && code.is_none() {
        return None;
    }
    Some(Ending::Exit(after.unwrap_or_default(), code.unwrap_or(0)))
}

/// Returns the words of the command of a container; none if the image's own runs. Arguments for the
/// image's command count if they begin with a shell or are a command by themselves.
fn argv(pod: &Object, container: &Value) -> Vec<String> {
    let words = |field: &str| {
        let words = container.array_at(&[field]).iter().filter_map(Value::as_str);
        words.map(|word| expand(pod, container, word)).collect::<Vec<String>>()
    };
    [words("command"), words("args")].concat()
}

/// Replaces `$(NAME)` by the values of variables, as kubelets do.
fn expand(pod: &Object, container: &Value, word: &str) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once("$(") {
        text.push_str(before);
        let known = after
            .split_once(')')
            .and_then(|(name, after)| variable(pod, container, name).map(|known| (known, after)));
        match known {
            Some((known, after)) => {
                text.push_str(&known);
                rest = after;
            }
            None => {
                text.push_str("$(");
                rest = after;
            }
        }
    }
    text + rest
}

/// Returns the value of a variable of a container that is given literally or by a field of the pod.
fn variable(pod: &Object, container: &Value, name: &str) -> Option<String> {
    let mut variables = container.array_at(&["env"]).iter();
    let found = variables.find(|one| one.str_at(&["name"]) == Some(name))?;
    if let Some(path) = found.str_at(&["valueFrom", "fieldRef", "fieldPath"]) {
        let key = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']").map(str::to_owned);
        let value = match path {
            "metadata.name" => pod.name(),
            "metadata.namespace" => pod.namespace(),
            "metadata.uid" => pod.uid(),
            "spec.nodeName" => pod.str_at(&["spec", "nodeName"]),
            _ => match (key("metadata.annotations['"), key("metadata.labels['")) {
                (Some(key), _) => pod.annotation(&key).unwrap_or_default(),
                (_, Some(key)) => pod.label(&key).unwrap_or_default(),
                _ => return None,
            },
        };
        return Some(value.to_owned());
    }
    Some(found.str_at(&["value"]).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn annotations_come_before_commands() {
        let check = |annotations: Value, container: Value, want: Ending| {
            let pod = Object::from_value(value!({"metadata": {"annotations": (annotations)}}));
            let behavior = of(&pod.unwrap_or_default(), &container, true);
            assert_eq!(behavior.ending, want, "{container:?}");
        };
        let exit = |seconds, code| Ending::Exit(Duration::from_secs(seconds), code);
        let falsity = value!({"command": ["false"]});
        check(value!({}), value!({"image": "nginx"}), Ending::Never);
        check(value!({}), falsity.clone(), exit(0, 1));
        check(value!({"simulation.keelson.dev/exit-codes": "0"}), falsity.clone(), exit(0, 0));
        check(value!({"simulation.keelson.dev/exit-after": "1m"}), falsity, exit(60, 0));
        let indexed = value!({"simulation.keelson.dev/exit-codes": "0,3",
            "batch.kubernetes.io/job-completion-index": "1"});
        check(indexed, value!({}), exit(0, 3));
        let by_index = value!({"command": ["sh", "-c", "exit $I"], "env": [{"name": "I",
            "valueFrom": {"fieldRef": {"fieldPath":
                "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}]});
        check(value!({"batch.kubernetes.io/job-completion-index": "5"}), by_index, exit(0, 5));
        let args = value!({"args": ["sleep", "$(N)"], "env": [{"name": "N", "value": "4"}]});
        check(value!({}), args, exit(4, 0));
    }
}
