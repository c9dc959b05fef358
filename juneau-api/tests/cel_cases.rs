//! Every rule of the definitions, accepted and refused, without an API server. The cases are files, so that the same
//! ones are put to a real one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_api::crd::{ValidateError, definitions, validate};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// Created first, when it is there.
    old: Option<Value>,
    object: Value,
    expect: Expect,
    /// A part of what a refusal says.
    message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Accept,
    Refuse,
}

fn cases() -> BTreeMap<String, Vec<Case>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cel_cases");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let cases = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap());
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, cases.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    });
    files.collect()
}

#[test]
fn what_is_accepted_and_what_is_refused() {
    let mut wrong = Vec::new();
    for (file, cases) in cases() {
        for case in cases {
            let of = format!("{file}, {}", case.name);
            if let Some(old) = &case.old {
                validate(old, None).unwrap_or_else(|error| panic!("{of}: what is changed is not valid: {error}"));
            }
            match (case.expect, validate(&case.object, case.old.as_ref())) {
                (Expect::Accept, Ok(())) => {}
                (Expect::Refuse, Err(error @ ValidateError::Invalid(_))) => {
                    let message = case.message.expect("a refusal says why");
                    if !error.to_string().contains(&message) {
                        wrong.push(format!("{of}: {error}"));
                    }
                }
                (expect, result) => wrong.push(format!("{of}: {expect:?}, but {result:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whoever adds a rule adds the case that it refuses.
#[test]
fn every_rule_has_a_case_that_it_refuses() {
    let mut messages = BTreeSet::new();
    for definition in definitions().unwrap() {
        let schema = serde_json::to_value(&definition.spec.versions[0].schema).unwrap();
        let mut open = vec![&schema];
        while let Some(value) = open.pop() {
            if let Some(rules) = value.get("x-kubernetes-validations").and_then(Value::as_array) {
                let kind = definition.spec.names.kind.clone();
                messages.extend(rules.iter().map(|rule| (kind.clone(), rule["message"].as_str().unwrap().to_owned())));
            }
            match value {
                Value::Object(fields) => open.extend(fields.values()),
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
    }
    assert!(messages.len() > 30, "{}", messages.len());
    for case in cases().into_values().flatten() {
        if let Err(error) = validate(&case.object, case.old.as_ref()) {
            let (kind, error) = (case.object["kind"].as_str().unwrap(), error.to_string());
            messages.retain(|(of, message)| of != kind || !error.contains(message.as_str()));
        }
    }
    assert!(messages.is_empty(), "no case is refused by {messages:#?}");
}

#[test]
fn cases_are_told_apart_by_their_names() {
    let definitions = definitions().unwrap();
    let kinds: BTreeSet<_> = definitions.iter().map(|definition| definition.spec.names.plural.clone()).collect();
    let cases = cases();
    assert_eq!(cases.keys().cloned().collect::<BTreeSet<_>>(), kinds, "a file for each kind");
    for (file, cases) in cases {
        let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len(), "{file}");
        for expect in [Expect::Accept, Expect::Refuse] {
            assert!(cases.iter().any(|case| case.expect == expect), "{file} has none of {expect:?}");
        }
    }
}

#[test]
fn an_unknown_kind_says_so() {
    let error = validate(&serde_json::json!({"kind": "Router"}), None).unwrap_err();
    assert_eq!(error.to_string(), "there is no definition of kind \"Router\"");
}
