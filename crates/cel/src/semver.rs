//! `kubernetes.Semver`: semantic versions (semver.org).

use keelson_meta::Str;
use std::cmp::Ordering;

/// A semantic version. Build metadata is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    prerelease: Vec<PrereleaseId>,
}

/// A prerelease identifier. Numbers sort before text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PrereleaseId {
    Number(u64),
    Word(Str),
}

impl Semver {
    /// Parses `1.2.3-rc.1+build`. Returns upstream's error message.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let number = |text: &str, name: &str| {
            if !text.bytes().all(|b| b.is_ascii_digit()) {
                let lower = name.to_lowercase();
                return Err(format!("Invalid character(s) found in {lower} number {text:?}"));
            }
            if text.len() > 1 && text.starts_with('0') {
                return Err(format!("{name} number must not contain leading zeroes {text:?}"));
            }
            text.parse::<u64>().map_err(|_| {
                let why = if text.is_empty() { "invalid syntax" } else { "value out of range" };
                format!("strconv.ParseUint: parsing {text:?}: {why}")
            })
        };
        let major = number(major, "Major")?;
        let minor = number(minor, "Minor")?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, prerelease) = match rest.split_once('-') {
            Some((patch, prerelease)) => (patch, Some(prerelease)),
            None => (rest, None),
        };
        let patch = number(patch, "Patch")?;
        let ids =
            prerelease.map_or(Ok(vec![]), |text| text.split('.').map(prerelease_id).collect())?;
        for build in build.into_iter().flat_map(|build| build.split('.')) {
            if build.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_word(build) {
                return Err(format!("Invalid character(s) found in build meta data {build:?}"));
            }
        }
        Ok(Semver { major, minor, patch, prerelease: ids })
    }

    /// Parses a version after normalization: a leading `v` and leading zeros are removed, missing
    /// parts are 0.
    pub(crate) fn parse_tolerant(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                let message = "short version cannot contain PreRelease/Build meta data";
                return Err(message.to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Semver::parse(&parts.join("."))
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        rest.to_owned()
    } else {
        format!("0{rest}")
    }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn prerelease_id(text: &str) -> Result<PrereleaseId, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {text:?}"
            ));
        }
        let range = format!("strconv.ParseUint: parsing {text:?}: value out of range");
        return text.parse().map(PrereleaseId::Number).map_err(|_| range);
    }
    if !is_word(text) {
        return Err(format!("Invalid character(s) found in prerelease {text:?}"));
    }
    Ok(PrereleaseId::Word(text.into()))
}

impl Ord for Semver {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |version: &Semver| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| {
            match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.prerelease.cmp(&other.prerelease),
            }
        })
    }
}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered() {
        let texts =
            ["1.0.0-1", "1.0.0-2", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0", "1.0.1", "2.0.0"];
        let versions: Vec<Semver> = texts.iter().map(|text| Semver::parse(text).unwrap()).collect();
        assert!(versions.is_sorted(), "{versions:?}");
        assert_eq!(Semver::parse("1.0.0+a").unwrap(), Semver::parse("1.0.0+b").unwrap());
    }

    #[test]
    fn tolerant_parsing_removes_leading_zeros() {
        assert_eq!(Semver::parse_tolerant("v01.2"), Semver::parse("1.2.0"));
        assert_eq!(Semver::parse_tolerant("1.00.03-a"), Semver::parse("1.0.3-a"));
        assert!(Semver::parse_tolerant("1.2-a").is_err());
    }
}
