//! What a scrape is told.

use super::Engine;
use crate::metrics::{Delivered, Exit, MapUse, Sample};
use juneau_api::view::Kind;
use juneau_bpf::Dataplane;
use juneau_core::flow::FlowRead;
use juneau_core::layout;
use juneau_core::tables::{Table, TablesMut};

impl Engine {
    pub(super) fn sample(&self) -> Sample {
        let mut sample = Sample {
            ready: self.ready(),
            generation: self.dataplane.as_ref().map_or(0, |dataplane| dataplane.load().generation),
            problems: self.problems.len().try_into().unwrap_or(u64::MAX),
            attachments: self.pods.len().try_into().unwrap_or(u64::MAX),
            applies: self.counts.applies,
            apply_failures: self.counts.failures,
            apply_lag: self.counts.lag.as_secs_f64(),
            expired: self.counts.expired,
            attach: self.counts.attach.clone(),
            held: Kind::ALL.map(|kind| (kind.as_str(), self.objects.held(kind).try_into().unwrap_or(u64::MAX))).into(),
            ..Sample::default()
        };
        if let Some(dataplane) = &self.dataplane
            && let Err(error) = self.read_counters(dataplane, &mut sample)
        {
            tracing::warn!(%error, "counters cannot be read; the scrape is incomplete");
        }
        sample
    }

    fn read_counters(&self, dataplane: &Dataplane, sample: &mut Sample) -> Result<(), Box<dyn std::error::Error>> {
        let counters = dataplane.counters()?;
        let exits = counters.exits()?.into_iter().map(|exit| Exit {
            hook: exit.hook.name(),
            reason: exit.reason.name(),
            answered: exit.answered,
            packets: exit.packets,
        });
        sample.exits = exits.collect();
        for count in counters.traffic()? {
            // A number without a VPC: the VPC has left this node, and with it its series.
            let vpc = self.vpc_at(count.vpc_index);
            if vpc == 0 {
                continue;
            }
            for (direction, traffic) in [("from-pod", count.from_pod), ("from-overlay", count.from_overlay)] {
                sample.delivered.push(Delivered { vpc, direction, packets: traffic.packets, bytes: traffic.bytes });
            }
        }
        sample.devices = counters
            .devices()?
            .into_iter()
            .filter_map(|(cause, packets)| Some((cause_name(cause)?, packets)))
            .collect();
        let tables = dataplane.tables()?;
        for table in Table::ALL {
            sample.maps.push(MapUse {
                map: table.map_name().to_owned(),
                // The mirror knows without asking the kernel for every element.
                entries: self.mirror.len(table).try_into()?,
                capacity: tables.capacity(table).try_into()?,
            });
        }
        let flows = dataplane.flows()?;
        sample.maps.push(MapUse {
            map: "jn_flows".to_owned(),
            entries: flows.len()?.try_into()?,
            capacity: flows.capacity().try_into()?,
        });
        Ok(())
    }
}

fn cause_name(cause: u32) -> Option<&'static str> {
    match cause {
        layout::DEVICE_REFUSED => Some("refused"),
        layout::DEVICE_MTU => Some("mtu"),
        layout::DEVICE_LENGTH => Some("length"),
        _ => None,
    }
}
