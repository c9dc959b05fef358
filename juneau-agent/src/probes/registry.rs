//! Which probes there are on this node.

use juneau_api::probes::{Action, CONFIGS, Config, parse};
use juneau_api::view::{Text, Time};
use juneau_core::model::Problem;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, watch};

/// Probes of one Pod that are executed at the same time; more wait. A kubelet asks for each of a Pod's probes once at a
/// time. There is no limit for all Pods together: one tenant's probes that hang must not hold up another's.
const PER_POD: usize = 16;

/// A Pod with probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `namespace/name`.
    pub pod: String,
    /// Its uid.
    pub uid: Text,
    /// When it was made.
    pub created: Option<Time>,
    /// The node's end of its `eth0`.
    pub ifindex: u32,
    /// The address of its `eth0`.
    pub address: Ipv4Addr,
    /// The annotation with its probes.
    pub text: Text,
}

/// Where a Pod is asked.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) target: Target,
    pub(super) slots: Semaphore,
}

/// One probe.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    pub(super) pod: Arc<Asked>,
    pub(super) config: Config,
    pub(super) action: Result<Action, String>,
}

type Known = HashMap<String, Probe>;

/// Finds probes by their tokens. Until it was set once nobody can say what there is.
#[derive(Debug)]
pub struct Registry {
    known: watch::Sender<Option<Arc<Known>>>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    pods: Vec<Arc<Asked>>,
    problems: Vec<Problem>,
    /// Why nobody can ask.
    trouble: Option<Problem>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { known: watch::channel(None).0, last: Mutex::default() }
    }
}

impl Registry {
    /// Takes these Pods for all that there are. What is wrong with their annotations, and with the server.
    pub fn set(&self, mut targets: Vec<Target>) -> Vec<Problem> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Of two Pods with one token the older has it: who copied it knew it from there.
        targets.sort_by(|a, b| (&a.created, &a.uid, &a.pod).cmp(&(&b.created, &b.uid, &b.pod)));
        let same = last.pods.iter().map(|asked| &asked.target).eq(&targets);
        if !same || self.known.borrow().is_none() {
            let mut before: HashMap<String, Arc<Asked>> =
                last.pods.drain(..).map(|asked| (asked.target.pod.clone(), asked)).collect();
            let pods = targets.into_iter().map(|target| match before.remove(&target.pod) {
                Some(asked) if asked.target == target => asked,
                _ => Arc::new(Asked { target, slots: Semaphore::new(PER_POD) }),
            });
            last.pods = pods.collect();
            let (known, problems) = index(&last.pods);
            last.problems = problems;
            self.known.send_replace(Some(Arc::new(known)));
        }
        last.problems.iter().cloned().chain(last.trouble.clone()).collect()
    }

    /// Says why nobody can ask, or that everybody can.
    pub(super) fn tell(&self, trouble: Option<Problem>) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).trouble = trouble;
    }

    /// The probe with this token, once it is known what there is.
    pub(super) async fn find(&self, token: &str) -> Option<Probe> {
        let mut known = self.known.subscribe();
        let known = known.wait_for(Option::is_some).await.ok()?;
        known.as_ref()?.get(token).cloned()
    }
}

fn index(pods: &[Arc<Asked>]) -> (Known, Vec<Problem>) {
    let (mut known, mut problems) = (Known::new(), Vec::new());
    for pod in pods {
        let object = || format!("Pod/{}", pod.target.pod);
        let configs = match parse(&pod.target.text) {
            Ok(configs) => configs,
            Err(error) => {
                let remedy = "make the Pod anew without the annotation, which the operator's webhook writes";
                problems.push(Problem::new(object(), format!("annotation {CONFIGS} {error}"), remedy));
                continue;
            }
        };
        for (token, config) in configs {
            let action = config.action();
            let probe = Probe { pod: Arc::clone(pod), config, action };
            if let Some(older) = known.get(&token) {
                let message = format!(
                    "annotation {CONFIGS} has the token of a probe of Pod {}, which keeps it",
                    older.pod.target.pod
                );
                problems.push(Problem::new(object(), message, "make the Pod anew without the annotation"));
            } else {
                known.insert(token, probe);
            }
        }
    }
    (known, problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn target(pod: &str, age: i64, tokens: &[u8]) -> Target {
        let config = json!({"container": "c", "purpose": "livenessProbe", "action": {"tcpSocket": {"port": 80}}});
        let configs: serde_json::Map<_, _> =
            tokens.iter().map(|token| (format!("{token:032x}"), config.clone())).collect();
        let created: Time = serde_json::from_value(json!(format!("2026-01-01T00:00:{:02}Z", 59 - age))).unwrap();
        Target {
            pod: pod.to_owned(),
            uid: pod.into(),
            created: Some(created),
            ifindex: 7,
            address: Ipv4Addr::new(10, 0, 1, 10),
            text: json!(configs).to_string().as_str().into(),
        }
    }

    async fn of(registry: &Registry, token: u8) -> Option<String> {
        registry.find(&format!("{token:032x}")).await.map(|probe| probe.pod.target.pod.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_of_one_pod() {
        let registry = Registry::default();
        let early = tokio::time::timeout(std::time::Duration::from_secs(1), of(&registry, 1)).await;
        assert!(early.is_err(), "nobody knows yet");
        let problems = registry.set(vec![target("red/copy", 0, &[1, 2]), target("red/a", 9, &[1])]);
        assert_eq!(of(&registry, 1).await.as_deref(), Some("red/a"));
        assert_eq!(of(&registry, 2).await.as_deref(), Some("red/copy"));
        assert_eq!(of(&registry, 3).await, None);
        assert_eq!((problems.len(), &*problems[0].object), (1, "Pod/red/copy"));
        // The same again says the same, and who is gone is gone.
        assert_eq!(registry.set(vec![target("red/a", 9, &[1]), target("red/copy", 0, &[1, 2])]).len(), 1);
        assert_eq!(registry.set(vec![target("red/copy", 0, &[1, 2])]).len(), 0);
        assert_eq!(of(&registry, 1).await.as_deref(), Some("red/copy"));
    }

    #[tokio::test]
    async fn an_annotation_that_cannot_be_read_costs_its_pod_alone() {
        let registry = Registry::default();
        let mut broken = target("red/b", 1, &[2]);
        broken.text = "{".into();
        let problems = registry.set(vec![broken, target("red/a", 0, &[1])]);
        assert_eq!(&*problems[0].object, "Pod/red/b");
        assert_eq!(of(&registry, 1).await.as_deref(), Some("red/a"));
    }

    #[tokio::test]
    async fn slots_of_a_pod_stay_its_own_while_others_come() {
        let registry = Registry::default();
        registry.set(vec![target("red/a", 1, &[1])]);
        let before = registry.find(&format!("{:032x}", 1)).await.unwrap().pod;
        registry.set(vec![target("red/a", 1, &[1]), target("red/b", 0, &[2])]);
        let after = registry.find(&format!("{:032x}", 1)).await.unwrap().pod;
        assert!(Arc::ptr_eq(&before, &after));
    }
}
