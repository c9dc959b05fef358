//! Who may call which Service.
//!
//! One function for a Service's own addresses ([`allowed`]) and one for a VpcEndpoint in front of it ([`accepted`]). The
//! data path, DNS, admission and the operator ask these and nothing else.

use crate::annotations::ServiceOffer;
use crate::kinds::{Vpc, reason};
use core::net::Ipv4Addr;

/// How a caller reaches a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Inside the Vpc that owns it: its backends see the caller's address.
    Own,
    /// From another Vpc: its backends see the address that the caller's node has for the owner Vpc (ServiceNATAttachment).
    Shared,
}

/// Why a Service may not be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Forbidden {
    /// The caller's Vpc has no Service routing at all.
    #[error("the caller's Vpc has no spec.service")]
    NoServices,
    /// The Service is another Vpc's and not offered to others.
    #[error("the Service is of another Vpc and not shared")]
    NotShared,
    /// The Service is offered, but its Vpc provides none.
    #[error("the Service's Vpc has no spec.service.provider")]
    NotAProvider,
    /// The caller's Vpc does not call Services of others.
    #[error("the caller's Vpc does not consume shared Services")]
    NotAConsumer,
    /// The Service is offered to some Vpcs, and the caller's is none of them.
    #[error("the caller's Vpc is not among those that the Service is offered to")]
    NotListed,
}

/// Whether Pods of the Vpc `caller` may call a Service by its ClusterIP or an external address, and how. `owner` is the Vpc
/// that the offer names.
///
/// In this order: without `spec.service` of the caller nothing; in the owner everything; else the Service has to be
/// shared, the owner a provider, the caller a consumer, and on the list if there is one.
///
/// # Errors
/// Why not.
pub fn allowed(caller: &Vpc, service: &ServiceOffer, owner: &Vpc) -> Result<Way, Forbidden> {
    let Some(calls) = &caller.spec.service else { return Err(Forbidden::NoServices) };
    let caller = caller.metadata.name.as_deref().unwrap_or_default();
    if caller == service.vpc {
        return Ok(Way::Own);
    }
    if !service.shared {
        return Err(Forbidden::NotShared);
    }
    if !provides(owner) {
        return Err(Forbidden::NotAProvider);
    }
    if !calls.consume {
        return Err(Forbidden::NotAConsumer);
    }
    match &service.consumers {
        Some(listed) if !listed.contains(caller) => Err(Forbidden::NotListed),
        _ => Ok(Way::Shared),
    }
}

/// Whether a Vpc provides Services to others.
#[must_use]
pub fn provides(vpc: &Vpc) -> bool {
    vpc.spec.service.as_ref().is_some_and(|service| service.provider.is_some())
}

/// Why a VpcEndpoint may not lead to its Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NotAccepted {
    /// The Service has no IPv4 address: it is headless, or a name for something outside.
    #[error("the Service has no IPv4 ClusterIP")]
    ClusterIpUnavailable,
    /// The Service's Vpc does not exist.
    #[error("the Service's Vpc does not exist")]
    VpcNotFound,
    /// The Service's Vpc has no Service routing.
    #[error("the Service's Vpc has no spec.service")]
    RoutingDisabled,
    /// The Service is another Vpc's, which provides none.
    #[error("the Service's Vpc is another one and has no spec.service.provider")]
    NotAProvider,
}

impl NotAccepted {
    /// The reason of the condition ServiceAccepted.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ClusterIpUnavailable => reason::CLUSTER_IP_UNAVAILABLE,
            Self::VpcNotFound => reason::SERVICE_VPC_NOT_FOUND,
            Self::RoutingDisabled => reason::SERVICE_ROUTING_DISABLED,
            Self::NotAProvider => reason::NOT_A_SERVICE_PROVIDER,
        }
    }
}

/// Whether a VpcEndpoint of the Vpc `caller` may lead to a Service, and how. It takes neither that the Service is shared
/// nor that the caller consumes Services, and the list of consumers is not asked: whoever makes the endpoint decides.
/// `owner` is the Vpc that the offer names, as far as it exists; `cluster_ip` the Service's IPv4 address, if it has one.
///
/// # Errors
/// Why not.
pub fn accepted(
    caller: &str,
    service: &ServiceOffer,
    cluster_ip: Option<Ipv4Addr>,
    owner: Option<&Vpc>,
) -> Result<Way, NotAccepted> {
    if cluster_ip.is_none() {
        return Err(NotAccepted::ClusterIpUnavailable);
    }
    let owner = owner.ok_or(NotAccepted::VpcNotFound)?;
    if owner.spec.service.is_none() {
        return Err(NotAccepted::RoutingDisabled);
    }
    if caller == service.vpc {
        return Ok(Way::Own);
    }
    if provides(owner) { Ok(Way::Shared) } else { Err(NotAccepted::NotAProvider) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn vpc(name: &str, service: Value) -> Vpc {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"service": service}})).unwrap()
    }

    fn offer(vpc: &str, shared: bool, consumers: Option<&[&str]>) -> ServiceOffer {
        let consumers = consumers.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        ServiceOffer { vpc: vpc.to_owned(), shared, consumers }
    }

    const NONE: Value = Value::Null;

    #[test]
    fn who_may_call_which_service() {
        let (on, consumes) = (json!({}), json!({"consume": true}));
        let provides = json!({"provider": {"natSourceSubnet": "n"}});
        let both = json!({"consume": true, "provider": {"natSourceSubnet": "n"}});
        let (own, shared) = (Ok(Way::Own), Ok(Way::Shared));
        for (caller, caller_has, owner_has, is_shared, list, expected) in [
            // No Service routing at the caller: nothing at all, its own neither.
            ("red", &NONE, &NONE, false, None, Err(Forbidden::NoServices)),
            ("blue", &NONE, &provides, true, None, Err(Forbidden::NoServices)),
            // Its own: no switch is needed, whatever the Service says.
            ("red", &on, &on, false, None, own),
            ("red", &consumes, &consumes, false, None, own),
            ("red", &provides, &provides, true, Some(["blue"].as_slice()), own),
            // Another's, not shared.
            ("blue", &consumes, &provides, false, None, Err(Forbidden::NotShared)),
            ("blue", &on, &on, false, None, Err(Forbidden::NotShared)),
            // Shared, but the owner is no provider.
            ("blue", &consumes, &consumes, true, None, Err(Forbidden::NotAProvider)),
            ("blue", &consumes, &NONE, true, None, Err(Forbidden::NotAProvider)),
            // Shared by a provider, but the caller does not consume.
            ("blue", &on, &provides, true, None, Err(Forbidden::NotAConsumer)),
            ("blue", &provides, &provides, true, None, Err(Forbidden::NotAConsumer)),
            ("blue", &on, &provides, true, Some(["blue"].as_slice()), Err(Forbidden::NotAConsumer)),
            // A list without the caller.
            ("blue", &consumes, &provides, true, Some(["green"].as_slice()), Err(Forbidden::NotListed)),
            ("blue", &consumes, &provides, true, Some([].as_slice()), Err(Forbidden::NotListed)),
            // All three switches.
            ("blue", &consumes, &provides, true, None, shared),
            ("blue", &both, &both, true, None, shared),
            ("blue", &consumes, &provides, true, Some(["green", "blue"].as_slice()), shared),
        ] {
            let service = offer("red", is_shared, list);
            let verdict = allowed(&vpc(caller, caller_has.clone()), &service, &vpc("red", owner_has.clone()));
            assert_eq!(verdict, expected, "{caller} {caller_has} to {owner_has}, {is_shared} {list:?}");
        }
    }

    #[test]
    fn an_endpoint_needs_routing_at_the_owner_and_a_provider_across_vpcs() {
        let on = json!({});
        let provides = json!({"provider": {"natSourceSubnet": "n"}});
        let address = Some(Ipv4Addr::new(10, 96, 0, 9));
        for (caller, owner_has, cluster_ip, expected) in [
            ("red", Some(&on), address, Ok(Way::Own)),
            ("red", Some(&NONE), address, Err(NotAccepted::RoutingDisabled)),
            ("blue", Some(&on), address, Err(NotAccepted::NotAProvider)),
            ("blue", Some(&NONE), address, Err(NotAccepted::RoutingDisabled)),
            ("blue", Some(&provides), address, Ok(Way::Shared)),
            ("blue", None, address, Err(NotAccepted::VpcNotFound)),
            ("blue", Some(&provides), None, Err(NotAccepted::ClusterIpUnavailable)),
            ("red", Some(&on), None, Err(NotAccepted::ClusterIpUnavailable)),
        ] {
            let owner = owner_has.map(|has| vpc("red", has.clone()));
            // Whether it is shared, and with whom, is not asked.
            for service in [offer("red", false, None), offer("red", true, Some(&["green"]))] {
                assert_eq!(accepted(caller, &service, cluster_ip, owner.as_ref()), expected, "{caller} {owner_has:?}");
            }
        }
        let reasons: Vec<_> = [
            NotAccepted::ClusterIpUnavailable,
            NotAccepted::VpcNotFound,
            NotAccepted::RoutingDisabled,
            NotAccepted::NotAProvider,
        ]
        .map(NotAccepted::reason)
        .into();
        assert_eq!(
            reasons,
            ["ClusterIPUnavailable", "ServiceVpcNotFound", "ServiceRoutingDisabled", "NotAServiceProvider"]
        );
    }
}
