//! `cargo xtask release-notes`: the section of a version in CHANGELOG.md.

use anyhow::{Context, Result, bail};
use std::io::Write;

const CHANGELOG: &str = "CHANGELOG.md";
/// The section of what is not released yet.
const UNRELEASED: &str = "Unreleased";

/// Prints the section of the version that is named, or of the next one.
pub fn run(args: &[String]) -> Result<()> {
    let version = match args {
        [] => UNRELEASED,
        [version] => version,
        _ => bail!("cargo xtask release-notes [VERSION]"),
    };
    let text = std::fs::read_to_string(CHANGELOG).context(CHANGELOG)?;
    let Some(section) = section(&text, version) else {
        bail!("{CHANGELOG} has no section [{version}]");
    };
    writeln!(std::io::stdout(), "{section}").context("standard output")
}

/// Returns the text below the heading of a version, without empty lines around it.
fn section<'a>(changelog: &'a str, version: &str) -> Option<&'a str> {
    let mut sections = changelog.split("\n## [").skip(1);
    let of_version =
        |section: &&str| section.strip_prefix(version).is_some_and(|rest| rest.starts_with(']'));
    let section = sections.find(of_version)?;
    let (_, text) = section.split_once('\n')?;
    Some(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_the_text_below_its_heading() {
        let text = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\
                    \n- x\n\n## [0.2.0-rc.1]\n- y\n";
        for (version, expected) in [
            ("Unreleased", Some("- new")),
            ("0.2.0", Some("### Added\n\n- x")),
            ("0.2.0-rc.1", Some("- y")),
            ("0.2", None),
            ("3.0.0", None),
        ] {
            assert_eq!(section(text, version), expected, "{version}");
        }
    }
}
