//! `kubernetes.NamedFormat`: formats of text by name.

use crate::url::Url;
use base64::Engine;
use keelson_meta::names;
use keelson_meta::time::Timestamp;

/// A format with a name.
#[derive(Debug)]
pub struct NamedFormat {
    name: &'static str,
    /// What is wrong with a text.
    pub(crate) faults: fn(&str) -> Vec<String>,
    /// The length of the regular expression upstream has for it; checking costs go by it.
    pub(crate) regex_chars: u64,
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat {
        name: "dns1123Label",
        faults: |text| names::name_is_dns_label(text, false),
        regex_chars: 30,
    },
    NamedFormat {
        name: "dns1123Subdomain",
        faults: |text| names::name_is_dns_subdomain(text, false),
        regex_chars: 60,
    },
    NamedFormat {
        name: "dns1035Label",
        faults: |text| names::name_is_dns1035_label(text, false),
        regex_chars: 30,
    },
    NamedFormat { name: "qualifiedName", faults: names::is_qualified_name, regex_chars: 60 },
    NamedFormat {
        name: "dns1123LabelPrefix",
        faults: |text| names::name_is_dns_label(text, true),
        regex_chars: 30,
    },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        faults: |text| names::name_is_dns_subdomain(text, true),
        regex_chars: 60,
    },
    NamedFormat {
        name: "dns1035LabelPrefix",
        faults: |text| names::name_is_dns1035_label(text, true),
        regex_chars: 30,
    },
    NamedFormat { name: "labelValue", faults: names::is_valid_label_value, regex_chars: 40 },
    NamedFormat {
        name: "uri",
        faults: |text| Url::parse(text).err().into_iter().collect(),
        regex_chars: 973,
    },
    NamedFormat {
        name: "uuid",
        faults: |text| unless(is_uuid(text), "does not match the UUID format"),
        regex_chars: 74,
    },
    NamedFormat {
        name: "byte",
        faults: |text| {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            unless(!text.is_empty() && decoded.is_ok(), "invalid base64")
        },
        regex_chars: 84,
    },
    NamedFormat {
        name: "date",
        faults: |text| {
            let is_date =
                text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_ok();
            unless(is_date, "invalid date")
        },
        regex_chars: 91,
    },
    NamedFormat {
        name: "datetime",
        faults: |text| unless(Timestamp::parse(text).is_ok(), "invalid datetime"),
        regex_chars: 91,
    },
];

/// The format of this name.
pub(crate) fn named(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.name == name)
}

fn unless(fits: bool, words: &str) -> Vec<String> {
    if fits { vec![] } else { vec![words.to_owned()] }
}

/// 32 hexadecimal digits, with or without the dashes.
fn is_uuid(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    digits == 32
        && digits + dashes.len() == text.len()
        && (dashes.is_empty() || dashes == [8, 13, 18, 23])
}
