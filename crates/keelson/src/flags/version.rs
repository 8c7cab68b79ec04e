//! `--version=v1.36.2-name`: another name of the version that the server reports.

use keelson::KUBERNETES_VERSION;
use keelson_meta::status::quote;

/// Checks a version that the server is to report: a semantic version whose numbers are those of
/// the served one. The messages are kube-apiserver's.
pub fn check(text: &str) -> Result<(), String> {
    let quoted = quote(text);
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut rest = text.trim_start();
    rest = rest.strip_prefix('v').unwrap_or(rest);
    let mut numbers = vec![];
    loop {
        let (number, after) = rest.split_at(digits(rest));
        numbers.push(number);
        rest = after;
        match after.strip_prefix('.').filter(|next| next.starts_with(|c: char| c.is_ascii_digit()))
        {
            Some(next) => rest = next,
            None => break,
        }
    }
    if numbers.first().is_none_or(|first| first.is_empty()) {
        return Err(format!("could not parse {quoted} as version"));
    }
    if numbers.len() != 3 {
        return Err(format!("illegal version string {quoted}"));
    }
    if let Some(number) = numbers.iter().find(|number| starts_with_zero(number)) {
        return Err(zero_prefixed(number, &quoted));
    }
    if !rest.is_empty() && !is_extra(rest.trim_end()) {
        return Err(format!("could not parse pre-release/metadata ({rest}) in version {quoted}"));
    }
    let pre_release =
        rest.strip_prefix('-').map_or("", |rest| rest.split('+').next().unwrap_or(""));
    let numeric = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if let Some(part) = pre_release.split('.').filter(numeric).find(|part| starts_with_zero(part)) {
        return Err(zero_prefixed(part, &quoted));
    }
    if numbers.join(".") == KUBERNETES_VERSION.trim_start_matches('v') {
        return Ok(());
    }
    let own = quote(KUBERNETES_VERSION);
    Err(format!("version {quoted} must match major/minor/patch of default version {own}"))
}

fn starts_with_zero(number: &str) -> bool {
    number.len() > 1 && number.starts_with('0')
}

fn zero_prefixed(number: &str, version: &str) -> String {
    format!("illegal zero-prefixed version component {} in {version}", quote(number))
}

/// Whether a text is a pre-release (`-a.b`), build metadata (`+a.b`) or both in this order.
fn is_extra(text: &str) -> bool {
    let is_dotted = |text: &str| {
        let is_part = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        text.split('.').all(is_part)
    };
    let (before, build) = match text.split_once('+') {
        Some((before, build)) => (before, Some(build)),
        None => (text, None),
    };
    let is_release = before.is_empty() || before.strip_prefix('-').is_some_and(is_dotted);
    is_release && build.is_none_or(is_dotted)
}

#[cfg(test)]
mod tests {
    use super::check;

    /// The messages of kube-apiserver 1.36.3, whose own version stands for ours.
    #[test]
    fn a_reported_version_has_the_numbers_of_the_served_one() {
        for right in ["v1.36.2", "v1.36.2-custom", "v1.36.2+abc", "v1.36.2-custom.1+b"] {
            assert_eq!(check(right), Ok(()));
        }
        let different = |text: &str| {
            format!("version {text:?} must match major/minor/patch of default version \"v1.36.2\"")
        };
        for (wrong, message) in [
            ("v1.36.4", different("v1.36.4")),
            ("v1.37.0-x", different("v1.37.0-x")),
            ("vx", "could not parse \"vx\" as version".to_owned()),
            ("v", "could not parse \"v\" as version".to_owned()),
            ("v1.36", "illegal version string \"v1.36\"".to_owned()),
            ("v1.36.2.1", "illegal version string \"v1.36.2.1\"".to_owned()),
            (
                "v1.036.2",
                "illegal zero-prefixed version component \"036\" in \"v1.036.2\"".to_owned(),
            ),
            (
                "v1.36.2-%",
                "could not parse pre-release/metadata (-%) in version \"v1.36.2-%\"".to_owned(),
            ),
            (
                "v1.36.2-a.01",
                "illegal zero-prefixed version component \"01\" in \"v1.36.2-a.01\"".to_owned(),
            ),
            (
                "v1.36.2.",
                "could not parse pre-release/metadata (.) in version \"v1.36.2.\"".to_owned(),
            ),
        ] {
            assert_eq!(check(wrong), Err(message));
        }
    }
}
