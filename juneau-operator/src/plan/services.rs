//! Services: what is wrong with what they ask for, and the external addresses that are routed for them.

use super::Target;
use super::networks::{Networks, overlap};
use super::planner::{Planner, few};
use crate::view::{Kind, Object, Service};
use core::net::Ipv4Addr;
use ipnet::Ipv4Net;
use juneau_api::access::services::provides;
use juneau_api::annotations::ServiceOffer;
use juneau_api::kinds::{Vpc, reason};
use juneau_api::view::ObjectName;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// External addresses of Services, by the Vpc that owns these.
pub(super) type Externals<'v> = HashMap<&'v str, BTreeSet<Ipv4Addr>>;

/// What is wrong with a Service: reason and message.
type Wrong = (&'static str, String);

impl<'v> Planner<'v> {
    /// Says what cannot be met of what Services ask for. What is left of it: their external addresses.
    pub(super) fn services(&mut self, networks: &Networks<'v>) -> Externals<'v> {
        let mut externals = Externals::new();
        for (name, service) in self.view.notable_services.iter() {
            if service.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let mut wrong = Vec::new();
            if let Some((vpc, offer)) = self.owner_of(name, service, &mut wrong) {
                self.sharing(vpc, offer, &mut wrong);
                let addresses = service.external_ips.iter().filter(|address| {
                    let why = self.stands_against(**address, &offer.vpc, networks);
                    wrong.extend(why.map(|why| {
                        let message = format!("spec.externalIPs: {address} {why}; it is not routed, name another");
                        (reason::INVALID_EXTERNAL_IP, message)
                    }));
                    why.is_none()
                });
                let addresses: Vec<Ipv4Addr> = addresses.copied().collect();
                if !addresses.is_empty() {
                    externals.entry(offer.vpc.as_str()).or_default().extend(addresses);
                }
            }
            for (reason, message) in wrong {
                self.warn(Target::of(&Object::Service(Arc::clone(service))), reason, message);
            }
        }
        externals
    }

    /// The Vpc of a Service, if it exists, routes Services, and lets the Service's Namespace in.
    fn owner_of<'a>(
        &self,
        name: &ObjectName,
        service: &'a Service,
        wrong: &mut Vec<Wrong>,
    ) -> Option<(&'v Arc<Vpc>, &'a ServiceOffer)> {
        let offer = match &service.offer {
            Ok(offer) => offer,
            Err(error) => {
                wrong.push((reason::INVALID_ANNOTATION, error.to_string()));
                return None;
            }
        };
        let own = &offer.vpc;
        let Some(vpc) = self.view.vpcs.get(own) else {
            if !self.is_unreadable(Kind::Vpc, "", own) {
                wrong.push((reason::VPC_NOT_FOUND, format!("Vpc/{own} does not exist; create it, or name another")));
            }
            return None;
        };
        if vpc.spec.service.is_none() {
            let message = format!("Vpc/{own} routes no Services; set its spec.service, or name another Vpc");
            wrong.push((reason::SERVICE_ROUTING_DISABLED, message));
            return None;
        }
        if let Err(refused) = self.namespace_may_enter(&name.namespace, vpc) {
            wrong.push((reason::NAMESPACE_NOT_ALLOWED, refused));
            return None;
        }
        Some((vpc, offer))
    }

    /// What stands against offering a Service to others.
    fn sharing(&self, vpc: &Vpc, offer: &ServiceOffer, wrong: &mut Vec<Wrong>) {
        if !offer.shared {
            return;
        }
        if !provides(vpc) {
            let message = format!(
                "it is shared, but Vpc/{} provides no Services to others; set its spec.service.provider",
                offer.vpc
            );
            wrong.push((reason::NOT_A_SERVICE_PROVIDER, message));
        }
        let consumes = |name: &str| {
            let vpc = self.view.vpcs.get(name);
            vpc.is_some_and(|vpc| vpc.spec.service.as_ref().is_some_and(|service| service.consume))
        };
        let deaf = offer.consumers.iter().flatten().filter(|name| **name != offer.vpc && !consumes(name));
        let deaf: Vec<String> = deaf.map(|name| format!("Vpc/{name}")).collect();
        if !deaf.is_empty() {
            let message = format!(
                "it is offered to {}, which does not exist or does not consume Services; set spec.service.consume there",
                few(&deaf)
            );
            wrong.push((reason::CONSUMER_UNAVAILABLE, message));
        }
    }

    /// Why an external address cannot be routed to Services of a Vpc.
    fn stands_against(&self, address: Ipv4Addr, vpc: &str, networks: &Networks<'v>) -> Option<&'static str> {
        let one = Ipv4Net::from(address);
        let subnets = networks.of_vpc.get(vpc).into_iter().flatten();
        let mut prefixes = subnets.filter_map(|subnet| networks.subnets.get(subnet.metadata.name.as_deref()?));
        if address.is_unspecified() || address.is_loopback() || address.is_link_local() || address.is_multicast() {
            Some("is no address of one host")
        } else if prefixes.any(|prefix| prefix.contains(&address)) {
            Some("is one of a Subnet of the Vpc")
        } else if networks.endpoints.get(vpc).into_iter().flatten().any(|pool| overlap(*pool, one)) {
            Some("is one of the Vpc's endpointPool")
        } else {
            None
        }
    }
}
