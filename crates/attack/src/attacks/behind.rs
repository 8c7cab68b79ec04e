//! Servers behind the attacked one, which APIServices name, that misbehave: this program is they.

use super::nodes::send_hostile_answer;
use super::{Entry, Outcome};
use crate::far_scene::{Behind, Descriptors, ROUND, check_unseen, connect_until, get, upgrade};
use crate::far_side::Connection;
use crate::target::Target;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// Clients of each behavior; every second one reads nothing.
const CLIENTS: usize = 4;
/// Bytes of pages, below the longest that is rewritten.
const PAGE_BYTES: usize = 7 << 20;
/// Bytes of documents, below the longest that is read.
const DOCUMENT_BYTES: usize = 15 << 20;
const GROUP: &str = "far.attack.example";

pub const ATTACKS: [Entry; 3] = [
    ("behind-answers", "a server behind whose answers are hostile", None, answers),
    ("behind-pages", "a server behind whose HTML pages are bombs", None, pages),
    ("behind-documents", "servers behind whose discovery and OpenAPI are bombs", None, documents),
];

/// What a server answers, by the last part of the path.
const ANSWERS: [&str; 15] = [
    "head-endless",
    "head-many",
    "head-drip",
    "informational",
    "switch",
    "body-endless",
    "body-drip",
    "chunk-extensions",
    "chunk-long",
    "length-longer",
    "lengths-two",
    "redirect-301",
    "redirect-302",
    "redirect-307",
    "redirect-308",
];

const PAGES: [&str; 6] = [
    "page-open-tags",
    "page-open-quotes",
    "page-angles",
    "page-links",
    "page-endless",
    "page-gzip-bomb",
];

/// What its discovery and its OpenAPI documents are, by the first part of the group.
const DOCUMENTS: [&str; 6] = ["endless", "deep", "maps", "members", "paths", "drips"];

fn answers(target: &Target, end: Instant) -> Result<Outcome> {
    attack(target, end, &ANSWERS)
}

fn pages(target: &Target, end: Instant) -> Result<Outcome> {
    attack(target, end, &PAGES)
}

fn attack(target: &Target, end: Instant, behaviors: &[&str]) -> Result<Outcome> {
    let descriptors = Descriptors::of(target)?;
    let behind = Behind::register(target, GROUP, true, serve)?;
    let end = end.max(Instant::now() + ROUND);
    let sent = connect_until(end, behaviors, CLIENTS, |behavior, number| {
        let path = behind.path(&format!("/{behavior}"));
        match number / 2 % 2 == 0 || behavior.starts_with("page") {
            true => get(target, &path),
            false => upgrade(target, &path, "v4.channel.k8s.io"),
        }
    })?;
    check_unseen(&behind.far_side)?;
    let reached = behind.far_side.heads().len();
    ensure!(reached >= behaviors.len(), "{reached} requests have reached the server");
    behind.remove()?;
    descriptors.check()?;
    Ok(Outcome { sent, note: format!("{reached} reached it") })
}

/// Answers a request: documents as they should be, anything else as the path says.
fn serve(connection: &mut Connection) -> Result<()> {
    let (path, _) = connection.read_head()?;
    let path = path.split('?').next().unwrap_or_default();
    if path == format!("/apis/{GROUP}/v1") {
        let list = format!(
            "{{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"{GROUP}/v1\",\
             \"resources\":[]}}"
        );
        return connection.send(&answer("application/json", list.as_bytes()));
    }
    match path.rsplit('/').next().unwrap_or_default() {
        "page-open-tags" => connection.send(&page(b"<a ")),
        "page-open-quotes" => connection.send(&page(b"<a href=\"")),
        "page-angles" => connection.send(&page(b"<")),
        "page-links" => connection.send(&page(b"<a href=/>")),
        "page-endless" => {
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")?;
            connection.send_without_end(&b"<a href=/>".repeat(1000))
        }
        "page-gzip-bomb" => connection.send(&gzip_bomb()),
        behavior if ANSWERS.contains(&behavior) => send_hostile_answer(connection, behavior),
        _ => connection.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    }
}

fn answer(media_type: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: {media_type}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Returns a page that is a piece again and again.
fn page(piece: &[u8]) -> Vec<u8> {
    answer("text/html", &piece.repeat(PAGE_BYTES / piece.len()))
}

/// Returns a compressed page that inflates to 256 MiB.
fn gzip_bomb() -> Vec<u8> {
    let deflated = crate::spdy::bomb(256 << 20);
    // Without the head of zlib; a head of gzip instead.
    let body = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], &deflated[6..]].concat();
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html\r\n\
         Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

/// Registers servers whose documents are hostile, and asks for those of all servers meanwhile.
fn documents(target: &Target, end: Instant) -> Result<Outcome> {
    let descriptors = Descriptors::of(target)?;
    let mut servers = vec![];
    for behavior in DOCUMENTS {
        let group = format!("{behavior}.attack.example");
        let serve = move |connection: &mut Connection| serve_documents(connection, behavior);
        servers.push(Behind::register(target, &group, false, serve)?);
    }
    let end = end.max(Instant::now() + ROUND);
    let mut admin = target.admin()?;
    let mut sent = 0;
    while Instant::now() < end {
        for path in ["/apis", "/openapi/v2", "/openapi/v3"] {
            let status = admin.get(path)?.status;
            ensure!(status == 200, "{path}: {status}");
            sent += 1;
        }
        crate::pause(Duration::from_millis(200));
    }
    let mut reached = 0;
    for server in servers {
        check_unseen(&server.far_side)?;
        reached += server.far_side.heads().len();
        server.remove()?;
    }
    descriptors.check()?;
    Ok(Outcome { sent, note: format!("{reached} documents") })
}

fn serve_documents(connection: &mut Connection, behavior: &str) -> Result<()> {
    let (path, _) = connection.read_head()?;
    let group = format!("{behavior}.attack.example");
    if path == format!("/apis/{group}/v1") && behavior != "endless" {
        let list = format!(
            "{{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"{group}/v1\",\
             \"resources\":[]}}"
        );
        return connection.send(&answer("application/json", list.as_bytes()));
    }
    let is_list = path.starts_with("/apis");
    let media_type = match is_list {
        true => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        false => "application/json",
    };
    let body = match behavior {
        "endless" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"items\":[";
            connection.send(head.as_bytes())?;
            return connection.send_without_end(&b"{},".repeat(1000));
        }
        "drips" => {
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{")?;
            return connection.drip(b' ', Duration::from_millis(50));
        }
        "deep" => format!("{{\"items\":{}", "[".repeat(DOCUMENT_BYTES)),
        "maps" => {
            format!("{{\"items\":[{}{{}}],\"paths\":{{}}}}", "{},".repeat(DOCUMENT_BYTES / 3))
        }
        "members" => {
            let members: String =
                (0..DOCUMENT_BYTES / 16).map(|at| format!("\"{at}\":{{}},")).collect();
            format!("{{\"items\":{{{members}\"a\":1}},\"paths\":{{{members}\"a\":1}}}}")
        }
        _ => {
            let paths: String = (0..DOCUMENT_BYTES / 64)
                .map(|at| format!("\"/apis/{group}/v1/t{at}\":{{\"get\":{{\"responses\":{{}}}}}},"))
                .collect();
            format!("{{\"swagger\":\"2.0\",\"paths\":{{{paths}\"/a\":{{}}}},\"definitions\":{{}}}}")
        }
    };
    // Most of a list may be shorter than a document.
    let length_max = if is_list { 4 << 20 } else { DOCUMENT_BYTES };
    let body = &body.as_bytes()[..body.len().min(length_max)];
    connection.send(&answer(media_type, body))
}
