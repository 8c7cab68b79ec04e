//! Anonymous requests and the authorization modes.

use crate::kill;
use keelson_testkit::api::Api;

#[test]
fn anonymous_requests_are_rejected_when_every_request_is_allowed() {
    let code = |modes: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        let flags = ["--controllers=-*", &format!("--authorization-mode={modes}")];
        let server = kill::Server::start_with_flags(dir.path(), &flags);
        let api = Api::unchecked(server.address(), None).expect("a client");
        api.get("/version").expect("an answer").code
    };
    assert_eq!(code("RBAC"), 200);
    assert_eq!(code("AlwaysAllow"), 401);
    assert_eq!(code("RBAC,AlwaysAllow"), 401);
}
