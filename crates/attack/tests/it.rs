//! The program's flags.

use std::collections::BTreeSet;
use std::process::{Command, Output};

fn attack(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keelson-attack")).args(args).output().expect("keelson-attack")
}

#[test]
fn each_attack_of_the_list_has_its_own_name() {
    let output = attack(&["--list"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let names: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for expected in ["rapid-reset", "editor", "etcd-watches"] {
        assert!(names.contains(&expected), "{expected}: {text}");
    }
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{text}");
}

#[test]
fn a_name_that_no_attack_has_is_an_error() {
    let output = attack(&["--program", "keelson", "--only", "no-such-attack"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(text, "attack: no attack has this name; --list prints the names\n");
}
