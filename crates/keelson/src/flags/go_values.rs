//! Values of flags as Go's packages strconv, net and encoding/csv read them, with their messages.

use keelson_meta::Quantity;
use keelson_meta::go_url::Url;
use keelson_meta::status::quote;
use keelson_meta::time::GoDuration;
use std::net::IpAddr;

/// Checks a URL, which may be relative, as `url.Parse` does.
pub fn reference(text: &str) -> Result<(), String> {
    let why = match Url::parse(text) {
        Ok(_) => return Ok(()),
        Err(why) => why,
    };
    // Only requests need a scheme.
    if why.ends_with(": empty url") {
        return Ok(());
    }
    let Some(rest) = why.strip_suffix("invalid URI for request") else { return Err(why) };
    let path = text.split(['?', '#', '/']).next().unwrap_or_default();
    match path.contains(':') {
        true => Err(format!("{rest}first path segment in URL cannot contain colon")),
        false => Ok(()),
    }
}

/// Parses what `strconv.ParseBool` accepts.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(number_error("ParseBool", text, "invalid syntax")),
    }
}

/// Parses a signed integer as `strconv.ParseInt` does with base 0, within the bounds.
pub fn integer(text: &str, bounds: (i64, i64)) -> Result<i64, String> {
    let (min, max) = bounds;
    let fail = |why| number_error("ParseInt", text, why);
    let (is_negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let magnitude = magnitude(digits).ok_or_else(|| fail("invalid syntax"))?;
    let number = magnitude.map(|number| if is_negative { -number } else { number });
    let in_range = number.filter(|number| (i128::from(min)..=i128::from(max)).contains(number));
    let number = in_range.and_then(|number| i64::try_from(number).ok());
    number.ok_or_else(|| fail("value out of range"))
}

/// Parses an unsigned integer as `strconv.ParseUint` does with base 0.
pub fn unsigned(text: &str) -> Result<i64, String> {
    let fail = |why| number_error("ParseUint", text, why);
    let number = magnitude(text)
        .ok_or_else(|| fail("invalid syntax"))?
        .and_then(|number| i64::try_from(number).ok());
    number.ok_or_else(|| fail("value out of range"))
}

/// Parses a log verbosity: base 10, 31 bits.
pub fn level(text: &str) -> Result<i64, String> {
    let number = keelson_meta::go_numbers::parse_uint(text)?;
    let number = i64::try_from(number).ok().filter(|number| *number <= i64::from(i32::MAX));
    number.ok_or_else(|| number_error("ParseUint", text, "value out of range"))
}

/// Returns the number that digits with an optional base prefix are: `Some(None)` if it does not
/// fit, `None` if they are no number.
fn magnitude(text: &str) -> Option<Option<i128>> {
    let lower = text.to_ascii_lowercase();
    let (base, digits, is_prefixed) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..], true),
        [b'0', b'b', ..] => (2, &lower[2..], true),
        [b'0', b'o', ..] => (8, &lower[2..], true),
        [b'0', _, ..] => (8, &lower[1..], true),
        _ => (10, &lower[..], false),
    };
    // Underscores separate digits, or a base prefix from its digits.
    let stands_alone =
        digits.ends_with('_') || digits.contains("__") || (digits.starts_with('_') && !is_prefixed);
    let plain = digits.replace('_', "");
    if stands_alone || plain.is_empty() || !plain.chars().all(|digit| digit.is_digit(base)) {
        return None;
    }
    Some(i128::from_str_radix(&plain, base).ok())
}

/// Parses a floating-point number as `strconv.ParseFloat` does, without hexadecimal ones.
pub fn float(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    let number = number.ok_or_else(|| number_error("ParseFloat", text, "invalid syntax"))?;
    let is_infinite = text.trim_start_matches(['+', '-']).to_ascii_lowercase().starts_with("inf");
    match number.is_infinite() && !is_infinite {
        true => Err(number_error("ParseFloat", text, "value out of range")),
        false => Ok(number),
    }
}

/// Parses a duration such as `1h15m`.
pub fn duration(text: &str) -> Result<GoDuration, String> {
    GoDuration::parse(text)
}

/// Checks an IP address; empty means none.
pub fn ip(text: &str) -> Result<String, String> {
    let trimmed = text.trim();
    match trimmed.is_empty() || trimmed.parse::<IpAddr>().is_ok() {
        true => Ok(trimmed.to_owned()),
        false => Err(format!("failed to parse IP: {}", quote(text))),
    }
}

/// Checks a quantity such as `1Mi`.
pub fn quantity(text: &str) -> Result<String, String> {
    text.parse::<Quantity>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Splits a list at commas, as encoding/csv splits one record. Fields may be quoted.
pub fn csv(text: &str) -> Result<Vec<String>, String> {
    let mut fields = vec![];
    if text.is_empty() {
        return Ok(fields);
    }
    let fail = |rest: &str, why: &str| {
        let column = text.len() - rest.len() + 1;
        Err(format!("parse error on line 1, column {column}: {why}"))
    };
    let mut rest = text;
    loop {
        let Some(mut quoted) = rest.strip_prefix('"') else {
            let (field, after) = rest.split_once(',').map_or((rest, None), |(f, a)| (f, Some(a)));
            if let Some(at) = field.find('"') {
                return fail(&rest[at..], "bare \" in non-quoted-field");
            }
            fields.push(field.to_owned());
            match after {
                Some(after) => rest = after,
                None => return Ok(fields),
            }
            continue;
        };
        let mut field = String::new();
        loop {
            let Some((before, after)) = quoted.split_once('"') else {
                return fail("", "extraneous or missing \" in quoted-field");
            };
            field.push_str(before);
            match after.strip_prefix('"') {
                Some(after) => {
                    field.push('"');
                    quoted = after;
                }
                None => {
                    quoted = after;
                    break;
                }
            }
        }
        fields.push(field);
        match quoted.strip_prefix(',') {
            Some(after) => rest = after,
            None if quoted.is_empty() => return Ok(fields),
            None => return fail(quoted, "extraneous or missing \" in quoted-field"),
        }
    }
}

/// Splits `key=value`. Keys and values have no space around them.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("malformed pair, expect string=string")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Splits a list of `key=value`; a key without a value has the empty one.
pub fn pairs(text: &str) -> Vec<(String, String)> {
    let items = text.split(',').filter(|item| !item.is_empty());
    items
        .map(|item| pair(item).unwrap_or_else(|_| (item.trim().to_owned(), String::new())))
        .collect()
}

/// Splits the allowed values of labels: `metric,label=value`, or several in quotes, as one CSV
/// record.
pub fn labels(text: &str) -> Result<Vec<(String, String)>, String> {
    let items = match text.matches('=').count() {
        0 => return Err(format!("{text} must be formatted as key=value")),
        1 => vec![text.trim_matches('"').to_owned()],
        _ => csv(text)?,
    };
    let items = items.iter().map(|item| {
        let (key, value) =
            item.split_once('=').ok_or_else(|| format!("{item} must be formatted as key=value"))?;
        Ok((key.to_owned(), value.to_owned()))
    });
    items.collect()
}

/// Checks `certificate,key` or `certificate,key:name,name`.
pub fn certificate_and_key(text: &str) -> Result<String, String> {
    let (files, names) = text.split_once(':').map_or((text, None), |(f, n)| (f, Some(n)));
    if names.is_some_and(|names| names.trim().is_empty()) {
        return Err("empty names list is not allowed".to_owned());
    }
    match files.split(',').count() {
        2 => Ok(text.to_owned()),
        _ => Err("expected comma separated certificate and key file paths".to_owned()),
    }
}

/// Checks a list of `pattern=N`.
pub fn patterns(text: &str) -> Result<String, String> {
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let parts: Vec<&str> = item.split('=').collect();
        let &[pattern, number] = parts.as_slice() else {
            return Err(format!("{} does not have the pattern=N format", quote(item)));
        };
        if pattern.is_empty() || number.is_empty() {
            return Err(format!("{} does not have the pattern=N format", quote(item)));
        }
        level(number).map_err(|why| format!("parsing verbosity in {}: {why}", quote(item)))?;
    }
    Ok(text.to_owned())
}

/// Checks a range of ports: `30000-32767`, `30000+2767` or one port.
pub fn ports(text: &str) -> Result<String, String> {
    let text = text.trim();
    let port = |part: &str| {
        let number = integer(part, (i64::MIN, i64::MAX)).ok().filter(|_| !part.contains('_'));
        number.ok_or_else(|| number_error("Atoi", part, "invalid syntax"))
    };
    let (first, last) = match (text.split_once('-'), text.split_once('+')) {
        _ if text.is_empty() => return Ok(String::new()),
        (Some(_), Some(_)) => return Err(format!("unable to parse port range: {text}")),
        (Some((first, last)), None) => (port(first)?, port(last)?),
        (None, Some((first, more))) => {
            let first = port(first)?;
            (first, first.saturating_add(port(more)?))
        }
        (None, None) => (port(text)?, port(text)?),
    };
    if first > i64::from(u16::MAX) || last > i64::from(u16::MAX) {
        return Err(format!("the port range cannot be greater than 65535: {text}"));
    }
    if last < first {
        return Err(format!("end port cannot be less than start port: {text}"));
    }
    text.parse::<keelson_registry::PortRange>().map(|ports| ports.to_string())
}

fn number_error(function: &str, text: &str, why: &str) -> String {
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_every_base_of_go() {
        let bounds = (i64::MIN, i64::MAX);
        for (text, number) in
            [("0x1F", 31), ("-0b11", -3), ("0o17", 15), ("017", 15), ("1_000", 1000), ("+7", 7)]
        {
            assert_eq!(integer(text, bounds), Ok(number), "{text}");
        }
        for text in ["", "x", "1_", "_1", "1__0", "08", "0x", "1.5", "--1", "- 1"] {
            let why = format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
            assert_eq!(integer(text, bounds), Err(why));
        }
        let why = "strconv.ParseInt: parsing \"9223372036854775808\": value out of range";
        assert_eq!(integer("9223372036854775808", bounds), Err(why.to_owned()));
        assert_eq!(integer("-9223372036854775808", bounds), Ok(i64::MIN));
        let why = "strconv.ParseUint: parsing \"-1\": invalid syntax";
        assert_eq!(unsigned("-1"), Err(why.to_owned()));
    }

    #[test]
    fn lists_are_records_of_csv() {
        let check = |text: &str, want: Result<&[&str], &str>| {
            let want = want.map(|fields| fields.iter().map(|f| (*f).to_owned()).collect());
            assert_eq!(csv(text), want.map_err(str::to_owned), "{text}");
        };
        check("", Ok(&[]));
        check("a,b", Ok(&["a", "b"]));
        check("a,", Ok(&["a", ""]));
        check("\"a,\"\"b\"\"\",c", Ok(&["a,\"b\"", "c"]));
        let bare = "parse error on line 1, column 4: bare \" in non-quoted-field";
        check("a,b\"", Err(bare));
        let missing = "parse error on line 1, column 3: extraneous or missing \" in quoted-field";
        check("\"a", Err(missing));
    }

    #[test]
    fn maps_are_split_at_commas_and_equal_signs() {
        let all = |text: &str| {
            pairs(text).into_iter().map(|(key, value)| format!("{key}:{value}")).collect::<Vec<_>>()
        };
        assert_eq!(
            all("api/all=true, apps/v1 = false ,batch/v1"),
            ["api/all:true", "apps/v1:false", "batch/v1:"]
        );
        assert_eq!(labels("m,l=v1"), Ok(vec![("m,l".to_owned(), "v1".to_owned())]));
        let two = labels("\"m,l=v1,v2\",\"n,l=v\"").map(|labels| labels.len());
        assert_eq!(two, Ok(2));
        assert_eq!(labels("x"), Err("x must be formatted as key=value".to_owned()));
    }

    #[test]
    fn other_values_are_checked() {
        assert_eq!(boolean("T"), Ok(true));
        let why = "strconv.ParseBool: parsing \"yes\": invalid syntax";
        assert_eq!(boolean("yes"), Err(why.to_owned()));
        assert_eq!(ip("10.0.0.300"), Err("failed to parse IP: \"10.0.0.300\"".to_owned()));
        assert_eq!(ip(""), Ok(String::new()));
        let why = "expected comma separated certificate and key file paths";
        assert_eq!(certificate_and_key("a"), Err(why.to_owned()));
        let why = "empty names list is not allowed";
        assert_eq!(certificate_and_key("a,b:"), Err(why.to_owned()));
        assert!(certificate_and_key("a,b:*.example.com,c").is_ok());
        let why = "\"a\" does not have the pattern=N format";
        assert_eq!(patterns("a"), Err(why.to_owned()));
        assert!(patterns("a=1,b=2,").is_ok());
        assert_eq!(reference(""), Ok(()));
        assert_eq!(reference("a/b:c"), Ok(()));
        assert_eq!(reference("https://a"), Ok(()));
        assert_eq!(reference(":"), Err("parse \":\": missing protocol scheme".to_owned()));
        let why = "strconv.Atoi: parsing \"x\": invalid syntax";
        assert_eq!(ports("x-1"), Err(why.to_owned()));
        assert_eq!(ports("5-3"), Err("end port cannot be less than start port: 5-3".to_owned()));
        assert_eq!(ports("30000+10"), Ok("30000-30010".to_owned()));
        let why = "strconv.ParseFloat: parsing \"1e999\": value out of range";
        assert_eq!(float("1e999"), Err(why.to_owned()));
    }
}
