//! `/statusz` and `/flagz`: version and flags of this process, as text or as `config.k8s.io`
//! objects.

use crate::app::App;
use crate::negotiate::{self, ComponentForm};
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};
use http::{HeaderValue, header};
use keelson_meta::{Failure, Feature, Map, Timestamp, Value, value};

/// The name of the component in both pages.
const COMPONENT: &str = "apiserver";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
     guarantees and is for debugging purposes only.\n";

/// Responds to a request for one of the pages. Returns `None` for other paths, or if the feature is
/// off.
pub(crate) fn answer(app: &App, head: &RequestHead, path: &str) -> Option<Result<Reply, Failure>> {
    match path {
        "/statusz" | "/flagz" if !has_page(app, path) => None,
        "/statusz" => Some(page(head, "Statusz", || statusz_text(app), || statusz(app))),
        "/flagz" => Some(page(head, "Flagz", || flagz_text(app), || flagz(app))),
        _ => None,
    }
}

/// Returns the paths of the pages whose features are on.
pub(crate) fn paths(app: &App) -> impl Iterator<Item = &'static str> {
    ["/flagz", "/statusz"].into_iter().filter(|path| has_page(app, path))
}

fn has_page(app: &App, path: &str) -> bool {
    let feature = match path {
        "/statusz" => Feature::ComponentStatusz,
        _ => Feature::ComponentFlagz,
    };
    app.registry.options.features.is_on(feature)
}

fn page(
    head: &RequestHead,
    kind: &str,
    text: impl Fn() -> String,
    object: impl Fn() -> Map,
) -> Result<Reply, Failure> {
    let (encoding, version) = match negotiate::accept_component(head.header(header::ACCEPT), kind)?
    {
        ComponentForm::Text => return Ok(respond::text(200, &text())),
        ComponentForm::Object { encoding, version } => (encoding, version),
    };
    let mut whole = Map::new();
    whole.insert("kind", kind);
    whole.insert("apiVersion", format!("config.k8s.io/{version}"));
    whole.insert("metadata", value!({"name": COMPONENT}));
    for (name, member) in object() {
        whole.insert(name, member);
    }
    let mut reply = respond::value(head, 200, encoding, &Value::Object(whole));
    let media = encoding.media_type();
    if let Ok(media) =
        HeaderValue::from_str(&format!("{media};g=config.k8s.io;v={version};as={kind}"))
    {
        reply.headers_mut().insert(header::CONTENT_TYPE, media);
    }
    Ok(reply)
}

/// Returns the paths that `/statusz` lists, sorted.
fn status_paths(app: &App) -> Vec<&'static str> {
    let mut all = vec!["/healthz", "/livez", "/metrics", "/readyz", "/version"];
    all.extend(paths(app));
    all.sort_unstable();
    all
}

/// Returns the binary and emulated versions: `1.36.2` and `1.36`.
fn versions(app: &App) -> (&str, &str) {
    let binary = app.version.git_version.trim_start_matches('v');
    let patch = binary.rfind('.').filter(|_| binary.matches('.').count() > 1);
    (binary, &binary[..patch.unwrap_or(binary.len())])
}

fn uptime_seconds(app: &App) -> i64 {
    (app.registry.clock.now().seconds - app.started.seconds).max(0)
}

fn statusz(app: &App) -> Map {
    let (binary, emulated) = versions(app);
    let paths: Vec<Value> = status_paths(app).into_iter().map(Value::from).collect();
    let mut members = Map::new();
    members.insert("startTime", app.started.text());
    members.insert("uptimeSeconds", uptime_seconds(app));
    members.insert("goVersion", "");
    members.insert("binaryVersion", binary);
    members.insert("emulationVersion", emulated);
    members.insert("paths", paths);
    members
}

fn statusz_text(app: &App) -> String {
    let (binary, emulated) = versions(app);
    let up = uptime_seconds(app);
    format!(
        "\n{COMPONENT} statusz\n{WARNING}\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: \n\
         Binary version: {binary}\nEmulation version: {emulated}\nPaths: {}\n",
        unix_date(app.started),
        up / 3600,
        up / 60 % 60,
        up % 60,
        status_paths(app).join(" ")
    )
}

fn flagz(app: &App) -> Map {
    let flags: Map =
        app.flags.iter().map(|(name, text)| (name.into(), text.as_str().into())).collect();
    let mut members = Map::new();
    members.insert("flags", flags);
    members
}

fn flagz_text(app: &App) -> String {
    let lines = app.flags.iter().map(|(name, text)| format!("{name} {text}\n"));
    format!("\n{COMPONENT} flagz\n{WARNING}{}", lines.collect::<String>())
}

/// Formats a time like `date`: `Mon Nov 23 07:36:35 UTC 2026`.
fn unix_date(time: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let day_of_week = time.seconds.div_euclid(86_400).rem_euclid(7);
    let text = time.text();
    // `2026-11-23T07:36:35Z`
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let month = part(5..7).parse::<usize>().unwrap_or(1).clamp(1, 12);
    let day: u8 = part(8..10).parse().unwrap_or(1);
    format!(
        "{} {} {day:>2} {} UTC {}",
        DAYS[day_of_week as usize],
        MONTHS[month - 1],
        part(11..19),
        part(0..4)
    )
}

#[cfg(test)]
mod tests {
    use super::unix_date;
    use keelson_meta::Timestamp;

    #[test]
    fn a_time_is_shown_as_by_date() {
        for (time, expected) in [
            ("2026-11-23T07:36:35Z", "Mon Nov 23 07:36:35 UTC 2026"),
            ("1970-01-01T00:00:00Z", "Thu Jan  1 00:00:00 UTC 1970"),
            ("2024-02-29T23:59:59Z", "Thu Feb 29 23:59:59 UTC 2024"),
        ] {
            let time = Timestamp::parse(time).expect("a time");
            assert_eq!(unix_date(time), expected);
        }
    }
}
