//! Processor time of processes, to the nanosecond.
//!
//! The kernel charges soft interrupts to whoever is interrupted: the sender of a packet pays for its whole way to the
//! receiver's socket, unless ksoftirqd takes over. Client, server and ksoftirqd together are thus the price of a
//! packet, and what else the machine does is not in it.

use std::fs;
use std::num::NonZeroI32;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::error::{Context, Error, Result};

/// A process whose time is read from outside.
pub type ProcessId = NonZeroI32;

/// Binds the calling thread to one processor.
///
/// # Errors
/// [`crate::error::Error::Io`] when there is no such processor.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu).context(format!("processor {cpu}"))?;
    sched_setaffinity(Pid::from_raw(0), &set).context(format!("binding to processor {cpu}"))
}

/// Processor time of the calling process so far.
///
/// # Errors
/// [`crate::error::Error::Io`] when the clock cannot be read.
pub fn own_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).context("reading the own time")?;
    Ok(Duration::from(time))
}

/// Processor time of the calling thread so far.
///
/// # Errors
/// [`crate::error::Error::Io`] when the clock cannot be read.
pub fn thread_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("reading the thread's time")?;
    Ok(Duration::from(time))
}

/// Processor time of all threads of another process so far, those that ended included.
///
/// # Errors
/// [`crate::error::Error::Io`] when there is no such process.
pub fn process_time(process: u32) -> Result<Duration> {
    let what = || format!("processor time of process {process}");
    let clock = clock_getcpuclockid(Pid::from_raw(process.cast_signed())).context(what())?;
    Ok(Duration::from(clock_gettime(clock).context(what())?))
}

/// Bytes of memory that a process has in use.
///
/// # Errors
/// [`crate::error::Error::Io`] when there is no such process.
pub fn resident(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).context(format!("reading {path}"))?;
    parse_resident(&status).ok_or_else(|| Error::Missing(format!("VmRSS in {path}")))
}

/// `VmRSS` of `/proc/PID/status`, in kibibytes there.
fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Sum of the processor time of these processes so far; one that ended counts as nothing. Exact for processes that
/// sleep; one that runs is counted up to its last tick.
#[must_use]
pub fn time_of(processes: impl IntoIterator<Item = ProcessId>) -> Duration {
    processes
        .into_iter()
        .filter_map(|pid| parse_schedstat(&fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?))
        .sum()
}

/// The kernel's threads for soft interrupts, one a processor.
#[must_use]
pub fn soft_interrupt_threads() -> Vec<ProcessId> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &ProcessId| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
        })
        .collect()
}

/// First of the three numbers: time on a processor, in nanoseconds (Documentation/scheduler/sched-stats.rst).
fn parse_schedstat(text: &str) -> Option<Duration> {
    let time = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(time))
}

/// Datagrams that reached UDP sockets of a process's namespace: read, or refused because the socket was full.
#[must_use]
pub fn udp_arrivals(process: ProcessId) -> Option<u64> {
    parse_udp_arrivals(&fs::read_to_string(format!("/proc/{process}/net/snmp")).ok()?)
}

/// `/proc/net/snmp` has two lines for UDP: names and numbers.
fn parse_udp_arrivals(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let names = lines.next()?.split_ascii_whitespace();
    let values = lines.next()?.split_ascii_whitespace();
    let mut found = None;
    for (name, value) in names.zip(values) {
        if name == "InDatagrams" || name == "RcvbufErrors" {
            *found.get_or_insert(0) += value.parse::<u64>().ok()?;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat() {
        assert_eq!(parse_schedstat("5123456789 100 42\n"), Some(Duration::from_nanos(5_123_456_789)));
        assert_eq!(parse_schedstat(""), None);
        assert_eq!(parse_schedstat("x 1 2"), None);
    }

    #[test]
    fn resident_memory() {
        assert_eq!(parse_resident("Name:\tx\nVmHWM:\t  9 kB\nVmRSS:\t  2048 kB\n"), Some(2 << 20));
        assert_eq!(parse_resident("Name:\tx\n"), None);
        assert!(resident(std::process::id()).is_ok_and(|bytes| bytes > 1 << 16));
    }

    #[test]
    fn udp_counters() {
        let text = "Tcp: InSegs\nTcp: 5\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\n\
                    Udp: 7 1 3 9 3\nUdpLite: InDatagrams\nUdpLite: 100\n";
        assert_eq!(parse_udp_arrivals(text), Some(10));
        assert_eq!(parse_udp_arrivals("Udp: InDatagrams\n"), None);
    }

    #[test]
    fn own_time_grows() {
        let before = own_time().map(|t| t.as_nanos()).unwrap_or_default();
        let mut x = 0_u64;
        for i in 0..1_000_000_u64 {
            x = std::hint::black_box(x ^ i);
        }
        assert!(own_time().is_ok_and(|t| t.as_nanos() > before), "{x}");
        assert!(process_time(std::process::id()).is_ok_and(|t| t.as_nanos() > before));
    }
}
