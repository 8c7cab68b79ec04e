//! R-CHUNK: lists in pages.

use super::{MAPS, create, forgetful_server, map, names, put, refused, server};
use crate::world::{Client, revision_of};
use serde_json::{Value, json};

/// Returns the continue token of a list, or an empty string.
fn token(list: &Value) -> &str {
    list["metadata"]["continue"].as_str().unwrap_or_default()
}

/// Reads all pages of a list.
fn pages(client: &Client, path: &str, limit: usize) -> Vec<Value> {
    let mut pages: Vec<Value> = vec![];
    loop {
        let from = pages.last().map(|page| format!("&continue={}", token(page)));
        let answer = client.get(&format!("{path}?limit={limit}{}", from.unwrap_or_default()));
        assert_eq!(answer.status, 200, "{answer:?}");
        pages.push(answer.body);
        if pages.last().is_none_or(|page| token(page).is_empty()) {
            return pages;
        }
    }
}

/// Proves: R-CHUNK-01, R-CHUNK-02, R-CHUNK-03, R-CHUNK-04, R-CHUNK-05.
#[test]
fn pages_have_no_gap_and_no_overlap() {
    let server = server();
    let client = server.client();
    let want: Vec<String> = (0..7).map(|at| format!("m-{at}")).collect();
    for name in want.iter().rev() {
        create(&client, name);
    }
    for (limit, sizes) in
        [(1, vec![1; 7]), (3, vec![3, 3, 1]), (6, vec![6, 1]), (7, vec![7]), (100, vec![7])]
    {
        let pages = pages(&client, MAPS, limit);
        assert_eq!(pages.iter().map(|page| names(page).len()).collect::<Vec<_>>(), sizes);
        assert_eq!(pages.iter().flat_map(names).collect::<Vec<_>>(), want);
        let mut left = want.len();
        for page in &pages {
            assert_eq!(revision_of(page), revision_of(&pages[0]), "{page}");
            left -= names(page).len();
            let remaining = &page["metadata"]["remainingItemCount"];
            assert_eq!(remaining, &if left > 0 { json!(left) } else { Value::Null }, "{page}");
        }
    }
    server.stop();
}

/// Proves: R-CHUNK-03, R-CHUNK-06, R-CHUNK-08.
#[test]
fn later_pages_have_the_state_of_the_first() {
    let server = server();
    let client = server.client();
    for name in ["b", "d", "f", "h"] {
        create(&client, name);
    }
    let first = client.get(&format!("{MAPS}?limit=1")).body;
    assert_eq!(names(&first), ["b"]);
    create(&client, "a");
    create(&client, "e");
    put(&client, &format!("{MAPS}/f"), &map("f", "2"));
    client.delete(&format!("{MAPS}/d"));
    client.delete(&format!("{MAPS}/b"));
    let second = client.get(&format!("{MAPS}?limit=2&continue={}", token(&first))).body;
    assert_eq!(names(&second), ["d", "f"]);
    assert_eq!(second["items"][1]["data"]["v"], "1");
    let third = client.get(&format!("{MAPS}?limit=2&continue={}", token(&second))).body;
    assert_eq!(names(&third), ["h"]);
    assert_eq!([&second, &third].map(revision_of), [revision_of(&first); 2]);
    // The same token returns the same page again; no token returns the current state.
    let again = client.get(&format!("{MAPS}?limit=2&continue={}", token(&first))).body;
    assert_eq!(again, second);
    let anew = client.get(&format!("{MAPS}?limit=3")).body;
    assert_eq!(names(&anew), ["a", "e", "f"]);
    assert_eq!(anew["items"][2]["data"]["v"], "2");
    assert!(revision_of(&anew) > revision_of(&first));
    server.stop();
}

/// Proves: R-CHUNK-09, R-CHUNK-10, R-HTTP-12.
#[test]
fn an_expired_continue_token_is_410_and_offers_a_new_one() {
    let server = forgetful_server();
    let client = server.client();
    for name in ["a", "b", "c"] {
        create(&client, name);
    }
    let first = client.get(&format!("{MAPS}?limit=1")).body;
    create(&client, "d");
    let path = format!("{MAPS}?limit=1&continue={}", token(&first));
    let answer = client.poll(&path, |answer| answer.status != 200);
    let why = "The provided continue parameter is too old to display a consistent list result. You \
               can start a new list without the continue parameter, or use the continue token in \
               this response to retrieve the remainder of the results. Continuing with the \
               provided token results in an inconsistent list - objects that were created, \
               modified, or deleted between the time the first chunk was returned and now may show \
               up in the list.";
    refused(&answer, 410, "Expired", why);
    let go_on = token(&answer.body);
    let rest = client.get(&format!("{MAPS}?continue={go_on}"));
    assert_eq!((rest.status, names(&rest.body)), (200, vec!["b", "c", "d"]));
    assert_eq!(names(&client.get(&format!("{MAPS}?limit=2")).body), ["a", "b"]);
    assert_eq!(names(&client.get(MAPS).body), ["a", "b", "c", "d"]);
    server.stop();
}

/// Proves: R-CHUNK-11, R-CHUNK-05.
#[test]
fn a_list_of_1253_pods_has_pages_of_500() {
    const PODS: usize = 1253;
    let server = server();
    let path = "/api/v1/namespaces/default/pods";
    std::thread::scope(|scope| {
        for part in 0..4 {
            let client = server.client();
            scope.spawn(move || {
                for at in (part..PODS).step_by(4) {
                    let pod = json!({
                        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p-{at:04}")},
                        "spec": {"containers": [{"name": "c", "image": "i"}]}
                    });
                    let made = client.post(path, &pod);
                    assert_eq!(made.status, 201, "{made:?}");
                }
            });
        }
    });
    let client = server.client();
    let pages = pages(&client, path, 500);
    let shown = pages.iter().map(|page| {
        (names(page).len(), page["metadata"]["remainingItemCount"].as_u64(), revision_of(page))
    });
    let at = revision_of(&pages[0]);
    let want = [(500, Some(753), at), (500, Some(253), at), (253, None, at)];
    assert_eq!(shown.collect::<Vec<_>>(), want);
    let want: Vec<String> = (0..PODS).map(|at| format!("p-{at:04}")).collect();
    assert_eq!(pages.iter().flat_map(names).collect::<Vec<_>>(), want);
    server.stop();
}
