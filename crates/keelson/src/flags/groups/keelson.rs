//! The flags of `keelson serve` that kube-apiserver does not have.

use crate::documents::documents;
use crate::flags::data_dir;
use crate::flags::setup::Setup;
use crate::flags::table::{Flag, Group, Kind};
use keelson_registry::SteppedClock;
use keelson_schema::yaml;
use keelson_workloads::{Simulation, StageFiles};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The group.
pub const GROUP: Group = Group {
    title: "Keelson",
    flags: &[
        Flag::new(
            "controllers",
            Kind::List,
            "",
            "Control loops to run: * all, NAME this one, -NAME not this one. Empty means all; \
             those that a kube-controller-manager also runs stop while one holds its lease.",
        ),
        Flag::new(
            "data-dir",
            Kind::Text,
            "",
            "Folder for data, certificates and the kubeconfig. Empty means \
             $XDG_DATA_HOME/keelson, or ~/.local/share/keelson.",
        ),
        Flag::new(
            "durability",
            Kind::Text,
            "sync",
            "Durability of acknowledged writes: sync (they survive crashes and power loss), or \
             memory (data is kept in memory only, for tests).",
        ),
        Flag::new(
            "ephemeral",
            Kind::Bool,
            "false",
            "For tests: data and keys are kept in memory, on a free port of 127.0.0.1 unless \
             another is given. The URL, an administrator's token and the kubeconfig are printed as \
             one line of JSON. The server stops when its standard input ends, so that it does not \
             outlive a process that holds the other end. The file of --kubeconfig must not exist, \
             and is removed at the stop; no other is written.",
        ),
        Flag::new(
            "history-seconds",
            Kind::Int,
            "300",
            "How long old revisions can be listed and watched, in seconds.",
        ),
        Flag::new(
            "kubeconfig",
            Kind::Text,
            "",
            "Path of the administrator's kubeconfig. Empty means admin.kubeconfig in the data \
             folder.",
        ),
        Flag::new("log-format", Kind::Text, "", "Log format.")
            .deprecated("use --logging-format instead.")
            .hidden(),
        Flag::new(
            "simulate",
            Kind::Bool,
            "false",
            "Simulate a cluster: control loops of workloads, a scheduler, and nodes whose Pods start, \
             become ready and end by what their spec says. No container runs. The loops step aside \
             while a kube-controller-manager or kube-scheduler holds its Lease.",
        ),
        Flag::new(
            "simulate-nodes",
            Kind::Int,
            "1",
            "With --simulate, the number of simulated nodes.",
        ),
        Flag::new(
            "simulate-rate",
            Kind::Float,
            "1",
            "With --simulate, how many seconds pass in the cluster in one second. keelson \
             simulation changes it and steps the time while the server runs.",
        ),
        Flag::new(
            "simulate-stages",
            Kind::List,
            "",
            "With --simulate, files with Stages of KWOK, which say what happens to Pods, nodes and \
             other objects. Those that are created as objects of the resource stages count, too.",
        ),
        Flag::new(
            "ui",
            Kind::Bool,
            "false",
            "Serve the explorer, a web page that shows the objects of this server, at /ui/. The page \
             needs no credentials, but its requests do: it asks for a bearer token.",
        ),
    ],
};

/// The largest number of simulated nodes: that of the largest cluster that Kubernetes supports.
const SIMULATED_NODES_MAX: i64 = 5_000;

/// The largest file of Stages.
const STAGES_BYTES_MAX: u64 = 4 << 20;

fn apply_simulation(setup: &mut Setup<'_>) {
    let nodes = setup.values.int("simulate-nodes");
    if !(0..=SIMULATED_NODES_MAX).contains(&nodes) {
        setup.fail("--simulate-nodes: it must be between 0 and 5000");
    }
    let rate = setup.values.float("simulate-rate");
    if !(SteppedClock::RATE_MIN..=SteppedClock::RATE_MAX).contains(&rate) {
        setup.fail("--simulate-rate: it must be between 0.001 and 10000");
    }
    if setup.values.bool("simulate") {
        let nodes = usize::try_from(nodes).unwrap_or_default();
        let clock = SteppedClock::new(rate);
        let stages = stages_of_files(setup);
        setup.builder.controllers.simulation =
            Some(Simulation { nodes, clock, stages, ..Default::default() });
    } else {
        let no_stages = setup.values.list("simulate-stages").is_empty();
        let flags = [("nodes", nodes == 1), ("rate", rate == 1.0), ("stages", no_stages)];
        for (flag, is_default) in flags {
            if !is_default {
                setup.fail(format!("--simulate-{flag}: it needs --simulate"));
            }
        }
    }
}

/// Reads the Stages of --simulate-stages. The log says which other objects of the files are not
/// used.
fn stages_of_files(setup: &mut Setup<'_>) -> StageFiles {
    let mut stages = StageFiles::default();
    let mut others: BTreeSet<String> = BTreeSet::new();
    for file in setup.values.list("simulate-stages") {
        if let Err(why) = read_stages(file, &mut stages, &mut others) {
            setup.fail(format!("--simulate-stages: {file}: {why}"));
        }
    }
    if !others.is_empty() {
        let kinds: Vec<String> = others.into_iter().collect();
        setup.notes.push(format!("--simulate-stages: not used: {}", kinds.join(", ")));
    }
    stages
}

/// Reads a file, and adds the kinds of its other objects to `others`.
fn read_stages(
    file: &str,
    stages: &mut StageFiles,
    others: &mut BTreeSet<String>,
) -> Result<(), String> {
    let mut text = vec![];
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    let read = opened.take(STAGES_BYTES_MAX + 1).read_to_end(&mut text);
    if read.map_err(|error| error.to_string())? as u64 > STAGES_BYTES_MAX {
        return Err(format!("it is larger than {} MiB", STAGES_BYTES_MAX >> 20));
    }
    for (lines_before, document) in documents(&text) {
        let at = |why: String| format!("document at line {}: {why}", lines_before + 1);
        let object = yaml::parse(document).map_err(|error| at(error.to_string()))?.value;
        if !object.is_null() && !stages.add(&object).map_err(at)? {
            let kind = object.str_at(&["kind"]).unwrap_or("object without a kind");
            others.insert(kind.to_owned());
        }
    }
    Ok(())
}

/// Checks the flags and applies them. Data in etcd excludes those of the embedded store.
pub fn apply(setup: &mut Setup<'_>) {
    let values = setup.values;
    if values.bool("ephemeral") {
        apply_ephemeral(setup);
    } else {
        apply_data_dir(setup);
    }
    setup.builder.controllers.selected = values.list("controllers").to_vec();
    apply_simulation(setup);
    setup.builder.explorer = values.bool("ui");
    let seconds = u64::try_from(values.int("history-seconds")).unwrap_or(0);
    setup.builder.storage.history = Duration::from_secs(seconds.max(1));
    if !matches!(values.text("log-format"), "" | "text" | "json") {
        setup.fail("--log-format: it is neither text nor json");
    }
    if setup.builder.storage.etcd.is_none() {
        return;
    }
    for flag in ["durability", "history-seconds"] {
        if values.is_given(flag) {
            setup.fail(format!("--{flag} cannot be used with --etcd-servers"));
        }
    }
}

/// Applies the flags that say where data and certificates are.
fn apply_data_dir(setup: &mut Setup<'_>) {
    let values = setup.values;
    let Some(dir) = setup.take(data_dir(values.path("data-dir").as_ref())) else { return };
    if setup.builder.serving.cert_dir.is_none() {
        setup.builder.serving.cert_dir = Some(dir.join("pki"));
    }
    match is_durable(values.text("durability")) {
        Some(true) => setup.builder.storage.data_dir = Some(dir),
        Some(false) => {}
        None => {
            let other = values.text("durability");
            setup.fail(format!("--durability: {other:?} is neither sync nor memory"));
        }
    }
}

/// Returns whether acknowledged writes survive a crash. A value may also be written like the
/// constants of the API, as their conventions demand of flags.
fn is_durable(word: &str) -> Option<bool> {
    match word {
        "sync" | "Sync" => Some(true),
        "memory" | "Memory" => Some(false),
        _ => None,
    }
}

/// Applies `--ephemeral`: other defaults, and no folder.
fn apply_ephemeral(setup: &mut Setup<'_>) {
    let values = setup.values;
    for flag in ["data-dir", "durability"] {
        if values.is_given(flag) {
            setup.fail(format!("--{flag} cannot be used with --ephemeral"));
        }
    }
    if setup.builder.storage.etcd.is_some() {
        setup.fail("--etcd-servers cannot be used with --ephemeral");
    }
    if !values.is_given("bind-address") {
        setup.builder.serving.bind.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    if !values.is_given("secure-port") {
        setup.builder.serving.bind.set_port(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: R-TYPE-10.
    #[test]
    fn durability_is_written_like_a_constant_or_in_lower_case() {
        for (word, wanted) in [
            ("sync", Some(true)),
            ("Sync", Some(true)),
            ("memory", Some(false)),
            ("Memory", Some(false)),
            ("SYNC", None),
            ("", None),
        ] {
            assert_eq!(is_durable(word), wanted, "{word}");
        }
    }
}
