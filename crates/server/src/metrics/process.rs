//! Metrics of the process from `/proc`; left out on other systems.

use keelson_metrics::{Description, Exposition, MetricType};
use std::fs;

/// The kernel counts processor time in hundredths of a second, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;
/// Default page size, if `/proc/self/auxv` cannot be read.
const PAGE_BYTES: f64 = 4096.0;
/// `AT_PAGESZ` of `getauxval(3)`.
const AUXV_PAGE_BYTES: u64 = 6;

pub(super) fn write(out: &mut Exposition) {
    let fields = stat();
    // Field numbers as in `proc(5)`, which start at 1; the first two are cut off.
    let field = |number: usize| fields.get(number - 3).copied();
    let mut put = |described: &'static Description, value: Option<f64>| {
        if let Some(value) = value {
            out.family(described).value(&[], value);
        }
    };
    let cpu = field(14).zip(field(15)).map(|(user, system)| (user + system) / TICKS_PER_SECOND);
    put(&CPU, cpu);
    put(&VIRTUAL, field(23));
    put(&RESIDENT, field(24).map(|pages| pages * page_bytes()));
    put(&BEGUN, begun(field(22)));
    put(&OPEN_FILES, fs::read_dir("/proc/self/fd").ok().map(|open| open.count() as f64));
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    put(&FILES_MAX, limit(&limits, "Max open files"));
    put(&VIRTUAL_MAX, limit(&limits, "Max address space"));
    let devices = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    if let Some((received, sent)) = network_bytes(&devices) {
        put(&RECEIVED, Some(received));
        put(&SENT, Some(sent));
    }
}

/// Appends only when the process began.
pub(super) fn write_start(out: &mut Exposition) {
    if let Some(begun) = begun(stat().get(22 - 3).copied()) {
        out.family(&BEGUN).value(&[], begun);
    }
}

/// Returns the fields of `/proc/self/stat` after the name of the program: from the third on.
fn stat() -> Vec<f64> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program name, in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect()
}

/// Returns when the process began, from the ticks between the boot and that.
fn begun(ticks: Option<f64>) -> Option<f64> {
    ticks.zip(boot_seconds()).map(|(ticks, boot)| boot + ticks / TICKS_PER_SECOND)
}

fn page_bytes() -> f64 {
    let auxv = fs::read("/proc/self/auxv").unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let mut entries = auxv.chunks_exact(16);
    let found = entries.find(|entry| word(&entry[..8]) == AUXV_PAGE_BYTES);
    found.map_or(PAGE_BYTES, |entry| word(&entry[8..]) as f64)
}

/// Returns the boot time in seconds since 1970.
fn boot_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// Returns the bytes that all devices received and sent, from `/proc/net/dev`; `None` if it has
/// none.
fn network_bytes(devices: &str) -> Option<(f64, f64)> {
    let bytes = devices.lines().filter_map(|line| {
        let (_, fields) = line.split_once(':')?;
        let mut fields = fields.split_whitespace();
        let received: f64 = fields.next()?.parse().ok()?;
        // Eight fields are about what was received.
        let sent: f64 = fields.nth(7)?.parse().ok()?;
        Some((received, sent))
    });
    bytes.reduce(|all, one| (all.0 + one.0, all.1 + one.1))
}

/// Returns a soft limit by name.
fn limit(limits: &str, name: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

static CPU: Description = Description {
    name: "process_cpu_seconds_total",
    help: "Seconds of processor time, of the user and of the system.",
    metric_type: MetricType::Counter,
    labels: &[],
};

const fn gauge(name: &'static str, help: &'static str) -> Description {
    Description { name, help, metric_type: MetricType::Gauge, labels: &[] }
}

static VIRTUAL: Description =
    gauge("process_virtual_memory_bytes", "Bytes of the address space in use.");
static VIRTUAL_MAX: Description =
    gauge("process_virtual_memory_max_bytes", "Bytes that the address space may have.");
static RESIDENT: Description = gauge("process_resident_memory_bytes", "Bytes of memory in use.");
static BEGUN: Description =
    gauge("process_start_time_seconds", "When the process began, in seconds of the epoch.");
static OPEN_FILES: Description = gauge("process_open_fds", "Open file descriptors.");
static FILES_MAX: Description = gauge("process_max_fds", "File descriptors that may be open.");
static RECEIVED: Description = Description::counter(
    "process_network_receive_bytes_total",
    "Bytes that the network devices of the process received.",
    &[],
);
static SENT: Description = Description::counter(
    "process_network_transmit_bytes_total",
    "Bytes that the network devices of the process sent.",
    &[],
);

#[cfg(test)]
mod tests {
    use super::network_bytes;

    #[test]
    fn bytes_of_all_devices_are_added_up() {
        let text = "Inter-|   Receive        |  Transmit\n face |bytes packets errs drop fifo frame \
                    compressed multicast|bytes packets errs\n    lo: 10 1 0 0 0 0 0 0 10 1 0\n  eth0:5 1 \
                    0 0 0 0 0 0 7 1 0\n";
        assert_eq!(network_bytes(text), Some((15.0, 17.0)));
        assert_eq!(network_bytes("nothing"), None);
    }
}
