//! Features flags: profiling, priority and fairness.

use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Flag, Group, Kind};

const NO_PROFILER: &str = "the profiles under /debug/pprof are those of the Go runtime";

/// The group.
pub const GROUP: Group = Group {
    title: "Features",
    flags: &[
        Flag::new(
            "contention-profiling",
            Kind::Bool,
            "false",
            "Measure how long tasks hold a worker thread: keelson_longest_poll_seconds in \
             /metrics and a warning in the log.",
        ),
        Flag::new(
            "debug-socket-path",
            Kind::Text,
            "",
            "Unix socket for profiling without authentication.",
        )
        .accepted(NO_PROFILER),
        Flag::new(
            "enable-priority-and-fairness",
            Kind::Bool,
            "true",
            "Whether requests wait in queues by priority when too many are in flight.",
        ),
        Flag::new(
            "profiling",
            Kind::Bool,
            "true",
            "Whether profiles are served under /debug/pprof.",
        )
        .accepted(NO_PROFILER),
    ],
};

/// Checks the flags and applies them.
pub fn apply(setup: &mut Setup<'_>) {
    let values = setup.values;
    setup.builder.serving.limits.contention_profiling = values.bool("contention-profiling");
    setup.builder.serving.limits.fairness = values.bool("enable-priority-and-fairness");
    if !setup.builder.serving.limits.fairness {
        return;
    }
    let reads = values.int("max-requests-inflight");
    let writes = values.int("max-mutating-requests-inflight");
    // kube-apiserver refuses this where it sets up the queues, after the checks of the flags.
    if reads.saturating_add(writes) <= 0 && reads >= 0 && writes >= 0 {
        setup.fail_at(
            Step::Fairness,
            format!(
                "invalid configuration: MaxRequestsInFlight={reads} and \
             MaxMutatingRequestsInFlight={writes}; they must add up to something positive"
            ),
        );
    }
    let config = values.pairs("runtime-config");
    let first = ["flowcontrol.apiserver.k8s.io/v1", "api/ga", "api/all"]
        .into_iter()
        .find_map(|name| Some((name, config.get(name)?)));
    if let Some((name, value)) = first.filter(|(_, value)| *value == "false") {
        setup.fail(format!(
            "--runtime-config={name}={value} conflicts with --enable-priority-and-fairness=true"
        ));
    }
}
