//! The definitions (CRDs) of Juneau's kinds, with everything that one object can get wrong by itself.
//!
//! kube derives the shape from the types of [`kinds`](crate::kinds); the rules are added here, in one table a kind. What
//! two objects can get wrong together is for the admission webhook. With the feature `cel` `validate` holds objects to
//! the same definitions without an API server.

mod constraint;
mod rules;
#[cfg(feature = "cel")]
mod structure;
#[cfg(feature = "cel")]
mod validate;

pub use constraint::UnknownPath;
#[cfg(feature = "cel")]
pub use validate::{ValidateError, Violation, validate};

use crate::kinds;
use constraint::Constraint;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

/// The definitions, in the order of their kinds' names.
///
/// # Errors
/// [`UnknownPath`] when a rule is about a field that its kind does not have.
pub fn definitions() -> Result<Vec<CustomResourceDefinition>, UnknownPath> {
    Ok(vec![
        definition::<kinds::AllocationClaim>(rules::allocation_claim())?,
        leases()?,
        definition::<kinds::AllocationPool>(rules::allocation_pool())?,
        definition::<kinds::NetworkEndpoint>(rules::network_endpoint())?,
        definition::<kinds::NetworkInterface>(rules::network_interface())?,
        definition::<kinds::RouteTable>(rules::route_table())?,
        definition::<kinds::ServiceNATAttachment>(rules::service_nat_attachment())?,
        definition::<kinds::Subnet>(rules::subnet())?,
        definition::<kinds::Vpc>(rules::vpc())?,
        definition::<kinds::VpcEndpoint>(rules::vpc_endpoint())?,
    ])
}

/// Why the definitions cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum YamlError {
    /// A rule does not fit its kind.
    #[error(transparent)]
    Rule(#[from] UnknownPath),
    /// A definition has no YAML.
    #[error("{name}: {message}")]
    Yaml {
        /// The definition.
        name: String,
        /// What is wrong.
        message: String,
    },
}

/// The definitions as YAML, each with the name of its file in `deploy/crds`.
///
/// # Errors
/// [`YamlError`].
pub fn yaml() -> Result<Vec<(String, String)>, YamlError> {
    let file = |definition: CustomResourceDefinition| {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let text = serde_saphyr::to_string(&definition)
            .map_err(|error| YamlError::Yaml { name: name.clone(), message: error.to_string() })?;
        Ok((format!("{}.yaml", definition.spec.names.plural), text))
    };
    definitions()?.into_iter().map(file).collect()
}

fn definition<K: CustomResourceExt>(constraints: Vec<Constraint>) -> Result<CustomResourceDefinition, UnknownPath> {
    let mut definition = K::crd();
    for version in &mut definition.spec.versions {
        let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
            continue;
        };
        polish(schema);
        for constraint in &constraints {
            constraint.apply(schema)?;
        }
        may_say_nothing(schema);
    }
    Ok(definition)
}

/// Leases are ready from the first: what is in force of the status is the definition's default, which servers fill in
/// when they read a lease that nobody gave a status.
fn leases() -> Result<CustomResourceDefinition, UnknownPath> {
    let mut definition = definition::<kinds::AllocationLease>(rules::allocation_lease())?;
    let schemas = definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
        let status = schema.properties.as_mut().and_then(|properties| properties.get_mut("status"));
        let status = status.ok_or_else(|| UnknownPath { path: "status".to_owned() })?;
        status.default = serde_json::to_value(kinds::AllocationLeaseStatus::active()).ok().map(JSON);
    }
    Ok(definition)
}

/// A spec that need not say anything may be absent. Server-side apply makes an empty one null when the object was applied
/// by the client before; a server fills in what has a default in the place of a null, and refuses it otherwise.
fn may_say_nothing(schema: &mut JSONSchemaProps) {
    let spec = schema.properties.as_mut().and_then(|properties| properties.get_mut("spec"));
    let needs = |spec: &JSONSchemaProps| {
        let fields = spec.required.as_ref().is_some_and(|fields| !fields.is_empty());
        fields || spec.x_kubernetes_validations.as_ref().is_some_and(|rules| !rules.is_empty())
    };
    if let Some(spec) = spec.filter(|spec| !needs(spec)) {
        spec.default = Some(JSON(serde_json::json!({})));
    }
}

/// What the derived shape says in a way that API servers warn of or that reads badly: number formats of Rust, and
/// descriptions with the line ends of the source.
fn polish(schema: &mut JSONSchemaProps) {
    if let Some(description) = &mut schema.description {
        let paragraphs: Vec<_> = description.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        *description = paragraphs.join("\n\n");
    }
    if schema.format.as_deref() == Some("uint32") {
        schema.format = Some("int64".to_owned());
        schema.maximum.get_or_insert(f64::from(u32::MAX));
    }
    schema.properties.iter_mut().flatten().for_each(|(_, property)| polish(property));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        polish(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        polish(values);
    }
}

#[cfg(test)]
mod tests;
