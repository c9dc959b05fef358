//! The definitions are whole, bounded, and what is committed.

use super::*;
use std::path::PathBuf;

fn schema(definition: &CustomResourceDefinition) -> &JSONSchemaProps {
    definition.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()
}

/// Calls `visit` with every field below a schema.
fn walk(schema: &JSONSchemaProps, path: &str, visit: &mut impl FnMut(&str, &JSONSchemaProps)) {
    visit(path, schema);
    for (name, property) in schema.properties.iter().flatten() {
        walk(property, &format!("{path}.{name}"), visit);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        walk(items, &format!("{path}[]"), visit);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        walk(values, &format!("{path}{{}}"), visit);
    }
}

#[test]
fn the_committed_definitions_are_current() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let renew = std::env::var_os("JUNEAU_RENEW_CRDS").is_some();
    let mut names = Vec::new();
    for (name, text) in yaml().unwrap() {
        let path = directory.join(&name);
        if renew {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "deploy/crds/{name} is not what the types say; renew it with\n    JUNEAU_RENEW_CRDS=1 cargo test -p juneau-api --lib crd::"
        );
        names.push(name);
    }
    // What kustomize reads of the directory.
    names.push("kustomization.yaml".to_owned());
    names.sort();
    let mut committed: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    committed.sort();
    assert_eq!(committed, names);
}

#[test]
fn the_yaml_is_the_definition() {
    for ((name, text), definition) in yaml().unwrap().into_iter().zip(definitions().unwrap()) {
        let read: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, definition, "{name}");
    }
}

/// What is there before anybody wrote a status.
#[test]
fn a_lease_is_ready_by_its_definition() {
    let all = definitions().unwrap();
    let defaults: Vec<_> = all
        .iter()
        .filter_map(|definition| {
            let status = &schema(definition).properties.as_ref().unwrap()["status"];
            status.default.as_ref().map(|default| (definition.spec.names.kind.as_str(), default.0.clone()))
        })
        .collect();
    let condition = serde_json::json!({"type": "Ready", "status": "True", "reason": "Active", "message": "",
        "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:00Z"});
    let status = serde_json::json!({"phase": "Active", "observedGeneration": 1, "conditions": [condition]});
    assert_eq!(defaults, [("AllocationLease", status.clone())]);
    let read: crate::kinds::AllocationLeaseStatus = serde_json::from_value(status).unwrap();
    assert!(read.is_active(Some(1)) && !read.is_active(Some(2)));
}

#[test]
fn every_field_is_explained() {
    for definition in definitions().unwrap() {
        let kind = &definition.spec.names.kind;
        walk(schema(&definition), kind, &mut |path, field| {
            let is_element = path.ends_with("[]") || path.ends_with("{}");
            // Fields of metadata and of conditions are Kubernetes' own.
            if !is_element {
                assert!(field.description.as_ref().is_some_and(|text| text.len() > 4), "{path} has no description");
            }
            let format = field.format.as_deref();
            assert!(matches!(format, None | Some("int64" | "int32" | "date-time")), "{path}: {format:?}");
        });
    }
}

#[test]
fn everything_in_a_spec_is_bounded() {
    for definition in definitions().unwrap() {
        let spec = &schema(&definition).properties.as_ref().unwrap()["spec"];
        walk(spec, &definition.spec.names.kind, &mut |path, field| match field.type_.as_deref() {
            Some("string") => assert!(
                field.max_length.is_some() || field.enum_.is_some() || field.format.is_some(),
                "{path} has no maxLength"
            ),
            Some("array") => assert!(field.max_items.is_some(), "{path} has no maxItems"),
            Some("object") if field.additional_properties.is_some() => {
                assert!(field.max_properties.is_some(), "{path} has no maxProperties");
            }
            _ => {}
        });
    }
}

#[test]
fn a_rule_about_nothing_is_an_error() {
    let mut schema = JSONSchemaProps::default();
    let error = constraint::at("spec.cidr").length(0, 3).apply(&mut schema).unwrap_err();
    assert_eq!(error.to_string(), "a rule is about spec.cidr, which the kind does not have");
}
