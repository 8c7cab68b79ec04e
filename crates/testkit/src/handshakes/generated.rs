//! Cases that are generated from a seed: what clients may get wrong in a request that upgrades a
//! connection, and mixtures of it.

use serde_json::{Value, json};

/// The cases that are recorded.
pub const SEED: u64 = 1;
/// How many they are.
pub const COUNT: usize = 200;

const COMMAND_PROTOCOLS: [&str; 9] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "base64.channel.k8s.io",
    "v9.channel.k8s.io",
    "portforward.k8s.io",
];
const PORT_PROTOCOLS: [&str; 5] = [
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "portforward.k8s.io",
    "v2.portforward.k8s.io",
    "SPDY/3.1+portforward.k8s.io",
];
/// Pods and queries of their containers, among them those that are not there.
const CONTAINERS: [&str; 8] = [
    "one/?",
    "one/?container=main&",
    "one/?container=absent&",
    "two/?",
    "two/?container=side&",
    "two/?container=missing&",
    "unassigned/?",
    "gone/?",
];
const OUTPUTS: [&str; 7] = [
    "stdout=true",
    "stdout=true&stderr=true",
    "stderr=1",
    "stdout=true&stderr=true&tty=true",
    "stdout=false",
    "stdout=yes",
    "",
];
const PORTS: [&str; 7] =
    ["?ports=1", "?ports=1,2", "?ports=0", "?ports=70000", "?ports=a", "?ports=", ""];

/// Returns cases without answers, one a line.
pub fn generate(seed: u64, count: usize) -> String {
    let mut random = Random(seed);
    let cases = (0..count).map(|number| crate::sorted(random.case(number)).to_string() + "\n");
    cases.collect()
}

/// A source of numbers that are the same for a seed: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn one_of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[(self.next() % items.len() as u64) as usize]
    }

    /// Returns the usual value in seven of eight cases.
    fn usual_or<'a>(&mut self, usual: &'a str, others: &[&'a str]) -> &'a str {
        if self.next().is_multiple_of(8) { self.one_of(others) } else { usual }
    }

    fn case(&mut self, number: usize) -> Value {
        let subresource = self.one_of(&["exec", "attach", "portforward"]);
        let is_spdy = self.next().is_multiple_of(3);
        let headers = if is_spdy { self.spdy(subresource) } else { self.websocket(subresource) };
        let usual_method = if is_spdy { "POST" } else { "GET" };
        let method = self.usual_or(usual_method, &["GET", "POST", "PUT", "HEAD", "DELETE"]);
        let mut headers: Vec<Value> =
            headers.into_iter().map(|(name, value)| json!([name, value])).collect();
        if method != "GET" && method != "HEAD" {
            headers.push(json!(["Content-Length", "0"]));
        }
        let path = self.path(subresource);
        json!({"name": format!("generated-{number}"), "method": method,
            "path": format!("/api/v1/namespaces/default/pods/{path}"), "headers": headers})
    }

    fn path(&mut self, subresource: &str) -> String {
        let container = self.usual_or("one/?", &CONTAINERS);
        let (pod, query) = container.split_once('/').unwrap_or((container, "?"));
        if subresource == "portforward" {
            return format!("{pod}/portforward{}", self.usual_or("", &PORTS));
        }
        let command = match subresource {
            "exec" => self.usual_or("command=echo&command=hi&", &["command=&", ""]),
            _ => "",
        };
        let outputs = self.usual_or("stdout=true", &OUTPUTS);
        format!("{pod}/{subresource}{query}{command}{outputs}")
    }

    fn websocket(&mut self, subresource: &str) -> Vec<(&'static str, String)> {
        let mut headers = vec![];
        let connection = self.usual_or("Upgrade", &["keep-alive, Upgrade", "upgrade", "close", ""]);
        let upgrade = self.usual_or("websocket", &["WebSocket", "h2c", "websocket, SPDY/3.1", ""]);
        let version = self.usual_or("13", &["8", "12", "014", ""]);
        let key = self.usual_or("dGhlIHNhbXBsZSBub25jZQ==", &["c2hvcnQ=", "not base64!", ""]);
        for (name, value) in [
            ("Connection", connection),
            ("Upgrade", upgrade),
            ("Sec-WebSocket-Version", version),
            ("Sec-WebSocket-Key", key),
        ] {
            if !value.is_empty() {
                headers.push((name, value.to_owned()));
            }
        }
        let origin = self.usual_or("", &["https://example.com", "null"]);
        if !origin.is_empty() {
            headers.push(("Origin", origin.to_owned()));
        }
        self.add_protocols("Sec-WebSocket-Protocol", subresource, &mut headers);
        headers
    }

    fn spdy(&mut self, subresource: &str) -> Vec<(&'static str, String)> {
        let mut headers = vec![];
        let connection = self.usual_or("Upgrade", &["keep-alive, Upgrade", "close", ""]);
        let upgrade = self.usual_or("SPDY/3.1", &["spdy/3.1", "SPDY/3", "SPDY/2", ""]);
        for (name, value) in [("Connection", connection), ("Upgrade", upgrade)] {
            if !value.is_empty() {
                headers.push((name, value.to_owned()));
            }
        }
        self.add_protocols("X-Stream-Protocol-Version", subresource, &mut headers);
        headers
    }

    /// Adds up to three protocols, in one header or in several.
    fn add_protocols(
        &mut self,
        name: &'static str,
        subresource: &str,
        headers: &mut Vec<(&'static str, String)>,
    ) {
        let known: &[&str] = match subresource {
            "portforward" => &PORT_PROTOCOLS,
            _ => &COMMAND_PROTOCOLS,
        };
        let protocols: Vec<&str> = (0..self.next() % 4).map(|_| self.one_of(known)).collect();
        if protocols.is_empty() {
            return;
        }
        if self.next().is_multiple_of(3) {
            headers.extend(protocols.into_iter().map(|protocol| (name, protocol.to_owned())));
        } else {
            let separator = self.one_of(&[", ", ","]);
            headers.push((name, protocols.join(separator)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_its_cases() {
        let cases = generate(1, 50);
        assert_eq!(cases, generate(1, 50));
        assert!(generate(1, 51).starts_with(&cases));
        assert_ne!(cases, generate(2, 50));
        for word in ["exec", "attach", "portforward", "SPDY", "websocket"] {
            assert!(cases.contains(word), "{word}");
        }
    }
}
