//! Services, as far as they say whose they are and to whom they are offered; and VpcEndpoints.

use super::networks::{self, OwnName as _};
use super::{Denial, Operation, Request, Verdict, Versions, is_deleting};
use crate::plan::Config;
use crate::view::{Kind, View};
use juneau_api::access::may_enter;
use juneau_api::access::services::provides;
use juneau_api::annotations::{
    ALLOWED_CONSUMERS, SERVICE_KEYS, SHARED_SERVICE, ServiceOffer, VPC, service as offer_of,
};
use juneau_api::kinds::{Vpc, VpcEndpoint};
use juneau_api::names::DEFAULT;
use juneau_api::view::ObjectName;
use k8s_openapi::api::core::v1::Service;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn service(view: &View, config: &Config, request: &Request) -> Verdict {
    if request.operation == Operation::Delete {
        return Ok(Vec::new());
    }
    let versions = Versions::<Service>::of(request)?;
    let Some(new) = versions.new.filter(|new| !is_deleting(&new.metadata)) else { return Ok(Vec::new()) };
    let none = BTreeMap::new();
    let annotations = new.metadata.annotations.as_ref().unwrap_or(&none);
    // What is there already must not keep somebody from changing anything else.
    if let Some(old) = &versions.old {
        let before = old.metadata.annotations.as_ref().unwrap_or(&none);
        if SERVICE_KEYS.iter().all(|key| before.get(*key) == annotations.get(*key)) {
            return Ok(Vec::new());
        }
    }
    let what = format!("Service {}/{}", request.namespace, request.name);
    let offer = offer_of(annotations).map_err(|error| Denial::firm(format!("{what}: {error}")))?;
    let vpc = match view.vpcs.get(&offer.vpc) {
        // Before the operator made it, at the very start.
        None if offer.vpc == DEFAULT => return Ok(Vec::new()),
        None => {
            let message = format!("{what}: annotation {VPC}: Vpc {} does not exist; create it first", offer.vpc);
            return Err(Denial::of_missing(Kind::Vpc, &offer.vpc, message));
        }
        Some(vpc) => vpc,
    };
    if vpc.spec.service.is_none() {
        return Err(Denial::of_others(format!(
            "{what}: Vpc {} routes no Services; set its spec.service first, or name another Vpc in {VPC}",
            offer.vpc
        )));
    }
    let namespace = view.namespaces.get(&request.namespace);
    let labels = namespace.and_then(|namespace| namespace.metadata.labels.as_ref()).unwrap_or(&none);
    may_enter(vpc, &request.namespace, labels, config.require_namespace_binding).map_err(|refused| {
        let message = format!("{what}: {refused}");
        // One that was made a moment ago has labels that nobody here has seen.
        match namespace {
            Some(_) => Denial::of_others(message),
            None => Denial::of_missing(Kind::Namespace, &request.namespace, message),
        }
    })?;
    sharing(view, &what, vpc, &offer)?;
    Ok(Vec::new())
}

/// Whether a Service can be offered to those that it names.
fn sharing(view: &View, what: &str, vpc: &Vpc, offer: &ServiceOffer) -> Result<(), Denial> {
    if !offer.shared {
        return Ok(());
    }
    if !provides(vpc) {
        return Err(Denial::of_others(format!(
            "{what}: annotation {SHARED_SERVICE}: Vpc {} provides no Services to others; set its \
             spec.service.provider first",
            offer.vpc
        )));
    }
    for name in offer.consumers.iter().flatten() {
        let place = format!("{what}: annotation {ALLOWED_CONSUMERS}: Vpc {name}");
        let Some(consumer) = view.vpcs.get(name) else {
            let message = format!("{place} does not exist; create it first, or leave it out");
            return Err(Denial::of_missing(Kind::Vpc, name, message));
        };
        if consumer.spec.service.as_ref().is_none_or(|service| !service.consume) {
            return Err(Denial::of_others(format!(
                "{place} does not consume Services; set its spec.service.consume first, or leave it out"
            )));
        }
    }
    Ok(())
}

pub(super) fn vpc_endpoint(view: &View, request: &Request) -> Verdict {
    if request.operation == Operation::Delete {
        return Ok(Vec::new());
    }
    let versions = Versions::<VpcEndpoint>::of(request)?;
    let Some(new) = versions.new.filter(|new| !is_deleting(&new.metadata)) else { return Ok(Vec::new()) };
    if versions.old.as_ref().is_some_and(|old| old.spec == new.spec) {
        return Ok(Vec::new());
    }
    let what = format!("VpcEndpoint {}", request.name);
    if versions.old.is_none() {
        let vpc: &Arc<Vpc> = networks::owner(view, &what, &new.spec.vpc)?;
        if vpc.spec.endpoint_pool.is_none() {
            return Err(Denial::of_others(format!(
                "{what}: Vpc {} has no endpointPool; set its spec.endpointPool.cidrs first",
                vpc.own_name()
            )));
        }
    }
    let service = &new.spec.service;
    let which = ObjectName::new(service.namespace.as_str(), service.name.as_str());
    if view.services.contains_key(&which) {
        return Ok(Vec::new());
    }
    Ok(vec![format!("{what}: Service {which} does not exist; the address does not answer until it does")])
}
