//! The annotation `networks`: a JSON array with an element for each interface.

use super::{AnnotationError, InterfaceRequest, NETWORKS, NetworkRef, Source, address, object_name, security_groups};
use crate::names;
use serde::Deserialize;
use serde_json::error::Category;
use serde_path_to_error::Segment;

/// Most interfaces of a Pod.
pub const MAX_INTERFACES: usize = 32;

/// An element as it is written. Absent and `null` are alike, as in Go.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Element {
    interface: Option<String>,
    subnet: Option<String>,
    l2_network: Option<String>,
    #[serde(rename = "elasticIP")]
    elastic_ip: Option<String>,
    address: Option<String>,
    security_groups: Option<Vec<String>>,
}

fn error(message: impl Into<String>, remedy: impl Into<String>) -> AnnotationError {
    AnnotationError::new(NETWORKS, message, remedy)
}

/// The elements, in their order.
pub(super) fn parse(text: &str) -> Result<Vec<InterfaceRequest>, AnnotationError> {
    let example = r#"write an array, as in [{"interface":"eth1","subnet":"red-b"}]"#;
    let mut track = serde_path_to_error::Track::new();
    let mut json = serde_json::Deserializer::from_str(text);
    let elements: Vec<Element> = Vec::deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track))
        .and_then(|elements| json.end().map(|()| elements))
        .map_err(|e| match (e.classify(), track.path().iter().next()) {
            (Category::Data, Some(Segment::Seq { index })) => error(
                describe(&e),
                "an element has interface, one of subnet, l2Network and elasticIP, and may have address and securityGroups",
            )
            .at(*index),
            (Category::Data, _) => error("is not a JSON array", example),
            _ => error(format!("is not JSON: {e}"), example),
        })?;
    if elements.len() > MAX_INTERFACES {
        return Err(error(format!("has {} interfaces", elements.len()), format!("ask for at most {MAX_INTERFACES}")));
    }
    let mut requests = Vec::with_capacity(elements.len());
    for (index, element) in elements.into_iter().enumerate() {
        let request = request(element)
            .and_then(|request| {
                let mut earlier = requests.iter();
                if earlier.any(|other: &InterfaceRequest| other.interface == request.interface) {
                    return Err(error(
                        format!("interface {} is there twice", request.interface),
                        "give each element an interface of its own",
                    ));
                }
                elastic_ip_once(&request, &requests)?;
                Ok(request)
            })
            .map_err(|error| error.at(index))?;
        requests.push(request);
    }
    Ok(requests)
}

/// What serde says, without the place inside the element, which nobody could find in the annotation.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text[..end].to_owned()
}

fn request(element: Element) -> Result<InterfaceRequest, AnnotationError> {
    let Element { interface, subnet, l2_network, elastic_ip, address: wish, security_groups: groups } = element;
    let interface = interface.unwrap_or_default();
    if !names::is_label(&interface) || interface.len() > names::INTERFACE_MAX || interface == "lo" {
        return Err(error(
            format!("interface {interface:?} is not a name that an interface can have"),
            format!("use at most {} lower-case letters, digits and '-', and not lo", names::INTERFACE_MAX),
        ));
    }
    // A network with an empty name is as good as none, as in Go.
    let filled = |name: Option<String>| name.filter(|name| !name.is_empty());
    let network = match (filled(subnet), filled(l2_network), filled(elastic_ip)) {
        (Some(name), None, None) => NetworkRef::Subnet(object_name(NETWORKS, "a Subnet", &name)?),
        (None, Some(name), None) => NetworkRef::L2Network(object_name(NETWORKS, "an L2Network", &name)?),
        (None, None, Some(name)) => NetworkRef::ElasticIp(object_name(NETWORKS, "an ElasticIP", &name)?),
        (None, None, None) => {
            return Err(error(
                format!("interface {interface} is in no network"),
                "set one of subnet, l2Network and elasticIP",
            ));
        }
        _ => {
            return Err(error(
                format!("interface {interface} is in several networks"),
                "set exactly one of subnet, l2Network and elasticIP",
            ));
        }
    };
    let wish = filled(wish);
    let groups = groups.unwrap_or_default();
    if let NetworkRef::ElasticIp(_) = network {
        let extra = [("address", wish.is_some()), ("securityGroups", !groups.is_empty())];
        if let Some((member, _)) = extra.into_iter().find(|(_, is_there)| *is_there) {
            return Err(error(
                format!("interface {interface} has {member} beside elasticIP"),
                format!("remove {member}, or name a Subnet instead of the ElasticIP"),
            ));
        }
    }
    let address = wish.map(|text| address(NETWORKS, &text)).transpose()?;
    let security_groups = security_groups(NETWORKS, groups)?;
    Ok(InterfaceRequest { interface, network, address, security_groups, source: Source::Pod(NETWORKS) })
}

/// An ElasticIP is carried by one interface only.
pub(super) fn elastic_ip_once(request: &InterfaceRequest, others: &[InterfaceRequest]) -> Result<(), AnnotationError> {
    match others.iter().find(|other| other.network == request.network) {
        Some(other) if matches!(request.network, NetworkRef::ElasticIp(_)) => Err(error(
            format!("interfaces {} and {} both carry {}", other.interface, request.interface, request.network),
            "name an ElasticIP once",
        )),
        _ => Ok(()),
    }
}
