//! The authorizer library: expressions build checks, the caller's authorizer decides.

use keelson_cel::{
    Authorizer, Check, CheckTarget, Decision, Environment, Limits, Resource, Type, Val, Version,
};

/// Allows `get` of pods and of `/healthz`, and everything to the service account `ns/robot`.
struct Rules;

impl Authorizer for Rules {
    fn authorize(&self, check: &Check) -> Decision {
        if check.service_account == Some(("ns".into(), "robot".into())) {
            return Decision { allowed: true, reason: "robot".into(), error: None };
        }
        let known = match &check.target {
            CheckTarget::Path(path) => path == "/healthz",
            CheckTarget::Resource(resource) => {
                **resource
                    == Resource {
                        group: "apps".into(),
                        resource: "deployments".into(),
                        subresource: "scale".into(),
                        namespace: "default".into(),
                        name: "web".into(),
                        field_selector: "a=b".into(),
                        label_selector: "c=d".into(),
                    }
            }
        };
        let allowed = known && check.verb == "get";
        let error = (check.verb == "fail").then(|| "no answer".to_owned());
        Decision { allowed, reason: format!("verb {}", check.verb), error }
    }
}

fn evaluate(text: &str) -> (Result<Option<bool>, String>, u64) {
    let env = Environment::kubernetes(Version::NEW_EXPRESSIONS)
        .with_variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
        .with_variable(
            "authorizer.requestResource",
            Type::Opaque("kubernetes.authorization.ResourceCheck"),
        );
    let program = env.compile(text).unwrap_or_else(|error| panic!("{text}: {error}")).program;
    let rules = Rules;
    let resource = Resource { resource: "pods".into(), ..Resource::default() };
    let variables = [Some(Val::authorizer(&rules)), Some(Val::request_resource(&rules, resource))];
    let outcome = program.evaluate(&variables, &Limits::default());
    let result = outcome.result.map(|val| val.as_bool()).map_err(|error| error.to_string());
    (result, outcome.cost)
}

#[test]
fn authorizer_receives_every_field_of_a_check() {
    let check = |text: &str, expected: bool| {
        assert_eq!(evaluate(text).0, Ok(Some(expected)), "{text}");
    };
    check("authorizer.path('/healthz').check('get').allowed()", true);
    check("authorizer.path('/healthz').check('put').allowed()", false);
    let deployment = "authorizer.group('apps').resource('deployments').subresource('scale')\
                      .namespace('default').name('web').fieldSelector('a=b').labelSelector('c=d')";
    check(&format!("{deployment}.check('get').allowed()"), true);
    check(&format!("{deployment}.name('api').check('get').allowed()"), false);
    check(
        "authorizer.serviceAccount('ns', 'robot').path('/x').check('get').reason() == 'robot'",
        true,
    );
    check("authorizer.requestResource.check('get').reason() == 'verb get'", true);
    check("authorizer.path('/x').check('fail').errored()", true);
    check("authorizer.path('/x').check('fail').error() == 'no answer'", true);
    check("!authorizer.path('/x').check('get').errored()", true);
}

#[test]
fn cost_limit_allows_two_authorization_checks() {
    let one = "authorizer.path('/healthz').check('get').allowed()";
    let (result, cost) = evaluate(one);
    assert_eq!(result, Ok(Some(true)));
    assert_eq!(cost, 350_003);
    assert_eq!(evaluate(&format!("{one} && {one}")).0, Ok(Some(true)));
    let three = format!("{one} && {one} && {one}");
    assert_eq!(evaluate(&three).0, Err("operation cancelled: actual cost limit exceeded".into()));
}

#[test]
fn invalid_names_are_rejected() {
    let check = |text: &str, expected: &str| {
        assert_eq!(evaluate(text).0, Err(expected.to_owned()), "{text}");
    };
    check("authorizer.path(' ').check('get').allowed()", "path must not be empty");
    check("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty");
    check(
        "authorizer.serviceAccount('ns', 'A').path('/').check('get').allowed()",
        "Invalid service account name",
    );
    check(
        "authorizer.serviceAccount('n.s', 'a').path('/').check('get').allowed()",
        "Invalid service account namespace",
    );
}
