//! EventRateLimit: limits events a second for the server, a namespace, a user, or a source and
//! object (token buckets, as in client-go's flowcontrol).

use crate::attributes::Recorder;
use crate::config::event_limits::By;
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Object, Reason, Status};

pub(crate) fn validate(
    req: &Request<'_>,
    event: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let writes = matches!(req.operation, Operation::Create | Operation::Update);
    if !writes || req.dry_run || !req.is_below("", "events") {
        return Ok(());
    }
    let Some(limits) = &req.config.event_limits else { return Ok(()) };
    let now = (req.now)();
    let now = i128::from(now.seconds) * 1_000_000_000 + i128::from(now.nanos);
    let mut reached = vec![];
    for limit in &limits.limits {
        let key = match limit.by {
            By::Server => String::new(),
            By::Namespace => req.namespace.to_owned(),
            By::User => req.user.name.to_string(),
            By::SourceAndObject => source_and_object(event),
        };
        if !limit.take(&key, now) {
            reached.push(format!("limit reached on type {} for key {key}", limit.by.name()));
        }
    }
    if reached.is_empty() {
        return Ok(());
    }
    let why =
        if reached.len() == 1 { reached.concat() } else { format!("[{}]", reached.join(", ")) };
    Err(Status::new(Reason::TooManyRequests, format!("Too many requests: {why}")))
}

fn source_and_object(event: &Object) -> String {
    let source = ["component", "host"].map(|name| event.str_at(&["source", name]));
    let object = ["kind", "namespace", "name", "uid", "apiVersion"]
        .map(|name| event.str_at(&["involvedObject", name]));
    source.into_iter().chain(object).collect()
}
