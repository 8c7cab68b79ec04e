//! kubectl's exec, attach, logs, cp, debug and proxied requests, with every kubectl that is there,
//! against a node that runs commands as processes of this machine.

mod comparison;
mod connections;
mod terminal;
pub mod world;

use super::{every_kubectl, stock_kubectl};
use std::net::Ipv4Addr;
use world::{Did, ExactRow, TRANSPORTS, World};

pub use world::SPDY;

const COMMANDS: &[ExactRow] = &[
    ("k exec web -- echo hello", 0, "hello\n", ""),
    (
        "k exec web -- sh -c 'echo oops >&2; exit 7'",
        7,
        "",
        "oops\ncommand terminated with exit code 7\n",
    ),
    ("k exec web -- sh -c 'exit 3' || echo code=$?", 0, "code=3\n", "exit code 3"),
    ("echo abc | k exec -i web -- cat", 0, "abc\n", ""),
    ("k exec web -- sh -c 'echo out; echo err >&2' 2>err; cat err", 0, "out\nerr\n", ""),
    ("k exec web -c other -- true", 1, "", "container other is not valid for pod web"),
    ("k exec gone -- true", 1, "", "pods \"gone\" not found"),
    ("echo text | k attach -i web", 0, "text\n", ""),
];

const LONG_PIPES: &[ExactRow] = &[
    ("head -c 30000000 /dev/zero | k exec -i web -- wc -c", 0, "30000000\n", ""),
    ("k exec web -- head -c 30000000 /dev/zero | wc -c", 0, "30000000\n", ""),
];

/// kubectl prints what tar says, as far as it comes before the end of the archive.
const COPIES: &[ExactRow] = &[
    (
        "rm -f b.txt c.txt; echo a > a.txt; k cp a.txt web:$HOME/b.txt && cat b.txt
        k cp web:$HOME/b.txt c.txt >/dev/null && cat c.txt",
        0,
        "a\na\n",
        "",
    ),
    (
        "mkdir -p src/sub; for i in $(seq 200); do echo file $i > src/$i.txt; done
        seq 1 999999 | head -c 5000000 > src/sub/big; rm -rf there back
        k cp src web:$HOME/there && k cp web:$HOME/there back >/dev/null && diff -r src back
        find back -type f | wc -l; wc -c < back/sub/big",
        0,
        "201\n5000000\n",
        "",
    ),
    ("k cp absent.txt web:$HOME/d.txt", 1, "", "absent.txt"),
];

/// Runs rows with every kubectl.
fn check(has_v5: bool, rows: &[&[ExactRow]]) {
    for program in every_kubectl() {
        let world = World::of_keelson(program, has_v5);
        rows.iter().for_each(|rows| world.run(rows));
        world.stop();
    }
}

/// Proves: R-STREAM-10, R-STREAM-04.
#[test]
fn commands_run_in_containers() {
    check(false, &[COMMANDS, LONG_PIPES]);
}

#[test]
fn commands_run_on_nodes_that_speak_v5() {
    check(true, &[COMMANDS, LONG_PIPES]);
}

#[test]
fn files_and_folders_are_copied() {
    check(false, &[COPIES]);
}

/// Environment variable: how many bytes go through a pipe.
const PIPE_BYTES: &str = "KEELSON_PIPE_BYTES";
const PIPE_BYTES_DEFAULT: u64 = 64 << 20;

/// All bytes of a long pipe come back, in their order.
#[test]
fn a_long_pipe_loses_nothing() {
    let bytes = std::env::var(PIPE_BYTES).ok().and_then(|text| text.parse().ok());
    let bytes: u64 = bytes.unwrap_or(PIPE_BYTES_DEFAULT);
    let line = format!(
        "numbers() {{ seq 1 999999999 | head -c {bytes}; }}\n\
         sent=$(numbers | sha256sum); got=$(numbers | k exec -i web -- cat | sha256sum)\n\
         test \"$sent\" = \"$got\" && echo the same"
    );
    check(false, &[&[(&line, 0, "the same\n", "")]]);
}

/// Commands on a terminal: what is typed, the exit code, and what the terminal shows. The node
/// shows what is typed, and the terminal is in raw mode.
const ON_TERMINALS: &[(&str, &str, i32, &str)] = &[
    (
        "k exec -it web -- sh -c 'read line; echo got $line >&2; exit 5'",
        "word\r",
        5,
        "word\r\ngot word\r\ncommand terminated with exit code 5\n",
    ),
    ("k exec -it web -- cat", "a\rb\r\x04", 0, "a\r\nb\r\n\x04a\r\nb\r\n"),
    // Without an input there is no terminal.
    ("k exec -t web -- echo out", "", 0, "out\n"),
    ("k attach -it terminal --quiet", "text\r\x04", 0, "text\r\n\x04text\r\n"),
];

#[test]
fn commands_run_on_terminals() {
    for program in every_kubectl() {
        let world = World::of_keelson(program, false);
        world.add_terminal("terminal");
        for transport in TRANSPORTS {
            for (line, input, code, expected) in ON_TERMINALS {
                let (shown, got) = terminal::run(&world, &format!("{transport}{line}"), input);
                let program = world.home.program.display();
                assert_eq!(
                    (&*shown, got),
                    (*expected, Some(*code)),
                    "{program}: {transport}{line}"
                );
            }
        }
        world.stop();
    }
}

const LOGS: &[ExactRow] = &[
    ("k logs web", 0, "first line\nsecond line\n", ""),
    ("k logs web --tail=1", 0, "second line\n", ""),
    ("k logs web --timestamps | cut -c 1-4,29-", 0, "2026first line\n2026second line\n", ""),
    ("k logs web -c other", 1, "", "container other is not valid for pod web"),
    ("k logs web --limit-bytes=5", 0, "first", ""),
    ("k logs web --previous", 1, "", "previous terminated container \"main\" not found"),
];

/// After a restart: the log that was followed is the previous one.
const LATER_LOGS: &[ExactRow] = &[
    ("k logs web", 0, "after the restart\n", ""),
    ("k logs web --previous", 0, "first line\nsecond line\nthird line\n", ""),
    ("k logs web --previous --follow", 0, "first line\nsecond line\nthird line\n", ""),
];

/// Proves: R-STREAM-07.
#[test]
fn logs_are_those_of_the_node() {
    const CONTAINER: &str = "default/web/main";
    for program in every_kubectl() {
        let world = World::of_keelson(program, false);
        world.node.log(CONTAINER, "stdout", "first line");
        world.node.log(CONTAINER, "stderr", "second line");
        world.run(LOGS);
        let mut following =
            world.home.spawn("\"$KUBECTL\" --kubeconfig=admin.kubeconfig logs -f web");
        assert_eq!(following.line(), "first line");
        assert_eq!(following.line(), "second line");
        world.node.log(CONTAINER, "stdout", "third line");
        assert_eq!(following.line(), "third line");
        world.node.restart(CONTAINER);
        world.node.log(CONTAINER, "stdout", "after the restart");
        assert_eq!(following.end(), (vec![], Some(0)), "it ends with the container");
        world.run(LATER_LOGS);
        world.stop();
    }
}

/// Debugs a pod with a container that its node starts meanwhile.
fn debug_pod(world: &World, pod: &str) -> Did {
    world.add_pod(pod);
    let line = format!(
        "echo typed | k debug -i {pod} --image=busybox --container=debugger --profile=general"
    );
    std::thread::scope(|scope| {
        scope.spawn(|| world.run_ephemeral_container(pod));
        world.does(&line)
    })
}

/// Makes a pod on the node, and returns its names as far as they are fixed.
const DEBUG_NODE: &str = "k debug node/n1 --image=busybox --profile=general -- true \
    | sed 's/debugger-n1-...../debugger-n1-RANDOM/'
    k get pods -o 'jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.spec.hostPID}{\"\\n\"}{end}' \
    | grep debugger | sed 's/-n1-...../-n1-RANDOM/'
    k delete $(k get pods -o name | grep debugger) --grace-period=0 --force >/dev/null 2>&1";

const DEBUGGED_NODE: &str = "\
    Creating debugging pod node-debugger-n1-RANDOM with container debugger on node n1.\n\
    node-debugger-n1-RANDOM n1 true\n";

#[test]
fn pods_and_nodes_are_debugged() {
    for program in every_kubectl() {
        let world = World::of_keelson(program, false);
        let did = debug_pod(&world, "sick");
        assert_eq!((did.code, &*did.out), (Some(0), "typed\n"), "{}", did.err);
        let image = "k get pod sick -o 'jsonpath={.spec.ephemeralContainers[*].image}'";
        world.run(&[(image, 0, "busybox", "")]);
        world.run(&[(DEBUG_NODE, 0, DEBUGGED_NODE, "")]);
        world.stop();
    }
}

#[test]
fn requests_are_proxied_to_nodes() {
    let Some(program) = stock_kubectl() else { return };
    let world = World::of_keelson(program, false);
    world.add_node("loopback", Ipv4Addr::LOCALHOST.into(), &[]);
    let node = "/api/v1/nodes/n1/proxy";
    let raw = |path: &str| format!("k get --raw '{node}{path}'");
    let port = world.node.address().port();
    let rows = [
        (raw("/healthz"), 0, "ok"),
        (raw("/testkit/echo/a/b?c=d"), 0, "/testkit/echo/a/b?c=d"),
        (raw("/testkit/echo/x"), 0, "x-forwarded-uri"),
        (format!("k get --raw /api/v1/nodes/n1:{port}/proxy/healthz"), 0, "ok"),
        (format!("k get --raw /api/v1/nodes/loopback:{port}/proxy/healthz"), 1, "not allowed"),
        ("k get --raw /api/v1/nodes/n2/proxy/healthz".to_owned(), 1, "\"n2\" not found"),
        ("k get --raw /api/v1/nodes/loopback/proxy/healthz".to_owned(), 1, "address not allowed"),
        (
            "k get --raw /api/v1/namespaces/default/pods/web/proxy/".to_owned(),
            1,
            "address not allowed",
        ),
    ];
    for (line, code, says) in rows {
        let output = world.home.shell(&line).output().expect("a shell");
        let out = String::from_utf8_lossy(&output.stdout).to_lowercase();
        let err = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert_eq!(output.status.code(), Some(code), "{line}: {out}{err}");
        assert!(out.contains(says) || err.contains(says), "{line}: {out}{err}");
    }
    // Nothing that authenticates the client reaches the node.
    let output = world.home.shell(&raw("/testkit/echo/x")).output().expect("a shell");
    let echoed = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(!echoed.contains("authorization"), "{echoed}");
    world.stop();
}
