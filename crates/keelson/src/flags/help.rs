//! `--help` of the commands that serve, in the layout of kube-apiserver: groups of flags, a line
//! each.

use super::groups;
use super::table::{Effect, Face, Flag, Group, Kind};
use std::fmt::Write;

const SERVE: &str = "\
Serves the Kubernetes API. Without flags the server listens on port 6443, and keeps its data,
certificates and the administrator's kubeconfig in a folder in your home directory.

Usage:
  keelson serve [flags]
";
const KUBE_APISERVER: &str = "\
Serves the Kubernetes API in the place of kube-apiserver, with the same flags. The data is in etcd.

Usage:
  kube-apiserver [flags]
";

/// Returns the help of a command.
pub fn text(face: Face) -> String {
    let introduction = match face {
        Face::Serve => SERVE,
        Face::KubeApiserver => KUBE_APISERVER,
    };
    page(introduction, &groups::of(face), face)
}

/// Returns a help page of an introduction and groups of flags.
pub fn page(introduction: &str, groups: &[&Group], face: Face) -> String {
    let mut help = introduction.to_owned();
    for group in groups {
        let flags = group.flags.iter().filter(|flag| !flag.is_hidden);
        let lines: Vec<(String, String)> =
            flags.map(|flag| (left(flag), right(flag, face))).collect();
        let width = lines.iter().map(|(left, _)| left.len()).max().unwrap_or_default();
        let _ = writeln!(help, "\n{} flags:\n", group.title);
        for (left, right) in lines {
            let _ = writeln!(help, "{left:width$}   {right}");
        }
    }
    help
}

/// Returns docs/flags.md: all flags with what they do.
#[cfg(test)]
pub fn markdown() -> String {
    let mut page = MARKDOWN.to_owned();
    let all: Vec<&Group> = groups::of(Face::KubeApiserver);
    let own = groups::of(Face::Serve)
        .into_iter()
        .filter(|group| all.iter().all(|known| known.title != group.title));
    for group in all.iter().copied().chain(own) {
        let _ = write!(
            page,
            "\n## {}\n\n| flag | type | default | |\n|---|---|---|---|\n",
            group.title
        );
        for flag in group.flags {
            let kind = if flag.kind == Kind::Bool { "bool" } else { flag.kind.type_name() };
            let default = match (flag.default, flag.serve_default) {
                (default, None) => code(default),
                (default, Some(own)) => format!("{}; serve: {}", code(default), code(own)),
            };
            let effect = match flag.effect {
                Effect::Served => String::new(),
                Effect::Accepted(why) => format!(" **No effect**: {why}."),
                Effect::Refused(what) => format!(" **Refused**: {what} is not there yet."),
            };
            let deprecated = if flag.deprecated.is_some() { " Deprecated." } else { "" };
            let text = format!("{}{effect}{deprecated}", flag.help)
                .replace('|', "\\|")
                .replace('*', "\\*")
                .replace("\\*\\*", "**");
            let _ = writeln!(page, "| `--{}` | {kind} | {default} | {text} |", flag.name);
        }
    }
    page
}

#[cfg(test)]
const MARKDOWN: &str = "\
# Flags

All flags of kube-apiserver 1.36, read as it reads them, and what they do here; at the end those that only
`keelson serve` has. `kube-apiserver` (this program under that name, or `keelson kube-apiserver`) has exactly
kube-apiserver's flags and defaults, and refuses what it refuses in its words. `keelson serve` starts without
any flag. A flag without effect is named once in the log when it is given; one that is refused ends the start
unless it has its default value.

This page is written from the program's table by a test (`KEELSON_WRITE_FLAGS=1 cargo test -p keelson flags`).
";

#[cfg(test)]
fn code(text: &str) -> String {
    if text.is_empty() { "empty".to_owned() } else { format!("`{text}`") }
}

/// Adds the flags of the commands that serve to the other parser's commands, for completions.
pub fn with_flags(mut command: clap::Command) -> clap::Command {
    for (name, face) in [("serve", Face::Serve), ("kube-apiserver", Face::KubeApiserver)] {
        command = command.mut_subcommand(name, |mut command| {
            for flag in groups::of(face).iter().flat_map(|group| group.flags) {
                let action = match flag.kind {
                    Kind::Bool => clap::ArgAction::SetTrue,
                    _ => clap::ArgAction::Set,
                };
                let arg = clap::Arg::new(flag.name).long(flag.name).help(flag.help);
                command = command.arg(arg.action(action).hide(flag.is_hidden));
            }
            command
        });
    }
    command
}

/// Returns a flag with the name of its type.
fn left(flag: &Flag) -> String {
    let letter = flag.letter().map_or("    ".to_owned(), |letter| format!("-{letter}, "));
    let name = flag.name;
    match flag.kind {
        Kind::Bool => format!("  {letter}--{name}"),
        kind => format!("  {letter}--{name} {}", kind.type_name()),
    }
}

/// Returns what a flag does, with its default and whether it is deprecated.
fn right(flag: &Flag, face: Face) -> String {
    let mut text = flag.help.to_owned();
    match flag.effect {
        Effect::Served => {}
        Effect::Accepted(why) => {
            let _ = write!(text, " No effect: {why}.");
        }
        Effect::Refused(_) => text.push_str(" Not there yet: only the default is accepted."),
    }
    let default = flag.default_in(face);
    let shown = match flag.kind {
        Kind::Int32List | Kind::CertificatesAndKeys | Kind::Labels => Some("[]".to_owned()),
        _ if default.is_empty() => None,
        Kind::Bool => (default == "true").then(|| default.to_owned()),
        Kind::Int | Kind::Uint | Kind::Level | Kind::Float | Kind::Float32 => {
            (default != "0").then(|| default.to_owned())
        }
        Kind::Duration => (default != "0s").then(|| default.to_owned()),
        Kind::Quantity => (default != "0").then(|| default.to_owned()),
        Kind::List => Some(format!("[{default}]")),
        Kind::Text => Some(format!("{default:?}")),
        _ => Some(default.to_owned()),
    };
    if let Some(default) = shown {
        let _ = write!(text, " (default {default})");
    }
    if let Some(advice) = flag.deprecated {
        let _ = write!(text, " (DEPRECATED: {advice})");
    }
    text
}
