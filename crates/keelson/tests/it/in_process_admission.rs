//! Admission by functions of the embedding program.

use crate::http::{Server, without_controllers};
use k8s_openapi::api::core::v1::ConfigMap;
use keelson::Operation;
use serde_json::json;
use std::sync::{Arc, Mutex};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn functions_change_and_refuse_typed_objects() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    let builder = without_controllers().admission(
        ("", "v1", "configmaps"),
        |_write, map: &mut ConfigMap| {
            map.metadata.labels.get_or_insert_default().insert("seen".into(), "yes".into());
            Ok(())
        },
        move |write, map: Option<&ConfigMap>| {
            let labelled = map.and_then(|map| map.metadata.labels.as_ref()).is_some();
            let before = write.old.as_ref().and_then(|old| old.metadata.name.clone());
            let line = format!("{:?} {} {labelled} {before:?}", write.operation, write.user.name);
            log.lock().expect("a lock").push(line);
            let is_locked =
                |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data.contains_key("locked"));
            match (write.operation, &write.old, map) {
                (Operation::Delete, Some(old), None) if is_locked(old) => Err("it stays".into()),
                (_, _, Some(map)) if map.immutable == Some(true) => Err("not here".into()),
                _ => Ok(()),
            }
        },
    );
    let server = Server::start_plain(builder);
    let client = server.client();
    let made = client.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"locked": ""}}));
    assert_eq!((made.status, &made.body["metadata"]["labels"]), (201, &json!({"seen": "yes"})));
    let refused = client.post(MAPS, &json!({"metadata": {"name": "b"}, "immutable": true}));
    let message = "configmaps \"b\" is forbidden: not here";
    assert_eq!((refused.status, &refused.body["message"]), (403, &json!(message)));
    let path = format!("{MAPS}/a");
    let stays = client.delete(&path);
    let message = "configmaps \"a\" is forbidden: it stays";
    assert_eq!((stays.status, &stays.body["message"]), (403, &json!(message)));
    let opened = json!({"metadata": {"name": "a"}});
    assert_eq!(client.call("PUT", &path, "application/json", Some(&opened)).status, 200);
    assert_eq!(client.delete(&path).status, 200);
    let want = [
        "Create admin true None",
        "Create admin true None",
        "Delete admin false Some(\"a\")",
        "Update admin true Some(\"a\")",
        "Delete admin false Some(\"a\")",
    ];
    assert_eq!(*seen.lock().expect("a lock"), want);
    server.stop();
}
