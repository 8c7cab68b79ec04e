//! The parameters of operations.

use std::borrow::Cow;

/// A path or query parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub name: &'static str,
    /// `path` or `query`.
    pub place: &'static str,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    pub description: Cow<'static, str>,
    /// The key of the shared parameter in OpenAPI v2; empty: not shared.
    pub key: &'static str,
}

const fn query(
    name: &'static str,
    kind: &'static str,
    key: &'static str,
    description: &'static str,
) -> Parameter {
    Parameter { name, place: "query", kind, description: Cow::Borrowed(description), key }
}

pub(super) const PRETTY: Parameter = query(
    "pretty",
    "string",
    "pretty-tJGM1-ng",
    "'true' indents the output; browsers and curl get it so without asking.",
);

pub(super) const DRY_RUN: Parameter = query(
    "dryRun",
    "string",
    "",
    "'All' runs every stage of the request but stores nothing. No other value is valid.",
);

const FIELD_MANAGER_TEXT: &str = "Who makes the change: the name that owns the fields it sets. At \
     most 128 printable characters.";

pub(super) const FIELD_MANAGER: Parameter =
    query("fieldManager", "string", "fieldManager-Qy4HdaTW", FIELD_MANAGER_TEXT);

/// The same for patches; an apply patch requires it.
pub(super) const FIELD_MANAGER_PATCH: Parameter = query(
    "fieldManager",
    "string",
    "fieldManager-7c6nTn1T",
    "Who makes the change: the name that owns the fields it sets. At most 128 printable characters. \
     An apply patch must give it; other patches may.",
);

pub(super) const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "",
    "What to do with unknown and duplicate fields: 'Ignore' drops them, 'Warn' (the default) drops \
     them and answers with a warning each, 'Strict' refuses the request.",
);

pub(super) const FORCE: Parameter = query(
    "force",
    "boolean",
    "force-tOGGb0Yi",
    "Apply takes over fields that others own. Only for apply patches.",
);

/// Parameters of lists and watches.
pub(super) const LIST: [Parameter; 11] = [
    query(
        "allowWatchBookmarks",
        "boolean",
        "allowWatchBookmarks-HC2hJt-J",
        "A watch may send events of type BOOKMARK, which carry only a resource version.",
    ),
    query(
        "continue",
        "string",
        "continue-QfD61s0i",
        "The token of the previous page. An expired one answers 410 with a token to go on with.",
    ),
    query(
        "fieldSelector",
        "string",
        "fieldSelector-xIcQKXFG",
        "Narrows the list of returned objects to those whose fields match.",
    ),
    query(
        "labelSelector",
        "string",
        "labelSelector-5Zw57w4C",
        "Narrows the list of returned objects to those whose labels match.",
    ),
    query(
        "limit",
        "integer",
        "limit-1NfNmdNH",
        "The most items a page holds; `metadata.continue` of the answer leads to the next page.",
    ),
    query(
        "resourceVersion",
        "string",
        "resourceVersion-5WAnf1kx",
        "How new the answer must be, or where a watch begins.",
    ),
    query(
        "resourceVersionMatch",
        "string",
        "resourceVersionMatch-t8XhRHeC",
        "How resourceVersion is meant by a list: 'Exact' or 'NotOlderThan'.",
    ),
    query(
        "sendInitialEvents",
        "boolean",
        "sendInitialEvents-rLXlEK_k",
        "A watch begins with what exists, followed by a bookmark; needs resourceVersionMatch.",
    ),
    query(
        "shardSelector",
        "string",
        "shardSelector-Kgyki_3_",
        "Only objects whose hash of a field falls into the given ranges.",
    ),
    query(
        "timeoutSeconds",
        "integer",
        "timeoutSeconds-yvYezaOC",
        "How long the list or watch may take.",
    ),
    query(
        "watch",
        "boolean",
        "watch-XNNPZGbK",
        "Watch for changes to the described resources: a stream of events in place of a list.",
    ),
];

/// Parameters of deletes, besides `dryRun`.
pub(super) const DELETE: [Parameter; 4] = [
    query(
        "gracePeriodSeconds",
        "integer",
        "gracePeriodSeconds--K5HaBOS",
        "Seconds until the object goes; 0 means at once.",
    ),
    query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "ignoreStoreReadErrorWithClusterBreakingPotential-QbNkfIqj",
        "Delete an object that cannot be read any more, without finalizers or preconditions.",
    ),
    query(
        "orphanDependents",
        "boolean",
        "orphanDependents-uRB25kX5",
        "Deprecated: use propagationPolicy.",
    ),
    query(
        "propagationPolicy",
        "string",
        "propagationPolicy-6jk3prlO",
        "What happens to dependents: 'Orphan', 'Background' or 'Foreground'.",
    ),
];

/// Parameters of `pods/log`.
pub(super) const LOG: [Parameter; 9] = [
    query(
        "container",
        "string",
        "container-1GeXxFDC",
        "The container; needed if there are several.",
    ),
    query("follow", "boolean", "follow-9OIXh_2R", "Go on with what is written from now on."),
    query(
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "insecureSkipTLSVerifyBackend-gM00jVbe",
        "Do not check the certificate of the node.",
    ),
    query("limitBytes", "integer", "limitBytes-zwd1RXuc", "Stop after so many bytes."),
    query("previous", "boolean", "previous-1jxDPu3y", "The log of the container that ended."),
    query("sinceSeconds", "integer", "sinceSeconds-vE2NLdnP", "Only lines of the last seconds."),
    query("stream", "string", "stream-l-48cgXv", "'All', 'Stdout' or 'Stderr'."),
    query("tailLines", "integer", "tailLines-9xQLWHMV", "Only so many of the last lines."),
    query("timestamps", "boolean", "timestamps-c17fW1w_", "Put the time before each line."),
];

static ATTACH: [Parameter; 5] = [
    query(
        "container",
        "string",
        "container-_Q-EJ3nR",
        "The container; needed if there are several.",
    ),
    query("stderr", "boolean", "stderr-26jJhFUR", "Carry standard error. On when not given."),
    query("stdin", "boolean", "stdin-sEFnN3IS", "Carry standard input."),
    query("stdout", "boolean", "stdout-005YMKE6", "Carry standard output. On when not given."),
    query("tty", "boolean", "tty-g7MlET_l", "The streams are those of a terminal."),
];

static EXEC: [Parameter; 6] = [
    query("command", "string", "command-Py3eQybp", "The command and its arguments, one each time."),
    query(
        "container",
        "string",
        "container-i5dOmRiM",
        "The container; needed if there are several.",
    ),
    query("stderr", "boolean", "stderr-W_1TNlWc", "Carry standard error."),
    query("stdin", "boolean", "stdin-PSzNhyUC", "Carry standard input."),
    query("stdout", "boolean", "stdout--EZLRwV1", "Carry standard output."),
    query("tty", "boolean", "tty-s0flW37O", "Give the command a terminal."),
];

static PORT_FORWARD: [Parameter; 1] =
    [query("ports", "integer", "ports-91KROJmm", "The ports; needed with WebSockets.")];

static POD_PROXY: [Parameter; 1] =
    [query("path", "string", "path-oPbzgLUj", "The path to ask the pod for.")];

static NODE_PROXY: [Parameter; 1] =
    [query("path", "string", "path-rFDtV0x9", "The path to ask the node for.")];

static SERVICE_PROXY: [Parameter; 1] =
    [query("path", "string", "path-QCf0eosM", "The path to ask the service for.")];

/// Returns the parameters of a connect subresource, by the kind of its options.
pub(super) fn connect_parameters(kind: &str) -> &'static [Parameter] {
    match kind {
        "PodAttachOptions" => &ATTACH,
        "PodExecOptions" => &EXEC,
        "PodPortForwardOptions" => &PORT_FORWARD,
        "PodProxyOptions" => &POD_PROXY,
        "NodeProxyOptions" => &NODE_PROXY,
        "ServiceProxyOptions" => &SERVICE_PROXY,
        _ => &[],
    }
}

/// Returns the parameters that OpenAPI v2 shares.
pub(super) fn shared() -> Vec<Parameter> {
    let mut all = vec![PRETTY, FIELD_MANAGER, FIELD_MANAGER_PATCH, FORCE, namespace(), rest()];
    for set in [&LIST[..], &DELETE, &LOG, &ATTACH, &EXEC, &PORT_FORWARD] {
        all.extend_from_slice(set);
    }
    for set in [&POD_PROXY, &NODE_PROXY, &SERVICE_PROXY] {
        all.extend_from_slice(set);
    }
    all
}

/// Returns the path parameter `{namespace}`.
pub(super) fn namespace() -> Parameter {
    in_path("namespace", "namespace-vgWSWtn3", "The namespace of the object.".into())
}

/// Returns the path parameter `{path}`: the path behind a proxy.
pub(super) fn rest() -> Parameter {
    in_path("path", "path-z6Ciiujn", "The rest of the path.".into())
}

/// Returns the path parameter `{name}` of a kind.
pub(super) fn name(kind: &str) -> Parameter {
    in_path("name", "", format!("The name of the {kind}.").into())
}

fn in_path(name: &'static str, key: &'static str, description: Cow<'static, str>) -> Parameter {
    Parameter { name, place: "path", kind: "string", description, key }
}
