//! An object held to its definition without an API server.

use super::{UnknownPath, definitions, structure};
use kube::core::cel::{Validator, apply_defaults};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// One thing about an object that its definition does not allow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Violation {
    /// The field.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

/// Why an object is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValidateError {
    /// Its definition does not allow it.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Violation>),
    /// There is no definition of its kind.
    #[error("there is no definition of kind {0:?}")]
    UnknownKind(String),
    /// The definitions themselves are broken.
    #[error(transparent)]
    Definitions(#[from] UnknownPath),
}

/// Holds an object, as JSON, to the definition of its `kind`, as an API server would: types, limits and enumerations
/// first, then the CEL rules; with `old`, also what may not change. Unknown fields are for the decoder to find.
///
/// # Errors
/// [`ValidateError`] with everything that is wrong.
pub fn validate(object: &Value, old: Option<&Value>) -> Result<(), ValidateError> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let schema = schemas()?.get(kind).ok_or_else(|| ValidateError::UnknownKind(kind.to_owned()))?;
    let object = apply_defaults(schema, object);
    let mut found = Vec::new();
    structure::check(schema, &object, "", &mut found);
    if found.is_empty()
        && let Err(errors) = Validator::new().validate(schema, &object, old)
    {
        found.extend(errors.into_vec().into_iter().map(|e| Violation { path: e.field_path, message: e.message }));
    }
    if found.is_empty() { Ok(()) } else { Err(ValidateError::Invalid(found)) }
}

/// Schemas by kind.
fn schemas() -> Result<&'static BTreeMap<String, Value>, UnknownPath> {
    static SCHEMAS: OnceLock<Result<BTreeMap<String, Value>, UnknownPath>> = OnceLock::new();
    let make = || {
        let mut schemas = BTreeMap::new();
        for definition in definitions()? {
            let kind = definition.spec.names.kind;
            let version = definition.spec.versions.into_iter().next();
            let schema = version.and_then(|version| version.schema?.open_api_v3_schema);
            schemas.insert(kind, serde_json::to_value(schema).unwrap_or_default());
        }
        Ok(schemas)
    };
    SCHEMAS.get_or_init(make).as_ref().map_err(Clone::clone)
}
