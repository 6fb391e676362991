//! Figures of the network interfaces from `/proc/net/dev`.

use super::{Interval, MetricSample, Unit};

/// Counters of one interface since boot, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub received: u64,
    pub sent: u64,
}

/// Largest number of interfaces that are recorded.
const INTERFACES_MAX: usize = 8;

/// Parses the counters of all interfaces that have carried any bytes.
pub fn parse(text: &str) -> Vec<Interface> {
    let interface = |line: &str| -> Option<Interface> {
        // The colon may be followed by a digit without a space: `eth0:123 …`.
        let (name, counters) = line.rsplit_once(':')?;
        let counters: Vec<&str> = counters.split_ascii_whitespace().collect();
        let number = |i: usize| counters.get(i)?.parse::<u64>().ok();
        Some(Interface { name: name.trim().to_owned(), received: number(0)?, sent: number(8)? })
    };
    let used = |interface: &Interface| interface.received > 0 || interface.sent > 0;
    text.lines().filter_map(interface).filter(used).take(INTERFACES_MAX).collect()
}

/// Adds the rates of the interfaces that are in both readings.
pub fn samples(before: &[Interface], now: &[Interface], interval: &Interval, out: &mut Vec<MetricSample>) {
    for new in now {
        let Some(old) = before.iter().find(|old| old.name == new.name) else { continue };
        for (name, old, count) in
            [("net_received", old.received, new.received), ("net_sent", old.sent, new.sent)]
        {
            let rate = interval.rate(Some(old), Some(count));
            out.extend(rate.map(|value| MetricSample::of(name, &new.name, value, Unit::BytesPerSecond)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
  eth0:5000 50 0 0 0 0 0 0 700 7 0 0 0 0 0 0
  eth1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
  bad0: x
";

    #[test]
    fn interfaces_that_carried_something_are_read() {
        let found = parse(TEXT);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], Interface { name: "eth0".into(), received: 5000, sent: 700 });
        let mut before = found.clone();
        before[1].received = 1000;
        let mut out = Vec::new();
        samples(&before, &found, &Interval::seconds(4.0), &mut out);
        let eth0 = out.iter().find(|s| s.name == "net_received" && s.device.as_deref() == Some("eth0"));
        assert_eq!(eth0.map(|s| s.value), Some(1000.0));
    }
}
