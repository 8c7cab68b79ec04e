//! Validation of names, label keys, ports and the like. Each function returns kube-apiserver's
//! error messages in its order; empty: the text is valid.
//!
//! Upstream words lengths of label keys and values in "bytes" and all others in "characters". Both
//! count bytes.

/// The name validation of a kind; the flag is true for a `generateName`, to which characters are
/// appended.
pub type NameRule = fn(&str, bool) -> Vec<String>;

const LABEL_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;
const PORT_NAME_BYTES_MAX: usize = 15;

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_LABEL_WORDS: &str = "a lowercase RFC 1123 label must consist of lower case \
    alphanumeric characters or '-', and must start and end with an alphanumeric character";
const DNS1123_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1123_SUBDOMAIN_WORDS: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const UNDERSCORE_SUBDOMAIN: &str =
    r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const UNDERSCORE_SUBDOMAIN_WORDS: &str = "a lowercase RFC 1123 subdomain must consist of lower \
    case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric \
    character";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const DNS1035_LABEL_WORDS: &str = "a DNS-1035 label must consist of lower case alphanumeric \
    characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const WILDCARD: &str = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const WILDCARD_WORDS: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a \
    valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and \
    end with an alphanumeric character";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character";
const LABEL_KEY_EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const LABEL_VALUE_WORDS: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// Validates a DNS label: `my-name`, `123-abc`.
pub fn is_dns1123_label(text: &str) -> Vec<String> {
    let mut errors = too_long(text, LABEL_BYTES_MAX);
    if !matches_label(text, false) {
        errors.push(if matches_subdomain(text, false) {
            "must not contain dots".to_owned()
        } else {
            regex_error(DNS1123_LABEL_WORDS, DNS1123_LABEL, &["my-name", "123-abc"])
        });
    }
    errors
}

/// Validates labels joined by dots: `example.com`.
pub fn is_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_BYTES_MAX);
    if !matches_subdomain(text, false) {
        errors.push(regex_error(DNS1123_SUBDOMAIN_WORDS, DNS1123_SUBDOMAIN, &["example.com"]));
    }
    errors
}

/// Validates a subdomain whose labels may contain and start with underscores, as in DNS search
/// paths.
pub fn is_dns1123_subdomain_with_underscore(text: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_BYTES_MAX);
    if !matches_subdomain(text, true) {
        let words = UNDERSCORE_SUBDOMAIN_WORDS;
        errors.push(regex_error(words, UNDERSCORE_SUBDOMAIN, &["example.com"]));
    }
    errors
}

/// Validates a label that starts with a letter: `my-name`, `abc-123`.
pub fn is_dns1035_label(text: &str) -> Vec<String> {
    let mut errors = too_long(text, LABEL_BYTES_MAX);
    if !matches_label(text, false) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(regex_error(DNS1035_LABEL_WORDS, DNS1035_LABEL, &["my-name", "abc-123"]));
    }
    errors
}

/// Validates a wildcard subdomain: `*.example.com`.
pub fn is_wildcard_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_BYTES_MAX);
    if !text.strip_prefix("*.").is_some_and(|rest| matches_subdomain(rest, false)) {
        errors.push(regex_error(WILDCARD_WORDS, WILDCARD, &["*.example.com"]));
    }
    errors
}

/// Validates a qualified name (label key, finalizer, condition type and others): `my.name`,
/// `example.com/MyName`.
pub fn is_qualified_name(text: &str) -> Vec<String> {
    let mut errors = vec![];
    let mut parts = text.split('/');
    let first = parts.next().unwrap_or_default();
    let second = parts.next();
    let third = parts.next();
    let name = match (second, third) {
        (_, Some(_)) => {
            let words = regex_error(LABEL_KEY_WORDS, LABEL_KEY, LABEL_KEY_EXAMPLES);
            let rest = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {words} {rest}")];
        }
        (None, None) => first,
        (Some(name), None) => {
            check_prefix(first, &mut errors);
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES_MAX {
        errors.push(format!("name part must be no more than {LABEL_BYTES_MAX} bytes"));
    }
    if !matches_label_word(name) {
        let words = regex_error(LABEL_KEY_WORDS, LABEL_KEY, LABEL_KEY_EXAMPLES);
        errors.push(format!("name part {words}"));
    }
    errors
}

fn check_prefix(prefix: &str, errors: &mut Vec<String>) {
    if prefix.is_empty() {
        errors.push("prefix part must be non-empty".to_owned());
        return;
    }
    if prefix.len() > SUBDOMAIN_BYTES_MAX {
        errors.push(format!("prefix part must be no more than {SUBDOMAIN_BYTES_MAX} bytes"));
    }
    if !matches_subdomain(prefix, false) {
        let words = regex_error(DNS1123_SUBDOMAIN_WORDS, DNS1123_SUBDOMAIN, &["example.com"]);
        errors.push(format!("prefix part {words}"));
    }
}

/// Validates a qualified name with a required prefix: `example.com/key`.
pub fn is_prefixed_label_key(text: &str) -> Vec<String> {
    let errors = is_qualified_name(text);
    if errors.is_empty() && !text.contains('/') {
        return vec!["must include a prefix (e.g. 'example.com/key')".to_owned()];
    }
    errors
}

/// Validates a label value, which may be empty.
pub fn is_valid_label_value(text: &str) -> Vec<String> {
    let mut errors = vec![];
    if text.len() > LABEL_BYTES_MAX {
        errors.push(format!("must be no more than {LABEL_BYTES_MAX} bytes"));
    }
    if !text.is_empty() && !matches_label_word(text) {
        let examples = &["MyValue", "my_value", "12345"];
        errors.push(regex_error(LABEL_VALUE_WORDS, LABEL_VALUE, examples));
    }
    errors
}

/// Validates a key of a ConfigMap or Secret.
pub fn is_config_map_key(text: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_BYTES_MAX);
    if text.is_empty() || !text.bytes().all(is_word_byte) {
        let words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        let examples = &["key.name", "KEY_NAME", "key-name"];
        errors.push(regex_error(words, "[-._a-zA-Z0-9]+", examples));
    }
    errors.extend(parent_directory(text));
    errors
}

/// Validates an environment variable name by the rules before 1.34: letters, digits, `_`, `-`, `.`,
/// not starting with a digit.
pub fn is_env_var_name(text: &str) -> Vec<String> {
    let mut errors = vec![];
    let digit_first = text.starts_with(|c: char| c.is_ascii_digit());
    if text.is_empty() || digit_first || !text.bytes().all(is_word_byte) {
        let words = "a valid environment variable name must consist of alphabetic characters, \
                     digits, '_', '-', or '.', and must not start with a digit";
        let examples = &["my.env-name", "MY_ENV.NAME", "MyEnvName1"];
        errors.push(regex_error(words, "[-._a-zA-Z][-._a-zA-Z0-9]*", examples));
    }
    errors.extend(parent_directory(text));
    errors
}

/// Validates an environment variable name of containers: printable ASCII without `=`.
pub fn is_relaxed_env_var_name(text: &str) -> Vec<String> {
    let mut errors = vec![];
    if text.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if text.bytes().any(|b| !(b' '..=b'~').contains(&b) || b == b'=') {
        let words = "a valid environment variable name must consist only of printable ASCII \
                     characters other than '='";
        errors.push(words.to_owned());
    }
    errors
}

/// Validates a C identifier.
pub fn is_c_identifier(text: &str) -> Vec<String> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let digit_first = text.starts_with(|c: char| c.is_ascii_digit());
    if !text.is_empty() && !digit_first && text.bytes().all(word) {
        return vec![];
    }
    let words = "a valid C identifier must start with alphabetic character or '_', followed by a \
                 string of alphanumeric characters or '_'";
    vec![regex_error(words, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])]
}

/// Validates a name that must be usable as a URL path segment.
pub fn is_path_segment_name(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    is_path_segment_prefix(text)
}

/// Validates a prefix of such a name.
pub fn is_path_segment_prefix(text: &str) -> Vec<String> {
    let illegal = ["/", "%"].into_iter().filter(|part| text.contains(part));
    illegal.map(|part| format!("may not contain '{part}'")).collect()
}

/// Validates the characters of an HTTP path (RFC 3986); not empty.
pub fn is_http_path(text: &str) -> Vec<String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !text.is_empty() && text.bytes().all(allowed) {
        return vec![];
    }
    vec![regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[])]
}

/// Validates an HTTP header name.
pub fn is_http_header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return vec![];
    }
    let words = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex_error(words, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// Validates a percentage: `50%`.
pub fn is_valid_percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return vec![];
    }
    let words = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex_error(words, "[0-9]+%", &["1%", "93%"])]
}

/// Validates a port name (IANA service name).
pub fn is_valid_port_name(text: &str) -> Vec<String> {
    let mut errors = too_long(text, PORT_NAME_BYTES_MAX);
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if text.is_empty() || !text.bytes().all(allowed) {
        let words = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";
        errors.push(words.to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// Validates a port number.
pub fn is_valid_port_num(port: i64) -> Vec<String> {
    is_in_range(port, 1, 65535)
}

/// Validates a user id.
pub fn is_valid_user_id(id: i64) -> Vec<String> {
    is_in_range(id, 0, i64::from(u32::MAX))
}

/// Validates a group id.
pub fn is_valid_group_id(id: i64) -> Vec<String> {
    is_in_range(id, 0, i64::from(u32::MAX))
}

/// Validates a number in an inclusive range.
pub fn is_in_range(number: i64, min: i64, max: i64) -> Vec<String> {
    if (min..=max).contains(&number) { vec![] } else { vec![range_error(min, max)] }
}

/// Returns `must be between 1 and 3, inclusive`.
pub fn range_error(min: i64, max: i64) -> String {
    format!("must be between {min} and {max}, inclusive")
}

/// Returns `must be no more than 63 characters`.
pub fn max_length_error(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} characters")
}

/// Returns the message for a text that does not match a pattern.
pub fn regex_error(words: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{pattern}')");
    }
    // The stray comma before each "or" is upstream's.
    let shown: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{pattern}')", shown.join(" or "))
}

/// [`NameRule`] of most kinds.
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_subdomain(&masked(name, prefix))
}

/// [`NameRule`] of namespaces and others.
pub fn name_is_dns_label(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_label(&masked(name, prefix))
}

/// [`NameRule`] of services.
pub fn name_is_dns1035_label(name: &str, prefix: bool) -> Vec<String> {
    is_dns1035_label(&masked(name, prefix))
}

/// [`NameRule`] of roles, bindings and other kinds whose names only have to fit into a URL.
pub fn name_is_path_segment(name: &str, prefix: bool) -> Vec<String> {
    if prefix { is_path_segment_prefix(name) } else { is_path_segment_name(name) }
}

/// [`NameRule`] of CertificateSigningRequests, whose names are not validated by the rules of the
/// kind.
pub fn name_is_anything(_name: &str, _prefix: bool) -> Vec<String> {
    vec![]
}

/// [`NameRule`] of DeviceClasses, whose generateName is not validated.
pub fn name_is_dns_subdomain_unless_generated(name: &str, prefix: bool) -> Vec<String> {
    if prefix { vec![] } else { is_dns1123_subdomain(name) }
}

/// A prefix may end in a dash, because more characters follow. Like upstream, replaces the last two
/// bytes with one letter.
fn masked(name: &str, prefix: bool) -> std::borrow::Cow<'_, str> {
    if prefix && name.ends_with('-') {
        let cut = name.len().saturating_sub(2);
        if let Some(kept) = name.get(..cut) {
            return format!("{kept}a").into();
        }
    }
    name.into()
}

fn too_long(text: &str, bytes_max: usize) -> Vec<String> {
    if text.len() > bytes_max { vec![max_length_error(bytes_max)] } else { vec![] }
}

fn parent_directory(text: &str) -> Option<String> {
    match text {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if text.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

fn is_word_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')
}

fn matches_label_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|b| is_word_byte(*b))
}

fn matches_label(text: &str, underscore: bool) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let text = if underscore { text.strip_prefix('_').unwrap_or(text) } else { text };
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    let inner = |b: &u8| lower(*b) || *b == b'-' || (underscore && *b == b'_');
    lower(*first) && lower(*last) && bytes.iter().all(inner)
}

fn matches_subdomain(text: &str, underscore: bool) -> bool {
    text.split('.').all(|label| matches_label(label, underscore))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: fn(&str) -> Vec<String>, text: &str, expected: &[&str]) {
        assert_eq!(rule(text), expected, "{text:?}");
    }

    #[test]
    fn good_names_pass() {
        let long = "a".repeat(63);
        for name in ["a", "0", "a-b", "1-2", long.as_str()] {
            check(is_dns1123_label, name, &[]);
        }
        for name in ["a.b", "1.2.3", "a--b.c-d"] {
            check(is_dns1123_subdomain, name, &[]);
        }
        check(is_dns1123_subdomain_with_underscore, "_sip._tcp.a_b", &[]);
        check(is_dns1035_label, "a-1", &[]);
        check(is_wildcard_dns1123_subdomain, "*.a.b", &[]);
        for name in ["a", "A_b.c-d", "example.com/X", "1.2/3"] {
            check(is_qualified_name, name, &[]);
        }
        for value in ["", "a", "A_b.c-d"] {
            check(is_valid_label_value, value, &[]);
        }
        check(is_config_map_key, "..a.b".trim_start_matches('.'), &[]);
        check(is_valid_port_name, "https-1", &[]);
        check(is_relaxed_env_var_name, "1 a-b:$", &[]);
    }

    #[test]
    fn messages_are_those_of_upstream() {
        check(is_dns1123_label, "a.b", &["must not contain dots"]);
        check(
            is_dns1123_label,
            "A",
            &["a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
               '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
               '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"],
        );
        check(
            is_dns1123_subdomain,
            "a..b",
            &["a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
               characters, '-' or '.', and must start and end with an alphanumeric character \
               (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?\
               (\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
        );
        let name_words = "name part must consist of alphanumeric characters, '-', '_' or '.', \
            and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name', \
             or '123-abc', regex used for validation is \
            '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            .replace("', or '123", "',  or '123");
        check(is_qualified_name, "", &["name part must be non-empty", &name_words]);
        check(is_qualified_name, "/a", &["prefix part must be non-empty"]);
        check(
            is_valid_port_name,
            "a--b-",
            &["must not contain consecutive hyphens", "must not begin or end with a hyphen"],
        );
        check(is_path_segment_name, "..", &["may not be '..'"]);
        check(is_path_segment_name, "a/%", &["may not contain '/'", "may not contain '%'"]);
        check(is_config_map_key, "..a", &["must not start with '..'"]);
        assert_eq!(is_valid_port_num(0), ["must be between 1 and 65535, inclusive"]);
    }

    #[test]
    fn lengths_are_counted_in_bytes_of_keys_and_characters_of_names() {
        let text = "a".repeat(64);
        check(is_dns1123_label, &text, &["must be no more than 63 characters"]);
        check(is_dns1035_label, &text, &["must be no more than 63 characters"]);
        check(is_qualified_name, &text, &["name part must be no more than 63 bytes"]);
        check(is_valid_label_value, &text, &["must be no more than 63 bytes"]);
        let prefix = format!("{}/a", "a".repeat(254));
        check(is_qualified_name, &prefix, &["prefix part must be no more than 253 bytes"]);
    }

    #[test]
    fn a_prefix_may_end_in_a_dash() {
        assert!(name_is_dns_label("web-", true).is_empty());
        assert!(!name_is_dns_label("web-", false).is_empty());
        assert!(name_is_dns_label("-", true).is_empty());
        assert!(!name_is_dns_label("Web-", true).is_empty());
    }
}
