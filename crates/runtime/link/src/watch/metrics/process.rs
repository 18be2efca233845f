//! Metrics of this process from Linux. Values that cannot be read are omitted.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Reads the values at each scrape.
#[derive(Debug)]
pub struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = ConstCounter::new(cpu_seconds());
        let about = encoder.encode_descriptor("process_cpu_seconds", "CPU time used", None, cpu.metric_type())?;
        cpu.encode(about)?;
        let gauges = [
            ("process_resident_memory_bytes", "Memory in use", resident_bytes()),
            ("process_open_fds", "Open files and connections", open_fds()),
            ("process_max_fds", "The limit of open files and connections", max_fds()),
            ("process_start_time_seconds", "When the process started, in seconds since 1970", start_time_s()),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn resident_bytes() -> Option<f64> {
    let pages: f64 = fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64)
}

fn open_fds() -> Option<f64> {
    // Without the descriptor of the directory itself.
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64 - 1.0)
}

fn max_fds() -> Option<f64> {
    getrlimit(Resource::Nofile).current.map(|limit| limit as f64)
}

fn start_time_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain anything. The start time is the 20th field after it.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + ticks / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_all_values() {
        let now = trellis_clock::now_s();
        assert!(cpu_seconds() > 0.0);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1e6));
        assert!(start_time_s().is_some_and(|start| start <= now + 1.0 && start > now - 3600.0));
        let before = open_fds().expect("a count");
        let file = fs::File::open("/proc/self/stat").expect("a file");
        assert!(open_fds().is_some_and(|count| count >= before), "{file:?} is open too");
        assert!(max_fds().is_none_or(|limit| limit >= before));
    }
}
