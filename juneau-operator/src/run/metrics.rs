//! What the operator counts. No object's name is a label.

use super::watch;
use crate::admission;
use crate::plan::Change;
use crate::state::State;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;

/// Labels of the counter of writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    kind: &'static str,
    verb: &'static str,
    outcome: &'static str,
}

/// What the operator counts.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    writes: Family<Write, Counter>,
    /// How long plans take, in seconds.
    pub plan_seconds: Histogram,
    /// Events that were sent.
    pub events: Counter,
    /// 1 while this replica writes.
    pub leader: Gauge,
    /// 1 when all objects were read.
    pub synced: Gauge,
    /// What watches count.
    pub watches: watch::Counts,
    /// Answers of admission.
    pub admission: admission::Counts,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("juneau_operator");
        let writes = Family::<Write, Counter>::default();
        registry.register("writes", "Changes that were sent to the API server", writes.clone());
        let plan_seconds = Histogram::new(exponential_buckets(0.000_25, 4.0, 8));
        registry.register_with_unit("plan", "Time that a plan takes", Unit::Seconds, plan_seconds.clone());
        let events = Counter::default();
        registry.register("events", "Events that were sent", events.clone());
        let (leader, synced) = (Gauge::default(), Gauge::default());
        registry.register("leader", "1 while this replica writes", leader.clone());
        registry.register("synced", "1 when all objects were read", synced.clone());
        let watches = watch::Counts::default();
        registry.register("undecodable", "Versions of objects that cannot be decoded", watches.undecodable.clone());
        registry.register("lists", "Lists that were read", watches.lists.clone());
        registry.register("watch_failures", "Lists and watches that failed", watches.failures.clone());
        let admission = admission::Counts::default();
        registry.register("admission_answers", "Answers of the webhook", admission.clone());
        let registry = Arc::new(registry);
        Self { registry, writes, plan_seconds, events, leader, synced, watches, admission }
    }
}

impl Metrics {
    /// Counts one write.
    pub fn write(&self, change: &Change, outcome: &'static str) {
        let kind = change.target().kind.as_str();
        self.writes.get_or_create(&Write { kind, verb: change.verb(), outcome }).inc();
    }

    /// All of it in OpenMetrics.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn text(&self) -> Result<String, core::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Sets what is known at the moment of a look.
    pub fn look(&self, leads: bool, state: &State) {
        self.leader.set(leads.into());
        self.synced.set(state.is_synced().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dashboards and alerts know these names.
    #[test]
    fn names_do_not_change() {
        let metrics = Metrics::default();
        // A family without a member is not shown.
        metrics.writes.get_or_create(&Write { kind: "Vpc", verb: "status", outcome: "done" }).inc();
        let kind = watch::KindLabel { kind: "Vpc" };
        for family in [&metrics.watches.undecodable, &metrics.watches.lists, &metrics.watches.failures] {
            family.get_or_create(&kind).inc();
        }
        metrics.admission.get_or_create(&admission::Labels { kind: "Vpc", verdict: "allowed" }).inc();
        let text = metrics.text().unwrap();
        let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert_eq!(
            names,
            [
                "juneau_operator_writes counter",
                "juneau_operator_plan_seconds histogram",
                "juneau_operator_events counter",
                "juneau_operator_leader gauge",
                "juneau_operator_synced gauge",
                "juneau_operator_undecodable counter",
                "juneau_operator_lists counter",
                "juneau_operator_watch_failures counter",
                "juneau_operator_admission_answers counter",
            ]
        );
    }
}
