//! Selectors of devices: the part of the expression language that most of them use. Clauses that
//! compare the driver or an attribute with a literal, joined by `&&`.

use keelson_meta::{Map, Str, Value};

/// A device of a slice.
#[derive(Clone, Debug, Default)]
pub struct Device {
    pub driver: Str,
    pub pool: Str,
    pub name: Str,
    /// Attributes with their domains: `domain/name` and a literal.
    attributes: Vec<(String, String)>,
}

impl Device {
    /// Reads a device of a slice.
    pub fn of(driver: &Str, pool: &Str, device: &Value) -> Device {
        let attributes = device.at(&["attributes"]).or_else(|| device.at(&["basic", "attributes"]));
        let entries = attributes.and_then(Value::as_object).into_iter().flat_map(Map::iter);
        let attributes = entries.filter_map(|(name, value)| {
            let (_, value) = value.as_object()?.iter().next()?;
            let name =
                if name.contains('/') { name.to_string() } else { format!("{driver}/{name}") };
            Some((name, literal_of(value)?))
        });
        Device {
            driver: driver.clone(),
            pool: pool.clone(),
            name: device.str_at(&["name"]).unwrap_or_default().into(),
            attributes: attributes.collect(),
        }
    }
}

fn literal_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(format!("{:?}", text.as_str())),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A parsed selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSelector {
    clauses: Vec<Clause>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Clause {
    Driver(String),
    Attribute(String, String),
}

impl DeviceSelector {
    /// Parses an expression; `None` if it is not of the simple form.
    pub fn parse(expression: &str) -> Option<DeviceSelector> {
        let clauses = expression.split("&&").map(|text| clause(text.trim()));
        Some(DeviceSelector { clauses: clauses.collect::<Option<Vec<Clause>>>()? })
    }

    pub fn matches(&self, device: &Device) -> bool {
        self.clauses.iter().all(|clause| match clause {
            Clause::Driver(driver) => device.driver == driver.as_str(),
            Clause::Attribute(name, value) => {
                device.attributes.iter().any(|(known, is)| known == name && is == value)
            }
        })
    }
}

fn clause(text: &str) -> Option<Clause> {
    let (left, right) = text.split_once("==")?;
    let left = left.trim();
    let right = right.trim();
    let literal = match quoted(right) {
        Some(text) => format!("{text:?}"),
        None if right == "true" || right == "false" || right.parse::<i64>().is_ok() => {
            right.to_owned()
        }
        None => return None,
    };
    if left == "device.driver" {
        return quoted(right).map(|driver| Clause::Driver(driver.to_owned()));
    }
    let rest = left.strip_prefix("device.attributes[")?;
    let (domain, name) = rest.split_once(']')?;
    let name = name.strip_prefix('.')?;
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| Some(Clause::Attribute(format!("{}/{name}", quoted(domain)?), literal)))?
}

fn quoted(text: &str) -> Option<&str> {
    let inner = ['"', '\'']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote).and_then(|text| text.strip_suffix(*quote)))?;
    (!inner.contains(['"', '\'', '\\'])).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn simple_selectors_compare_driver_and_attributes() {
        let device = value!({"name": "d", "attributes": {"model": {"string": "a"},
            "other.org/cores": {"int": 4}, "fast": {"bool": true}}});
        let device = Device::of(&"gpu.example.org".into(), &"p".into(), &device);
        let check = |text: &str, want: Option<bool>| {
            let selector = DeviceSelector::parse(text);
            assert_eq!(selector.map(|one| one.matches(&device)), want, "{text}");
        };
        check("device.driver == 'gpu.example.org'", Some(true));
        check("device.driver == \"x\"", Some(false));
        check("device.attributes['gpu.example.org'].model == 'a'", Some(true));
        check("device.attributes[\"other.org\"].cores == 4 && device.driver == 'x'", Some(false));
        check("device.attributes['gpu.example.org'].fast == true", Some(true));
        check("device.attributes['gpu.example.org'].model != 'a'", None);
        check("device.capacity['x'].memory.compareTo(quantity('1Gi')) >= 0", None);
    }
}
