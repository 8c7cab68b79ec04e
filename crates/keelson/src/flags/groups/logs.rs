//! Logs flags.

use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Face, Flag, Group, Kind};
use keelson_meta::Feature;

const ONE_STREAM: &str = "every line is written to standard error at once";

/// The group.
pub const GROUP: Group = Group {
    title: "Logs",
    flags: &[
        Flag::new(
            "log-flush-frequency",
            Kind::Duration,
            "5s",
            "Longest time that a line is kept back.",
        )
        .accepted(ONE_STREAM),
        Flag::new(
            "log-json-info-buffer-size",
            Kind::Quantity,
            "0",
            "Bytes of info lines that are kept back in JSON format.",
        )
        .accepted(ONE_STREAM),
        Flag::new(
            "log-json-split-stream",
            Kind::Bool,
            "false",
            "Whether info lines in JSON format go to standard output.",
        )
        .accepted(ONE_STREAM),
        Flag::new(
            "log-text-info-buffer-size",
            Kind::Quantity,
            "0",
            "Bytes of info lines that are kept back in text format.",
        )
        .accepted(ONE_STREAM),
        Flag::new(
            "log-text-split-stream",
            Kind::Bool,
            "false",
            "Whether info lines in text format go to standard output.",
        )
        .accepted(ONE_STREAM),
        Flag::new("logging-format", Kind::Text, "text", "Log format: text or json."),
        Flag::new(
            "v",
            Kind::Level,
            "0",
            "Log verbosity: 0 warnings, 1 info, 3 requests and debug, 6 trace.",
        )
        .in_serve("1"),
        Flag::new(
            "vmodule",
            Kind::Patterns,
            "",
            "Log verbosity of single files: PATTERN=N,PATTERN=N.",
        )
        .accepted("the names are those of Go source files"),
    ],
};

/// Checks the flags.
pub fn apply(setup: &mut Setup<'_>) {
    let is_allowed = setup.builder.apis.features.is_on(Feature::LoggingAlphaOptions);
    for (flag, field) in [
        ("log-text-split-stream", "text.splitStream"),
        ("log-text-info-buffer-size", "text.infoBufferSize"),
        ("log-json-split-stream", "json.splitStream"),
        ("log-json-info-buffer-size", "json.infoBufferSize"),
    ] {
        let is_changed = !matches!(setup.values.shown_value(flag).as_str(), "0" | "false");
        if is_changed && !is_allowed {
            setup.fail_at(
                Step::Logs,
                format!("options.{field}: Forbidden: Feature LoggingAlphaOptions is disabled"),
            );
        }
    }
    let frequency = setup.values.signed_duration("log-flush-frequency");
    if frequency.0 <= 0 && setup.face == Face::KubeApiserver {
        setup.fail_at(
            Step::Logs,
            format!("flushFrequency: Invalid value: \"{frequency}\": Must be greater than zero"),
        );
    }
    let format = setup.values.text("logging-format");
    if format == "json"
        && setup.values.some_text("vmodule").is_some()
        && setup.face == Face::KubeApiserver
    {
        setup.fail_at(Step::Logs, "vmodule: Forbidden: Only supported for text log format");
    }
    if !matches!(format, "text" | "json") {
        setup.fail_at(
            Step::Logs,
            format!("format: Invalid value: {format:?}: Unsupported log format"),
        );
    }
}
