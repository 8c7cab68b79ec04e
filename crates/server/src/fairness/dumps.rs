//! `/debug/api_priority_and_fairness/`: levels, queues and waiting requests as tables, in
//! kube-apiserver's form. Requests that are executed are counted in their levels, but not listed:
//! nothing is kept of them.

use super::{Fairness, nanoseconds};
use keelson_fairness::Nanoseconds;
use keelson_meta::Timestamp;
use keelson_meta::time::GoDuration;

/// Narrowest column.
const COLUMN_MIN: usize = 8;
const LEVELS: &str = "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, \
     ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, \
     CancelledRequests";
const QUEUES: &str = "PriorityLevelName, Index, PendingRequests, ExecutingRequests, SeatsInUse, \
     NextDispatchR, InitialSeatsSum, MaxSeatsSum, TotalWorkSum";
const REQUESTS: &str = "PriorityLevelName, FlowSchemaName, QueueIndex, RequestIndexInQueue, FlowDistingsher, \
     ArriveTime, InitialSeats, FinalSeats, AdditionalLatency, StartTime";
const DETAILS: &str = "UserName, Verb, APIPath, Namespace, Name, APIVersion, Resource, SubResource";
/// Go's zero time: the request has not started.
const NOT_STARTED: &str = "0001-01-01T00:00:00Z";

type Row = Vec<String>;

/// Returns a dump as text; `None` if there is none of this name.
pub(crate) fn text(
    fairness: &Fairness,
    name: &str,
    has_details: bool,
    now: Timestamp,
) -> Option<String> {
    let rows = match name {
        "dump_priority_levels" => levels(fairness),
        "dump_queues" => queues(fairness),
        "dump_requests" => requests(fairness, now, has_details),
        _ => return None,
    };
    Some(table(&rows))
}

fn head_row(names: &str) -> Row {
    names.split(", ").map(str::to_owned).collect()
}

fn levels(fairness: &Fairness) -> Vec<Row> {
    let mut rows = vec![head_row(LEVELS)];
    for shared in &fairness.table.load().levels {
        let state = shared.lock();
        let active = state.level.dump().filter(|queue| !queue.waiting.is_empty()).count();
        rows.push(vec![
            shared.name.to_string(),
            active.to_string(),
            state.level.is_idle().to_string(),
            state.is_ending.to_string(),
            state.level.waiting().to_string(),
            state.level.executing().to_string(),
            state.counts.started.to_string(),
            state.counts.rejected.to_string(),
            state.counts.timed_out.to_string(),
            state.counts.cancelled.to_string(),
        ]);
    }
    rows
}

fn queues(fairness: &Fairness) -> Vec<Row> {
    let mut rows = vec![head_row(QUEUES)];
    for shared in &fairness.table.load().levels {
        let state = shared.lock();
        for (index, queue) in state.level.dump().enumerate() {
            let initial: u32 = queue.waiting.iter().map(|(_, work, _)| work.seats).sum();
            let widest: u32 = queue.waiting.iter().map(|(_, work, _)| work.width()).sum();
            rows.push(vec![
                shared.name.to_string(),
                index.to_string(),
                queue.waiting.len().to_string(),
                queue.executing.to_string(),
                queue.seats_in_use.to_string(),
                format!("{:.8}ss", queue.next_start),
                initial.to_string(),
                widest.to_string(),
                format!("{:.8}ss", queue.work),
            ]);
        }
    }
    rows
}

fn requests(fairness: &Fairness, now: Timestamp, has_details: bool) -> Vec<Row> {
    let mut names = head_row(REQUESTS);
    if has_details {
        names.extend(head_row(DETAILS));
    }
    let mut rows = vec![names];
    for shared in &fairness.table.load().levels {
        let state = shared.lock();
        for (index, queue) in state.level.dump().enumerate() {
            for (place, (waiter, work, arrived)) in queue.waiting.iter().enumerate() {
                let known = &waiter.details;
                let mut row = vec![
                    shared.name.to_string(),
                    known.flow_schema.to_string(),
                    index.to_string(),
                    place.to_string(),
                    known.distinguisher.to_string(),
                    arrival(fairness, now, *arrived),
                    work.seats.to_string(),
                    work.final_seats.to_string(),
                    duration(work.held),
                    NOT_STARTED.to_owned(),
                ];
                if has_details {
                    let texts = [&known.user, &known.verb, &known.path, &known.namespace];
                    row.extend(texts.map(ToString::to_string));
                    let texts = [&known.name, &known.version, &known.resource, &known.subresource];
                    row.extend(texts.map(ToString::to_string));
                }
                rows.push(row);
            }
        }
    }
    rows
}

/// Returns when a request arrived, as a time of the clock.
fn arrival(fairness: &Fairness, now: Timestamp, arrived: Nanoseconds) -> String {
    let ago = nanoseconds(fairness.began).saturating_sub(arrived);
    let time = i128::from(now.seconds) * 1_000_000_000 + i128::from(now.nanos) - i128::from(ago);
    let seconds = i64::try_from(time.div_euclid(1_000_000_000)).unwrap_or(0);
    let fraction = format!("{:09}", time.rem_euclid(1_000_000_000));
    let whole = Timestamp::new(seconds, 0).text();
    match fraction.trim_end_matches('0') {
        "" => whole.to_string(),
        fraction => format!("{}.{fraction}Z", whole.trim_end_matches('Z')),
    }
}

fn duration(nanoseconds: Nanoseconds) -> String {
    GoDuration(i64::try_from(nanoseconds).unwrap_or(i64::MAX)).to_string()
}

/// Aligns the columns as Go's tabwriter does: each is as wide as its longest cell, which ends in a
/// comma and a space.
fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let count = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let longest = rows.iter().map(|row| row[column].chars().count() + 2).max();
        longest.unwrap_or(0).max(COLUMN_MIN)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            match column + 1 == count {
                true => text.push_str(cell),
                false => text.push_str(&format!("{:<1$}", format!("{cell},"), widths[column])),
            }
        }
        text.push('\n');
    }
    text
}
