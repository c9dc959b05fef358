//! Names, help and labels. The names are a snapshot test: dashboards live by them.

use super::Sample;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;

#[derive(Debug)]
struct Scrape(Sample);

/// A sample as OpenMetrics text.
///
/// # Errors
/// Never in practice: writing to a string does not fail.
pub fn to_text(sample: Sample) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("juneau");
    registry.register_collector(Box::new(Scrape(sample)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(sample) = self;
        let mut exits = counter(&mut encoder, "drops", "Packets that were dropped without an answer")?;
        for exit in sample.exits.iter().filter(|exit| !exit.answered) {
            let labels = [("hook", exit.hook.as_str()), ("reason", exit.reason.as_str())];
            exits.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, u64>(&exit.packets, None)?;
        }
        let mut exits = counter(&mut encoder, "answers", "Packets in whose stead an answer left (ARP, ICMP)")?;
        for exit in sample.exits.iter().filter(|exit| exit.answered) {
            let labels = [("hook", exit.hook.as_str()), ("reason", exit.reason.as_str())];
            exits.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, u64>(&exit.packets, None)?;
        }
        let mut packets = counter(&mut encoder, "delivered_packets", "Packets that were delivered")?;
        for d in &sample.delivered {
            let labels = [("vpc", d.vpc.to_string()), ("direction", d.direction.to_owned())];
            packets.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, u64>(&d.packets, None)?;
        }
        let mut bytes = counter(&mut encoder, "delivered_bytes", "Bytes of frames that were delivered")?;
        for d in &sample.delivered {
            let labels = [("vpc", d.vpc.to_string()), ("direction", d.direction.to_owned())];
            bytes.encode_family(&labels)?.encode_counter::<[(&str, &str); 0], _, u64>(&d.bytes, None)?;
        }
        let mut devices = counter(&mut encoder, "slow_way_packets", "Packets that left by the VXLAN device")?;
        for (cause, packets) in &sample.devices {
            devices.encode_family(&[("cause", *cause)])?.encode_counter::<[(&str, &str); 0], _, u64>(packets, None)?;
        }
        let mut entries = gauge(&mut encoder, "map_entries", "Elements in a map")?;
        for map in &sample.maps {
            entries.encode_family(&[("map", map.map.as_str())])?.encode_gauge(&map.entries)?;
        }
        let mut capacity = gauge(&mut encoder, "map_capacity", "Elements that a map takes")?;
        for map in &sample.maps {
            capacity.encode_family(&[("map", map.map.as_str())])?.encode_gauge(&map.capacity)?;
        }
        value(&mut encoder, "ready", "1 when everything that can be programmed is", u64::from(sample.ready))?;
        value(&mut encoder, "load_generation", "Number of the load of programs in force", sample.generation)?;
        value(&mut encoder, "problems", "Objects with a problem", sample.problems)?;
        value(&mut encoder, "attachments", "Attached Pods", sample.attachments)?;
        let mut held = gauge(&mut encoder, "held_objects", "Objects in memory")?;
        for (kind, count) in &sample.held {
            held.encode_family(&[("kind", *kind)])?.encode_gauge(count)?;
        }
        let lag = ConstGauge::new(sample.apply_lag);
        let help = "Seconds from the last change seen to its being in force";
        lag.encode(encoder.encode_descriptor("apply_lag_seconds", help, None, MetricType::Gauge)?)?;
        total(&mut encoder, "applies", "Tables computed and applied", sample.applies)?;
        total(&mut encoder, "apply_failures", "Applications that failed, in part or whole", sample.apply_failures)?;
        total(&mut encoder, "expired_flows", "Flow entries that ended by their idle limit", sample.expired)?;
        sample.attach.encode(&mut encoder)
    }
}

fn counter<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

fn gauge<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

fn value<N>(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: N) -> fmt::Result
where
    ConstGauge<N>: EncodeMetric,
{
    ConstGauge::new(value).encode(gauge(encoder, name, help)?)
}

fn total(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    ConstCounter::new(value).encode(counter(encoder, name, help)?)
}

#[cfg(test)]
mod tests {
    use super::super::{AttachTimes, Delivered, Exit, MapUse, Stage, Stopwatch};
    use super::*;

    fn sample() -> Sample {
        let exit =
            |reason: &str, answered, packets| Exit { hook: "pod".into(), reason: reason.into(), answered, packets };
        Sample {
            exits: vec![exit("source-mac", false, 3), exit("arp-answered", true, 4)],
            delivered: vec![Delivered { vpc: 100, direction: "from-pod", packets: 5, bytes: 600 }],
            devices: vec![("mtu", 7)],
            maps: vec![MapUse { map: "jn_flows".into(), entries: 8, capacity: 9 }],
            ready: true,
            generation: 2,
            problems: 1,
            attachments: 10,
            held: vec![("Node", 14)],
            applies: 11,
            apply_failures: 12,
            apply_lag: 0.25,
            expired: 13,
            attach: AttachTimes::default(),
        }
    }

    #[test]
    fn names_and_labels_are_what_dashboards_use() {
        let text = to_text(sample()).unwrap();
        // Histograms have a test of their own.
        let is_series = |line: &&str| !line.starts_with('#') && !line.starts_with("juneau_attach_s");
        let series: Vec<&str> = text.lines().filter(is_series).collect();
        assert_eq!(
            series,
            [
                r#"juneau_drops_total{hook="pod",reason="source-mac"} 3"#,
                r#"juneau_answers_total{hook="pod",reason="arp-answered"} 4"#,
                r#"juneau_delivered_packets_total{vpc="100",direction="from-pod"} 5"#,
                r#"juneau_delivered_bytes_total{vpc="100",direction="from-pod"} 600"#,
                r#"juneau_slow_way_packets_total{cause="mtu"} 7"#,
                r#"juneau_map_entries{map="jn_flows"} 8"#,
                r#"juneau_map_capacity{map="jn_flows"} 9"#,
                "juneau_ready 1",
                "juneau_load_generation 2",
                "juneau_problems 1",
                "juneau_attachments 10",
                r#"juneau_held_objects{kind="Node"} 14"#,
                "juneau_apply_lag_seconds 0.25",
                "juneau_applies_total 11",
                "juneau_apply_failures_total 12",
                "juneau_expired_flows_total 13",
            ]
        );
        assert!(text.ends_with("# EOF\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn attaching_is_told_whole_and_by_stages() {
        let mut stopwatch = Stopwatch::from(tokio::time::Instant::now());
        tokio::time::advance(std::time::Duration::from_millis(20)).await;
        stopwatch.end(Stage::Programs);
        let sample = sample();
        sample.attach.observe(&stopwatch);
        let text = to_text(sample).unwrap();
        for line in [
            "juneau_attach_seconds_sum 0.02",
            "juneau_attach_seconds_count 1",
            r#"juneau_attach_seconds_bucket{le="0.01"} 0"#,
            r#"juneau_attach_seconds_bucket{le="0.02"} 1"#,
            r#"juneau_attach_seconds_bucket{le="+Inf"} 1"#,
            r#"juneau_attach_stage_seconds_sum{stage="programs"} 0.02"#,
            r#"juneau_attach_stage_seconds_sum{stage="queue"} 0.0"#,
            r#"juneau_attach_stage_seconds_count{stage="addresses"} 1"#,
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is not in {text}");
        }
    }
}
