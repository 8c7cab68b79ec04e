//! The same commands against a stock kube-apiserver with a node of the same kind: each has the
//! same output, error output and exit code as with Keelson.

use super::world::{ExactRow, SPDY, World};
use super::{COMMANDS, COPIES, DEBUG_NODE, LATER_LOGS, LOGS, ON_TERMINALS, debug_pod, terminal};
use crate::kubectl::every_kubectl;

const CONTAINER: &str = "default/web/main";

/// Requests that have no rows of their own.
const MORE: &[ExactRow] = &[
    ("k get --raw /api/v1/nodes/n1/proxy/healthz", 0, "ok", ""),
    ("k get --raw /api/v1/nodes/n2/proxy/healthz", 1, "", ""),
    ("k get --raw /api/v1/namespaces/default/pods/web/proxy/", 1, "", ""),
    ("k port-forward pod/gone :80", 1, "", ""),
    ("k attach gone", 1, "", ""),
    ("k logs gone", 1, "", ""),
    ("k logs web --since-time=yesterday", 1, "", ""),
    ("k exec web -- /absent/program", 1, "", ""),
    ("k debug gone --image=busybox", 1, "", ""),
];

/// What kubectl itself says, which differs from version to version.
const TALKATIVE: (&str, &str) = ("k attach -it terminal", "text\r\x04");

/// Does the same with both servers, and reports what differs.
fn compare(worlds: &[World; 2], line: &str, faults: &mut Vec<String>) {
    let [ours, theirs] = [&worlds[0], &worlds[1]].map(|world| world.does(line));
    if ours != theirs {
        let program = worlds[0].home.program.display();
        faults
            .push(format!("{program}: {line}\n  Keelson: {ours:?}\n  kube-apiserver: {theirs:?}"));
    }
}

#[test]
fn a_kube_apiserver_answers_the_same() {
    let programs = every_kubectl();
    let Some(first) = programs.first() else { return };
    let Some(reference) = World::of_reference(first.clone()) else { return };
    let mut worlds = [World::of_keelson(first.clone(), false), reference];
    worlds.iter().for_each(|world| world.add_terminal("terminal"));
    let mut faults = vec![];
    for (number, program) in programs.iter().enumerate() {
        for world in &mut worlds {
            world.home.program = program.clone();
            world.node.restart(CONTAINER);
            world.node.log(CONTAINER, "stdout", "first line");
            world.node.log(CONTAINER, "stderr", "second line");
        }
        // SPDY is the same in each of them.
        let transports = if number == 0 { &["", SPDY][..] } else { &[""] };
        for transport in transports {
            let rows = [COMMANDS, COPIES, LOGS, LATER_LOGS, MORE].into_iter().flatten();
            for (line, ..) in rows {
                compare(&worlds, &format!("{transport}{line}"), &mut faults);
            }
            let rows = ON_TERMINALS.iter().map(|(line, input, ..)| (*line, *input));
            for (line, input) in rows.chain([TALKATIVE]) {
                let line = format!("{transport}{line}");
                let [ours, theirs] =
                    [&worlds[0], &worlds[1]].map(|world| terminal::run(world, &line, input));
                if ours != theirs {
                    faults.push(format!("{line}\n  Keelson: {ours:?}\n  it: {theirs:?}"));
                }
            }
        }
        compare(&worlds, DEBUG_NODE, &mut faults);
        let pod = format!("sick-{number}");
        let [ours, theirs] = [&worlds[0], &worlds[1]].map(|world| debug_pod(world, &pod));
        if ours != theirs {
            faults.push(format!("debug\n  Keelson: {ours:?}\n  kube-apiserver: {theirs:?}"));
        }
    }
    let [ours, _] = worlds;
    ours.stop();
    assert!(faults.is_empty(), "{} differ:\n{}", faults.len(), faults.join("\n"));
}
