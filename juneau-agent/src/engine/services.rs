//! Services as this node's kernel holds them.

use super::Engine;
use super::debug::unreadable;
use crate::protocol::{Backend, ErrorCode, Failure, ServiceFilter, ServicePort, Services};
use juneau_core::layout::{self, FrontendKey, SLOTS, ipv4};
use juneau_core::model::Model;
use juneau_core::tables::{Tables, TablesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

impl Engine {
    pub(super) fn services(&self, filter: &ServiceFilter) -> Result<Services, Failure> {
        let model = self.objects.model();
        let vpc = filter.vpc.as_deref().map(|text| vpc(model, text)).transpose()?;
        let held = self.dataplane()?.tables().map_err(unreadable)?.snapshot().map_err(unreadable)?;
        Ok(Services { services: services(model, &held, vpc) })
    }
}

/// The number of a VPC that somebody typed: its name, or the number itself.
fn vpc(model: &Model, text: &str) -> Result<u32, Failure> {
    let named = model.vpcs.values().find(|vpc| vpc.name == text).map(|vpc| vpc.id.get());
    named.or_else(|| text.parse().ok()).ok_or_else(|| {
        Failure::new(ErrorCode::NotFound, format!("Vpc/{text} is not known"), "give the name or the number of a Vpc")
    })
}

/// Every Service port of a VPC, or of all.
fn services(model: &Model, held: &Tables, vpc: Option<u32>) -> Vec<ServicePort> {
    let mut backends: BTreeMap<u32, Vec<(u32, &layout::Backend)>> = BTreeMap::new();
    for (id, backend) in held.backends.iter() {
        backends.entry(backend.service).or_default().push((*id, backend));
    }
    let names = names(model);
    let is_wanted = |key: &FrontendKey| vpc.is_none_or(|vpc| key.scope == vpc) && key.protocol != 0;
    let wanted = held.frontends.iter().filter(|(key, _)| is_wanted(key));
    let shown = wanted.map(|(key, record)| {
        let slots = (record.base..record.base.saturating_add(record.size)).filter_map(|slot| {
            let line = held.slots.get(&(slot / SLOTS))?;
            line.backend.get(usize::try_from(slot % SLOTS).ok()?).copied()
        });
        let chosen: BTreeSet<u32> = slots.collect();
        let all = backends.get(&record.service).map(Vec::as_slice).unwrap_or_default();
        ServicePort {
            vpc: key.scope,
            address: ipv4(key.address),
            protocol: protocol(key.protocol),
            port: key.port.get(),
            object: names
                .get(&(key.scope, ipv4(key.address), key.protocol, key.port.get()))
                .map(|name| (*name).to_owned()),
            affinity: (record.affinity != 0).then_some(record.affinity),
            local_only: record.flags & layout::FRONTEND_LOCAL_ONLY != 0,
            backends: all.iter().map(|(id, backend)| shown(model, backend, chosen.contains(id))).collect(),
        }
    });
    shown.collect()
}

/// Which Service is met where.
fn names(model: &Model) -> BTreeMap<(u32, Ipv4Addr, u8, u16), &str> {
    let mut names = BTreeMap::new();
    for service in model.services.values() {
        for address in &service.addresses {
            let IpAddr::V4(address) = address else { continue };
            for port in &service.ports {
                names.insert((service.vpc.get(), *address, port.protocol.number(), port.port), service.name.as_str());
            }
        }
    }
    names
}

fn shown(model: &Model, record: &layout::Backend, is_chosen: bool) -> Backend {
    let address = ipv4(record.address);
    let endpoints = model.vpcs.keys().find(|vpc| vpc.get() == record.vpc);
    let endpoint = endpoints.and_then(|vpc| model.endpoints.get(&(*vpc, IpAddr::V4(address))));
    let state = match (is_chosen, record.flags & layout::BACKEND_SERVING != 0) {
        (true, _) => "chosen",
        (false, true) => "serving",
        (false, false) => "ending",
    };
    Backend {
        vpc: record.vpc,
        address,
        port: record.port.get(),
        object: endpoint.map(|endpoint| endpoint.name.clone()),
        state: state.to_owned(),
    }
}

fn protocol(number: u8) -> String {
    match number {
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        132 => "sctp".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use juneau_core::id::VpcId;
    use juneau_core::layout::{Be16, Frontend, Slots, be32};
    use juneau_core::model;
    use std::sync::Arc;

    fn model() -> Model {
        let id = VpcId::new(2).unwrap();
        let vpc = model::Vpc { id, name: "red".into(), origin: String::new() };
        let port = model::ServicePort {
            name: String::new(),
            protocol: model::Protocol::Tcp,
            port: 80,
            backends: BTreeMap::new(),
            internal: model::Choice::default(),
        };
        let service = model::Service {
            name: "red/web".into(),
            vpc: id,
            addresses: [IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10))].into(),
            affinity: None,
            ports: vec![port],
            origin: String::new(),
        };
        let mut model = Model::default();
        model.vpcs.insert(id, vpc);
        model.services.insert(service.name.clone(), Arc::new(service));
        model
    }

    #[test]
    fn backends_are_told_by_what_they_do() {
        let mut held = Tables::default();
        let address = be32(Ipv4Addr::new(10, 96, 0, 10));
        let at = |scope, port, protocol| FrontendKey::new(scope, address, Be16::new(port), protocol);
        let record = Frontend { base: SLOTS, size: 3, service: 7, affinity: 5, ..Frontend::default() };
        held.frontends.insert(at(2, 80, 6), record);
        held.frontends.insert(FrontendKey::of_address(2, address), Frontend::default());
        held.frontends.insert(at(3, 53, 17), Frontend { flags: layout::FRONTEND_LOCAL_ONLY, ..Frontend::default() });
        let mut line = Slots::default();
        line.backend[..3].copy_from_slice(&[1, 1, 1]);
        held.slots.insert(1, line);
        for (id, service, flags) in
            [(1, 7, layout::BACKEND_SERVING), (2, 7, layout::BACKEND_SERVING), (3, 7, 0), (4, 8, 0)]
        {
            let address = be32(Ipv4Addr::new(10, 0, 1, id));
            let backend =
                layout::Backend { service, flags, address, port: Be16::new(8080), vpc: 2, ..Default::default() };
            held.backends.insert(u32::from(id), backend);
        }
        let all = services(&model(), &held, None);
        assert_eq!(all.len(), 2, "an address alone is no port");
        let web = &all[0];
        assert_eq!((web.vpc, web.protocol.as_str(), web.port), (2, "tcp", 80));
        assert_eq!((web.object.as_deref(), web.affinity, web.local_only), (Some("red/web"), Some(5), false));
        let states: Vec<_> =
            web.backends.iter().map(|backend| (backend.address.octets()[3], &*backend.state)).collect();
        assert_eq!(states, [(1, "chosen"), (2, "serving"), (3, "ending")]);
        let dns = &all[1];
        assert_eq!((dns.vpc, dns.protocol.as_str(), dns.object.as_deref(), dns.local_only), (3, "udp", None, true));
        assert!(dns.backends.is_empty());
        assert_eq!(services(&model(), &held, Some(2)), std::slice::from_ref(web));
    }

    #[test]
    fn a_vpc_is_named_or_numbered() {
        assert_eq!((vpc(&model(), "red").unwrap(), vpc(&model(), "77").unwrap()), (2, 77));
        assert_eq!(vpc(&model(), "green").unwrap_err().code, ErrorCode::NotFound);
    }
}
