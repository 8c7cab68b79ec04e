//! `kubernetes.NamedFormat`: named string formats (apiserver `cel/library/format.go`).

use base64::Engine;
use keelson_meta::go_url::Url;
use keelson_meta::names;
use keelson_meta::time::Timestamp;

/// A named string format.
#[derive(Debug)]
pub struct NamedFormat {
    name: &'static str,
    /// Returns the errors of a text; empty when it is valid.
    pub(crate) validate: fn(&str) -> Vec<String>,
    /// Length of upstream's regular expression for the format; it determines the cost of a
    /// validation.
    pub(crate) regex_chars: u64,
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat {
        name: "dns1123Label",
        validate: |text| names::name_is_dns_label(text, false),
        regex_chars: 30,
    },
    NamedFormat {
        name: "dns1123Subdomain",
        validate: |text| names::name_is_dns_subdomain(text, false),
        regex_chars: 60,
    },
    NamedFormat {
        name: "dns1035Label",
        validate: |text| names::name_is_dns1035_label(text, false),
        regex_chars: 30,
    },
    NamedFormat { name: "qualifiedName", validate: names::is_qualified_name, regex_chars: 60 },
    NamedFormat {
        name: "dns1123LabelPrefix",
        validate: |text| names::name_is_dns_label(text, true),
        regex_chars: 30,
    },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        validate: |text| names::name_is_dns_subdomain(text, true),
        regex_chars: 60,
    },
    NamedFormat {
        name: "dns1035LabelPrefix",
        validate: |text| names::name_is_dns1035_label(text, true),
        regex_chars: 30,
    },
    NamedFormat { name: "labelValue", validate: names::is_valid_label_value, regex_chars: 40 },
    NamedFormat {
        name: "uri",
        validate: |text| Url::check(text).err().into_iter().collect(),
        regex_chars: 973,
    },
    NamedFormat {
        name: "uuid",
        validate: |text| error_unless(is_uuid(text), "does not match the UUID format"),
        regex_chars: 74,
    },
    NamedFormat {
        name: "byte",
        validate: |text| {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            error_unless(!text.is_empty() && decoded.is_ok(), "invalid base64")
        },
        regex_chars: 84,
    },
    NamedFormat {
        name: "date",
        validate: |text| {
            let is_date =
                text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_ok();
            error_unless(is_date, "invalid date")
        },
        regex_chars: 91,
    },
    NamedFormat {
        name: "datetime",
        validate: |text| error_unless(Timestamp::parse(text).is_ok(), "invalid datetime"),
        regex_chars: 91,
    },
];

/// Returns the format of this name.
pub(crate) fn named(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.name == name)
}

fn error_unless(fits: bool, message: &str) -> Vec<String> {
    if fits { vec![] } else { vec![message.to_owned()] }
}

/// 32 hexadecimal digits, with or without dashes.
fn is_uuid(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    digits == 32
        && digits + dashes.len() == text.len()
        && (dashes.is_empty() || dashes == [8, 13, 18, 23])
}
