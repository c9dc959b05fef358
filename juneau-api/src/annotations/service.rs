//! What a Service asks for: whose it is, and who may call it.

use super::{AnnotationError, SUBNET, filled, object_name};
use crate::names;
use std::collections::{BTreeMap, BTreeSet};

/// Service: the Vpc that it belongs to. Absent or empty: Vpc `default`.
pub const VPC: &str = "juneau.loutres.me/vpc";
/// Service: offers it to other Vpcs, if it is exactly `true`.
pub const SHARED_SERVICE: &str = "juneau.loutres.me/shared-service";
/// Service: the Vpcs that it is offered to, with commas between them. Absent: all.
pub const ALLOWED_CONSUMERS: &str = "juneau.loutres.me/shared-service-allowed-consumer-vpcs";

/// The annotations of Services, in the order of their keys.
pub const SERVICE_KEYS: [&str; 4] = [SHARED_SERVICE, ALLOWED_CONSUMERS, SUBNET, VPC];

/// Whose a Service is, and to whom it is offered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceOffer {
    /// The Vpc that owns it.
    pub vpc: String,
    /// It is offered to other Vpcs.
    pub shared: bool,
    /// The Vpcs that it is offered to; absent: all.
    pub consumers: Option<BTreeSet<String>>,
}

impl Default for ServiceOffer {
    /// Of Vpc `default`, and for nobody else.
    fn default() -> Self {
        Self { vpc: names::DEFAULT.to_owned(), shared: false, consumers: None }
    }
}

/// What the annotations of a Service say. Whether the Vpcs exist, and whether the Service's Namespace may name its own, is
/// for the caller to see.
///
/// A Service whose annotations cannot be met is in no Vpc: what it would be offered to cannot be told.
///
/// # Errors
/// [`AnnotationError`], the first that is found.
pub fn service(annotations: &BTreeMap<String, String>) -> Result<ServiceOffer, AnnotationError> {
    if annotations.contains_key(SUBNET) {
        return Err(AnnotationError::new(
            SUBNET,
            "is for Pods and Namespaces; a Service is in a Vpc, not in a Subnet",
            format!("remove it, and name the Vpc in {VPC}"),
        ));
    }
    let vpc = match filled(annotations, VPC) {
        Some(name) => object_name(VPC, "a Vpc", name)?,
        None => names::DEFAULT.to_owned(),
    };
    let shared = annotations.get(SHARED_SERVICE).is_some_and(|text| text == "true");
    let consumers = annotations.get(ALLOWED_CONSUMERS).map(|text| consumers(text)).transpose()?;
    if consumers.is_some() && !shared {
        return Err(AnnotationError::new(
            ALLOWED_CONSUMERS,
            "says who may call a shared Service, and this one is not shared",
            format!("set {SHARED_SERVICE} to \"true\", or remove this annotation"),
        ));
    }
    Ok(ServiceOffer { vpc, shared, consumers })
}

fn consumers(text: &str) -> Result<BTreeSet<String>, AnnotationError> {
    let mut consumers = BTreeSet::new();
    for name in text.split(',').map(str::trim) {
        if name.is_empty() {
            return Err(AnnotationError::new(
                ALLOWED_CONSUMERS,
                "is empty, or has an empty element",
                "name Vpcs with one comma between two, or remove the annotation to offer the Service to all",
            ));
        }
        if !consumers.insert(object_name(ALLOWED_CONSUMERS, "a Vpc", name)?) {
            return Err(AnnotationError::new(
                ALLOWED_CONSUMERS,
                format!("names Vpc/{name} twice"),
                "name each Vpc once",
            ));
        }
    }
    Ok(consumers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(annotations: &[(&str, &str)]) -> Result<ServiceOffer, AnnotationError> {
        service(&annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    fn offer(vpc: &str, shared: bool, consumers: Option<&[&str]>) -> ServiceOffer {
        let consumers = consumers.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        ServiceOffer { vpc: vpc.to_owned(), shared, consumers }
    }

    #[test]
    fn a_service_is_of_one_vpc_and_shared_only_by_the_word() {
        assert_eq!(read(&[]), Ok(ServiceOffer::default()));
        assert_eq!(read(&[]), Ok(offer("default", false, None)));
        for empty in ["", " "] {
            assert_eq!(read(&[(VPC, empty)]), Ok(offer("default", false, None)));
        }
        assert_eq!(read(&[(VPC, "red")]), Ok(offer("red", false, None)));
        for off in ["", "True", "TRUE", "yes", "1", " true", "true ", "false"] {
            assert_eq!(read(&[(VPC, "red"), (SHARED_SERVICE, off)]), Ok(offer("red", false, None)), "{off:?}");
        }
        assert_eq!(read(&[(VPC, "red"), (SHARED_SERVICE, "true")]), Ok(offer("red", true, None)));
        assert_eq!(
            read(&[(SHARED_SERVICE, "true"), (ALLOWED_CONSUMERS, "green, blue")]),
            Ok(offer("default", true, Some(&["blue", "green"])))
        );
        assert_eq!(read(&[("app.kubernetes.io/name", "x")]), Ok(ServiceOffer::default()));
    }

    #[test]
    fn what_cannot_be_met_names_the_annotation_and_the_remedy() {
        let shared = (SHARED_SERVICE, "true");
        for (annotations, key, message) in [
            (vec![(SUBNET, "red-a")], SUBNET, "is for Pods and Namespaces"),
            (vec![(SUBNET, "")], SUBNET, "is for Pods and Namespaces"),
            (vec![(VPC, "Red")], VPC, "\"Red\" cannot be the name of a Vpc"),
            (vec![(VPC, "red,blue")], VPC, "cannot be the name of a Vpc"),
            (vec![shared, (ALLOWED_CONSUMERS, "")], ALLOWED_CONSUMERS, "is empty"),
            (vec![shared, (ALLOWED_CONSUMERS, "blue,")], ALLOWED_CONSUMERS, "empty element"),
            (vec![shared, (ALLOWED_CONSUMERS, "blue,,green")], ALLOWED_CONSUMERS, "empty element"),
            (vec![shared, (ALLOWED_CONSUMERS, "blue, blue")], ALLOWED_CONSUMERS, "names Vpc/blue twice"),
            (vec![shared, (ALLOWED_CONSUMERS, "blue green")], ALLOWED_CONSUMERS, "cannot be the name of a Vpc"),
            (vec![(ALLOWED_CONSUMERS, "blue")], ALLOWED_CONSUMERS, "this one is not shared"),
            (vec![(SHARED_SERVICE, "True"), (ALLOWED_CONSUMERS, "blue")], ALLOWED_CONSUMERS, "is not shared"),
        ] {
            let error = read(&annotations).unwrap_err();
            assert_eq!(error.annotation, key);
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.to_string().contains("; "), "{error}");
        }
    }
}
