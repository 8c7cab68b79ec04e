//! Validates probes and lifecycle hooks.

use super::context::Context;
use crate::check::Field;
use crate::gates;
use keelson_meta::names;
use keelson_meta::{ErrorList, Feature, Value};

const WINDOWS_SIGNALS: &[&str] = &["SIGKILL", "SIGTERM"];
const SIGNALS: &[&str] = &[
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// Validates the lifecycle hooks and probes of a container.
pub(super) fn all(container: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let lifecycle = container.field("lifecycle");
    for name in ["postStart", "preStop"] {
        let hook = lifecycle.field(name);
        if hook.is_set() {
            handler(&hook, context, errors);
        }
    }
    let signal = lifecycle.field("stopSignal");
    if signal.is_set() && gates::is_on(Feature::ContainerStopSignals) {
        match context.os {
            "" => {
                let words = "may not be set for containers with empty `spec.os.name`";
                signal.forbidden(errors, words);
            }
            "windows" => signal.one_of(errors, WINDOWS_SIGNALS),
            _ => signal.one_of(errors, SIGNALS),
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let at = container.field(name);
        if at.is_set() {
            probe(&at, name, context, errors);
        }
    }
}

fn probe(at: &Field<'_, '_>, name: &str, context: &Context<'_>, errors: &mut ErrorList) {
    handler(at, context, errors);
    let counts = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold"];
    for count in counts.into_iter().chain(["failureThreshold"]) {
        at.field(count).not_negative(errors);
    }
    let grace = at.field("terminationGracePeriodSeconds");
    if grace.is_set() && grace.number() <= 0 {
        grace.invalid(errors, "must be greater than 0");
    }
    if name == "readinessProbe" {
        if grace.is_set() {
            grace.invalid(errors, "must not be set for readinessProbes");
        }
    } else if at.int("successThreshold") != Some(1) {
        let threshold = at.field("successThreshold");
        threshold.invalid_as(errors, threshold.number(), "must be 1");
    }
}

/// Validates a handler: exactly one action must be set.
fn handler(at: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    type Check = fn(&Field<'_, '_>, &Context<'_>, &mut ErrorList);
    const KINDS: &[(&str, Check)] = &[
        ("exec", exec),
        ("httpGet", http_get),
        ("tcpSocket", |at, _, errors| port(&at.field("port"), errors)),
        ("grpc", |at, _, errors| at.field("port").port(errors)),
        ("sleep", sleep),
    ];
    let mut count = 0;
    for (name, check) in KINDS {
        let found = at.field(name);
        if !found.is_set() {
            continue;
        }
        count += 1;
        if count > 1 {
            found.forbidden(errors, "may not specify more than 1 handler type");
        } else {
            check(&found, context, errors);
        }
    }
    if count == 0 {
        at.required(errors, "must specify a handler type");
    }
}

fn exec(at: &Field<'_, '_>, _: &Context<'_>, errors: &mut ErrorList) {
    at.field("command").not_empty(errors, "");
}

fn http_get(at: &Field<'_, '_>, _: &Context<'_>, errors: &mut ErrorList) {
    at.field("path").not_empty(errors, "");
    port(&at.field("port"), errors);
    at.field("scheme").one_of(errors, &["HTTP", "HTTPS"]);
    let headers = at.field("httpHeaders");
    for header in headers.items() {
        let name = Field { value: header.get("name"), path: headers.path };
        name.rule(errors, names::is_http_header_name);
    }
}

fn sleep(at: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let seconds = at.field("seconds").number();
    if seconds < 0 || seconds > context.grace_seconds {
        let words = format!(
            "must be non-negative and less than terminationGracePeriodSeconds ({})",
            context.grace_seconds
        );
        at.invalid_as(errors, seconds, &words);
    }
}

/// Validates a port number or name.
pub(crate) fn port(at: &Field<'_, '_>, errors: &mut ErrorList) {
    match at.value {
        Value::String(_) => at.rule(errors, names::is_valid_port_name),
        _ => at.port(errors),
    }
}
