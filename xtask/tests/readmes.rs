//! The two languages of the README show the same commands, and name files that exist.

use std::fs;
use std::path::Path;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const READMES: [&str; 2] = ["README.md", "README.zh-CN.md"];

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(WORKSPACE).join(name)).expect(name)
}

/// Returns what stands between fences.
fn blocks(text: &str) -> Vec<&str> {
    text.split("```").skip(1).step_by(2).collect()
}

#[test]
fn both_readmes_show_the_same_commands() {
    let [english, chinese] = READMES.map(text);
    assert!(blocks(&english).len() >= 5, "{english}");
    assert_eq!(blocks(&english), blocks(&chinese));
}

#[test]
fn readmes_name_files_that_exist() {
    for name in READMES {
        let text = text(name);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let files = links.filter(|link| !link.starts_with("http"));
        for file in files.map(|link| link.split('#').next().unwrap_or(link)) {
            assert!(Path::new(WORKSPACE).join(file).exists(), "{name} names {file}");
        }
    }
}
