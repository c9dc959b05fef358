//! Reads what a report is made of: lists side by side, in pages, and what may not be read is remembered.

use crate::client::{Session, classify};
use crate::error::CliError;
use crate::snapshot::{AGENT, Hidden, LEASE, Probe, Snapshot, Undecodable, WEBHOOK, What};
use juneau_api::kinds;
use juneau_api::view::ObjectName;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

/// Objects a page.
const PAGE: u32 = 500;
/// Objects of a kind at most.
const MOST: usize = 100_000;

/// What to read.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The kinds.
    pub kinds: BTreeSet<What>,
    /// The only namespace of kinds that have one. Absent: all.
    pub namespace: Option<String>,
    /// Namespace of the operator and the agents.
    pub system_namespace: String,
    /// A Pod all of whose Events are read, not only Juneau's.
    pub pod: Option<String>,
    /// Asks the webhook, by a creation that is never carried out, if that is allowed.
    pub probe: bool,
}

/// What came of one list.
struct Listed<T> {
    items: Vec<(ObjectName, T)>,
    undecodable: Vec<Undecodable>,
    read: bool,
    missing: bool,
    hidden: Vec<Hidden>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), undecodable: Vec::new(), read: false, missing: false, hidden: Vec::new() }
    }
}

/// Reads all that is wanted.
///
/// # Errors
/// When the API server does not answer, does not know who asks, or has none of Juneau's kinds. What may not be read is
/// no error.
pub async fn fetch(session: &Session, wanted: &Wanted) -> Result<Snapshot> {
    let fetcher = Fetcher { session, wanted };
    let (own, others, single) = tokio::try_join!(fetcher.own(), fetcher.others(), fetcher.single())?;
    let (vpcs, subnets, route_tables, interfaces, endpoints, nat_attachments, vpc_endpoints, pools, claims, leases) =
        own;
    let (namespaces, nodes, pods, agents, events) = others;
    let (lease, webhook, probe) = single;
    let mut snapshot = Snapshot {
        now: session.now,
        namespace: wanted.namespace.clone(),
        system_namespace: wanted.system_namespace.clone(),
        probe,
        ..Snapshot::default()
    };
    let mut missing = 0;
    macro_rules! take {
        ($($what:ident $list:ident $key:expr;)*) => {
            $(
                let $list = note(&mut snapshot, &mut missing, What::$what, $list);
                snapshot.$list = $list.into_iter().map($key).collect();
            )*
        };
    }
    take! {
        Vpc vpcs |(name, object)| (name.name, object);
        Subnet subnets |(name, object)| (name.name, object);
        RouteTable route_tables |(name, object)| (name.name, object);
        NetworkInterface interfaces |pair| pair;
        NetworkEndpoint endpoints |pair| pair;
        ServiceNATAttachment nat_attachments |(name, object)| (name.name, object);
        VpcEndpoint vpc_endpoints |(name, object)| (name.name, object);
        AllocationPool pools |(name, object)| (name.name, object);
        AllocationClaim claims |(name, object)| (name.name, object);
        AllocationLease leases |(name, object)| (name.name, object);
        Namespace namespaces |(name, object)| (name.name, object);
        Node nodes |(name, object)| (name.name, object);
        Pod pods |pair| pair;
        Agent agents |pair| pair;
    }
    // Several lists make the Events.
    let mut unique = BTreeMap::new();
    for list in events {
        let items = note(&mut snapshot, &mut missing, What::Event, list);
        unique.extend(items.into_iter().map(|(_, event)| (event.metadata.uid.clone().unwrap_or_default(), event)));
    }
    snapshot.events = unique.into_values().collect();
    for (what, seen) in [(What::Lease, lease.hidden()), (What::Webhook, webhook.hidden())] {
        match seen {
            Some(hidden) => snapshot.hidden.push(hidden.clone()),
            None if wanted.kinds.contains(&what) => drop(snapshot.read.insert(what)),
            None => {}
        }
    }
    (snapshot.lease, snapshot.webhook) = (lease.object(), webhook.object());
    let own = wanted.kinds.iter().filter(|what| What::OWN.contains(what)).count();
    if missing > 0 && missing == own {
        return Err(CliError::NoDefinitions { server: session.server.clone() });
    }
    snapshot.hidden.sort();
    snapshot.hidden.dedup();
    Ok(snapshot)
}

/// Notes what came of a list, and gives what is in it.
fn note<T>(snapshot: &mut Snapshot, missing: &mut usize, what: What, list: Listed<T>) -> Vec<(ObjectName, T)> {
    if list.read {
        snapshot.read.insert(what);
    }
    *missing += usize::from(list.missing);
    snapshot.hidden.extend(list.hidden);
    snapshot.undecodable.extend(list.undecodable);
    list.items
}

/// One object, if there is one and it may be read.
enum One<T> {
    Hidden(Hidden),
    Read(Option<T>),
}

impl<T> One<T> {
    fn hidden(&self) -> Option<&Hidden> {
        match self {
            Self::Hidden(hidden) => Some(hidden),
            Self::Read(_) => None,
        }
    }

    fn object(self) -> Option<T> {
        match self {
            Self::Hidden(_) => None,
            Self::Read(object) => object,
        }
    }
}

struct Fetcher<'f> {
    session: &'f Session,
    wanted: &'f Wanted,
}

type Result<T> = core::result::Result<T, CliError>;

impl Fetcher<'_> {
    fn client(&self) -> Client {
        self.session.client.clone()
    }

    fn is_wanted(&self, what: What) -> bool {
        self.wanted.kinds.contains(&what)
    }

    async fn own(
        &self,
    ) -> Result<(
        Listed<kinds::Vpc>,
        Listed<kinds::Subnet>,
        Listed<kinds::RouteTable>,
        Listed<kinds::NetworkInterface>,
        Listed<kinds::NetworkEndpoint>,
        Listed<kinds::ServiceNATAttachment>,
        Listed<kinds::VpcEndpoint>,
        Listed<kinds::AllocationPool>,
        Listed<kinds::AllocationClaim>,
        Listed<kinds::AllocationLease>,
    )> {
        tokio::try_join!(
            self.list(What::Vpc, false),
            self.list(What::Subnet, false),
            self.list(What::RouteTable, false),
            self.list(What::NetworkInterface, true),
            self.list(What::NetworkEndpoint, true),
            self.list(What::ServiceNATAttachment, false),
            self.list(What::VpcEndpoint, false),
            self.list(What::AllocationPool, false),
            self.list(What::AllocationClaim, false),
            self.list(What::AllocationLease, false),
        )
    }

    async fn others(&self) -> Result<(Listed<Namespace>, Listed<Node>, Listed<Pod>, Listed<Pod>, Vec<Listed<Event>>)> {
        let agents = async {
            if !self.is_wanted(What::Agent) {
                return Ok(Listed::default());
            }
            let namespace = self.wanted.system_namespace.as_str();
            let parameters = ListParams::default().labels(&format!("app.kubernetes.io/name={AGENT}"));
            self.list_in(What::Agent, Some(namespace), &parameters).await
        };
        tokio::try_join!(
            self.list(What::Namespace, false),
            self.list(What::Node, false),
            self.list(What::Pod, true),
            agents,
            self.events(),
        )
    }

    /// Events about Juneau's objects, those that the operator sends about others, and those of one Pod.
    async fn events(&self) -> Result<Vec<Listed<Event>>> {
        if !self.is_wanted(What::Event) {
            return Ok(Vec::new());
        }
        let mut selectors = vec![
            format!("involvedObject.apiVersion={}", kinds::API_VERSION),
            "reportingComponent=juneau.loutres.me/operator".to_owned(),
        ];
        if let Some(pod) = &self.wanted.pod {
            selectors.push(format!("involvedObject.kind=Pod,involvedObject.name={pod}"));
        }
        let lists = selectors.iter().map(|selector| {
            let parameters = ListParams::default().fields(selector);
            async move { self.scoped(What::Event, &parameters).await }
        });
        futures::future::try_join_all(lists).await
    }

    async fn single(&self) -> Result<(One<Lease>, One<ValidatingWebhookConfiguration>, Option<Probe>)> {
        let namespace = self.wanted.system_namespace.as_str();
        let lease = async {
            let api: Api<Lease> = Api::namespaced(self.client(), namespace);
            self.one(What::Lease, api.get_opt(LEASE)).await
        };
        let webhook = async {
            let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client());
            self.one(What::Webhook, api.get_opt(WEBHOOK)).await
        };
        let probe = async {
            let probe = self.wanted.probe.then(|| self.probe());
            match probe {
                Some(probe) => probe.await.map(Some),
                None => Ok(None),
            }
        };
        tokio::try_join!(lease, webhook, probe)
    }

    async fn one<T>(&self, what: What, answer: impl Future<Output = kube::Result<Option<T>>>) -> Result<One<T>> {
        if !self.is_wanted(what) {
            return Ok(One::Read(None));
        }
        match self.session.try_within(answer).await? {
            Ok(object) => Ok(One::Read(object)),
            Err(error) => self.refused(what, "", &error).map(One::Hidden),
        }
    }

    /// What a refusal means for the report.
    fn refused(&self, what: What, place: &str, error: &kube::Error) -> Result<Hidden> {
        match error {
            kube::Error::Api(status) if status.code == 403 => {
                let verb = if matches!(what, What::Lease | What::Webhook) { "get" } else { "list" };
                Ok(Hidden { what, why: format!("may not {verb} {}{place}", what.plural()), failed: false })
            }
            kube::Error::Api(status) if status.code != 401 => {
                let why = format!("could not read {}{place}: {}", what.plural(), status.message);
                Ok(Hidden { what, why, failed: true })
            }
            error => Err(classify(&self.session.server, error)),
        }
    }

    /// All objects of a kind, or those of the namespace that is wanted.
    async fn list<T>(&self, what: What, namespaced: bool) -> Result<Listed<T>>
    where
        T: DeserializeOwned + Resource<DynamicType = ()>,
    {
        if !self.is_wanted(what) {
            return Ok(Listed::default());
        }
        if namespaced {
            self.scoped(what, &ListParams::default()).await
        } else {
            self.list_in(what, None, &ListParams::default()).await
        }
    }

    /// Of a kind that has namespaces: who may not read all of them is shown the context's.
    async fn scoped<T>(&self, what: What, parameters: &ListParams) -> Result<Listed<T>>
    where
        T: DeserializeOwned + Resource<DynamicType = ()>,
    {
        let namespace = self.wanted.namespace.as_deref();
        let whole = self.list_in(what, namespace, parameters).await?;
        let is_refused = !whole.read && whole.hidden.iter().any(|hidden| !hidden.failed);
        if namespace.is_some() || !is_refused {
            return Ok(whole);
        }
        let own = self.session.namespace.as_str();
        let mut part = self.list_in(what, Some(own), parameters).await?;
        if part.read {
            let why = format!("may not list {} in all Namespaces: those of {own} are shown", what.plural());
            part.hidden.push(Hidden { what, why, failed: false });
        }
        Ok(part)
    }

    async fn list_in<T>(&self, what: What, namespace: Option<&str>, parameters: &ListParams) -> Result<Listed<T>>
    where
        T: DeserializeOwned + Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<T>(&());
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        };
        let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        let mut listed = Listed::default();
        let mut parameters = parameters.clone().limit(PAGE);
        loop {
            let page = match self.session.try_within(api.list(&parameters)).await? {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    listed.missing = What::OWN.contains(&what);
                    let why = format!("the cluster has no definition of {what}");
                    listed.hidden.push(Hidden { what, why, failed: false });
                    return Ok(listed);
                }
                Err(error) => {
                    listed.hidden.push(self.refused(what, &place, &error)?);
                    return Ok(listed);
                }
            };
            for object in page.items {
                let name = ObjectName::new(object.namespace().unwrap_or_default(), object.name_any());
                let read = serde_json::to_value(object).and_then(serde_json::from_value);
                match read {
                    Ok(object) => listed.items.push((name, object)),
                    Err(error) => listed.undecodable.push(Undecodable { what, name, error: error.to_string() }),
                }
            }
            listed.read = true;
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            let Some(token) = next else { return Ok(listed) };
            if listed.items.len() >= MOST {
                let why = format!("only the first {MOST} {} were read", what.plural());
                listed.hidden.push(Hidden { what, why, failed: false });
                return Ok(listed);
            }
            parameters = parameters.continue_token(&token);
        }
    }

    /// Whether the webhook answers: a Vpc is created in a dry run, which nothing is left of, by whoever may create one.
    async fn probe(&self) -> Result<Probe> {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(kinds::GROUP.to_owned()),
                    resource: Some("vpcs".to_owned()),
                    verb: Some("create".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client());
        let answer = self.session.try_within(reviews.create(&PostParams::default(), &review)).await?;
        if !answer.is_ok_and(|review| review.status.is_some_and(|status| status.allowed)) {
            return Ok(Probe::NotAsked("only who may create Vpcs can ask it".to_owned()));
        }
        let vpcs: Api<kinds::Vpc> = Api::all(self.client());
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let vpc = kinds::Vpc::new("kubectl-juneau-status", kinds::VpcSpec::default());
        Ok(match self.session.try_within(vpcs.create(&dry, &vpc)).await? {
            Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => {
                Probe::Silent(status.message.clone())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Probe::NotAsked("there is no definition of Vpc".to_owned())
            }
            Ok(_) | Err(kube::Error::Api(_)) => Probe::Answers,
            Err(error) => return Err(classify(&self.session.server, &error)),
        })
    }
}
