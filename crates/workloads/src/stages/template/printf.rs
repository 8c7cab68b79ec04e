//! How values are written: plainly, and by the verbs of Go's `fmt`.

use keelson_meta::Value;
use keelson_meta::status::{float, quote};

/// The largest width and precision of a verb.
const WIDTH_MAX: usize = 1_000;

/// Writes a value as Go's `print` does.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        other => inner(other),
    }
}

fn inner(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => float(*number),
        Value::String(text) | Value::Raw(text) => text.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inner).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let sorted = map.sorted().into_iter();
            let entries: Vec<String> =
                sorted.map(|(key, value)| format!("{key}:{}", inner(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

/// Formats values by a format of Go's `fmt.Sprintf`. Mistakes stand in the text, as Go writes them.
pub fn printf(format: &str, values: &[Value]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = format;
    let mut values = values.iter();
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let verb = Verb::read(after)?;
        rest = &after[verb.length..];
        match verb.letter {
            '%' => out.push('%'),
            '\0' => out.push_str("%!(NOVERB)"),
            letter => match values.next() {
                Some(value) => out.push_str(&verb.format(value)),
                None => out.push_str(&format!("%!{letter}(MISSING)")),
            },
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// `%-08.3f`
#[derive(Default)]
struct Verb {
    is_left: bool,
    has_zeros: bool,
    has_sign: bool,
    is_alternate: bool,
    width: usize,
    precision: Option<usize>,
    letter: char,
    length: usize,
}

impl Verb {
    fn read(text: &str) -> Result<Verb, String> {
        let mut verb = Verb::default();
        let mut chars = text.chars().peekable();
        while let Some(flag) = chars.next_if(|c| "-0+# ".contains(*c)) {
            verb.length += 1;
            match flag {
                '-' => verb.is_left = true,
                '0' => verb.has_zeros = true,
                '+' => verb.has_sign = true,
                '#' => verb.is_alternate = true,
                _ => {}
            }
        }
        let mut read_number = |length: &mut usize| {
            let mut number = 0_usize;
            while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                chars.next();
                *length += 1;
                number = number.saturating_mul(10).saturating_add(digit as usize);
            }
            let has_point = chars.peek() == Some(&'.');
            if has_point {
                chars.next();
                *length += 1;
            }
            (number, has_point)
        };
        let (width, has_point) = read_number(&mut verb.length);
        verb.width = width;
        if has_point {
            verb.precision = Some(read_number(&mut verb.length).0);
        }
        if verb.width.max(verb.precision.unwrap_or(0)) > WIDTH_MAX {
            return Err(format!("a width is more than {WIDTH_MAX}"));
        }
        if let Some(letter) = chars.next() {
            verb.letter = letter;
            verb.length += letter.len_utf8();
        }
        Ok(verb)
    }

    fn format(&self, value: &Value) -> String {
        let text = match (self.letter, value) {
            ('v', value) => inner(value),
            ('s', Value::String(text)) => self.cut(text),
            ('q', Value::String(text)) => quote(text),
            ('x', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
            ('d', Value::Int(number)) => self.signed(*number >= 0, number.to_string()),
            ('x', Value::Int(number)) => self.based(*number, "0x", |n| format!("{n:x}")),
            ('X', Value::Int(number)) => self.based(*number, "0X", |n| format!("{n:X}")),
            ('o', Value::Int(number)) => self.based(*number, "0", |n| format!("{n:o}")),
            ('b', Value::Int(number)) => self.based(*number, "", |n| format!("{n:b}")),
            ('c', Value::Int(number)) => {
                let point = u32::try_from(*number).ok().and_then(char::from_u32);
                point.unwrap_or(char::REPLACEMENT_CHARACTER).to_string()
            }
            ('f' | 'F', Value::Float(number)) => {
                let places = self.precision.unwrap_or(6);
                self.signed(*number >= 0.0, format!("{number:.places$}"))
            }
            ('g', Value::Float(number)) => float(*number),
            ('t', Value::Bool(flag)) => flag.to_string(),
            ('s', Value::Array(_) | Value::Object(_)) => inner(value),
            (letter, Value::Null) => format!("%!{letter}(<nil>)"),
            (letter, value) => format!("%!{letter}({}={})", go_type(value), inner(value)),
        };
        self.pad(text)
    }

    fn cut(&self, text: &str) -> String {
        text.chars().take(self.precision.unwrap_or(usize::MAX)).collect()
    }

    fn signed(&self, is_positive: bool, text: String) -> String {
        if self.has_sign && is_positive { format!("+{text}") } else { text }
    }

    fn based(&self, number: i64, prefix: &str, digits: fn(u64) -> String) -> String {
        let sign = if number < 0 { "-" } else { "" };
        let prefix = if self.is_alternate { prefix } else { "" };
        format!("{sign}{prefix}{}", digits(number.unsigned_abs()))
    }

    fn pad(&self, text: String) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        if missing == 0 {
            return text;
        }
        if self.is_left {
            return text + &" ".repeat(missing);
        }
        if self.has_zeros && matches!(self.letter, 'd' | 'f' | 'F' | 'x' | 'X' | 'o' | 'b') {
            let unsigned = text.trim_start_matches(['-', '+']);
            let sign = &text[..text.len() - unsigned.len()];
            return format!("{sign}{}{unsigned}", "0".repeat(missing));
        }
        " ".repeat(missing) + &text
    }
}

/// Returns Go's type of a value.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Float(_) => "float64",
        Value::String(_) | Value::Raw(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn verbs_are_those_of_go() {
        let check = |format: &str, values: Value, want: &str| {
            let values = values.as_array().unwrap_or_default().to_vec();
            assert_eq!(printf(format, &values).expect("a text"), want);
        };
        check("%s-%d", value!(["a", 3]), "a-3");
        check("%5d|%-5d|%05d|%+d", value!([3, 3, (-3), 3]), "    3|3    |-0003|+3");
        check("%q %x %X %#o", value!(["a\"b", 255, 255, 8]), "\"a\\\"b\" ff FF 010");
        check("%.2f %6.1f", value!([1.005, 2.25]), "1.00    2.2");
        check(
            "%v %v %t",
            value!([[1, null], {"b": 1, "a": "x"}, true]),
            "[1 <nil>] map[a:x b:1] true",
        );
        check("%d%% %s", value!(["x"]), "%!d(string=x)% %!s(MISSING)");
        check("%.2s|%c", value!(["abc", 65]), "ab|A");
        assert!(printf("%5000d", &[Value::Int(1)]).is_err());
    }
}
