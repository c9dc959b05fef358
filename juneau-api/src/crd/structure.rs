//! The part of a schema that is not CEL: types, limits, enumerations, lists without doubles.

use super::Violation;
use regex::Regex;
use serde_json::Value;

/// Everything of an object that its schema does not allow, in the words of an API server.
pub(super) fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<Violation>) {
    let mut say = |message: String| found.push(Violation { path: path.to_owned(), message });
    if value.is_null() {
        if schema["nullable"] != true {
            say("Invalid value: \"null\": must not be null".to_owned());
        }
        return;
    }
    let is_of_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    };
    if !is_of_type {
        say(format!("Invalid value: {value}: must be of type {}", schema["type"].as_str().unwrap_or_default()));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<_> = allowed.iter().map(Value::to_string).collect();
        say(format!("Unsupported value: {value}: supported values: {}", allowed.join(", ")));
    }
    let limit = |keyword: &str| schema[keyword].as_u64();
    match value {
        Value::String(text) => {
            let length = text.chars().count() as u64;
            if limit("minLength").is_some_and(|min| length < min) {
                say(format!("Invalid value: {value}: should be at least {} chars long", schema["minLength"]));
            }
            if limit("maxLength").is_some_and(|max| length > max) {
                say(format!("Too long: may not be more than {} bytes", schema["maxLength"]));
            }
            if let Some(pattern) = schema["pattern"].as_str()
                && !Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
            {
                say(format!("Invalid value: {value}: should match '{pattern}'"));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if schema["minimum"].as_f64().is_some_and(|min| number < min) {
                say(format!("Invalid value: {value}: should be greater than or equal to {}", schema["minimum"]));
            }
            if schema["maximum"].as_f64().is_some_and(|max| number > max) {
                say(format!("Invalid value: {value}: should be less than or equal to {}", schema["maximum"]));
            }
        }
        Value::Array(items) => list(schema, items, path, found),
        Value::Object(fields) => object(schema, fields, path, found),
        _ => {}
    }
}

fn list(schema: &Value, items: &[Value], path: &str, found: &mut Vec<Violation>) {
    let mut say = |path: &str, message: String| found.push(Violation { path: path.to_owned(), message });
    let count = items.len() as u64;
    if schema["minItems"].as_u64().is_some_and(|min| count < min) {
        say(path, format!("Invalid value: {count}: should have at least {} items", schema["minItems"]));
    }
    if schema["maxItems"].as_u64().is_some_and(|max| count > max) {
        say(path, format!("Too many: {count}: must have at most {} items", schema["maxItems"]));
    }
    let keys: Option<Vec<&str>> = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Some(Vec::new()),
        Some("map") => {
            schema["x-kubernetes-list-map-keys"].as_array().map(|k| k.iter().filter_map(Value::as_str).collect())
        }
        _ => None,
    };
    if let Some(keys) = keys {
        let mut seen = std::collections::HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let identity = if keys.is_empty() {
                item.to_string()
            } else {
                keys.iter().map(|key| format!("{key}: {}", item[*key])).collect::<Vec<_>>().join(", ")
            };
            if !seen.insert(identity.clone()) {
                say(&format!("{path}[{index}]"), format!("Duplicate value: {identity}"));
            }
        }
    }
    for (index, item) in items.iter().enumerate() {
        check(&schema["items"], item, &format!("{path}[{index}]"), found);
    }
}

fn object(schema: &Value, fields: &serde_json::Map<String, Value>, path: &str, found: &mut Vec<Violation>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            found.push(Violation { path: below(name), message: "Required value".to_owned() });
        }
    }
    let count = fields.len() as u64;
    if schema["maxProperties"].as_u64().is_some_and(|max| count > max) {
        let message = format!("Too many: {count}: must have at most {} items", schema["maxProperties"]);
        found.push(Violation { path: path.to_owned(), message });
    }
    for (name, value) in fields {
        let of_field = schema["properties"].get(name);
        // A server puts the default in its place.
        if value.is_null() && of_field.is_some_and(|field| field.get("default").is_some()) {
            continue;
        }
        if let Some(schema) = of_field.or_else(|| schema.get("additionalProperties").filter(|s| s.is_object())) {
            check(schema, value, &below(name), found);
        }
    }
}
