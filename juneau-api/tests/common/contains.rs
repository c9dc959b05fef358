//! What came back compared with what was given.

use serde_json::Value;

/// Everything of `whole` that `part` has is the same.
pub(crate) fn assert_contains(whole: &Value, part: &Value, path: &str) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (name, value) in part {
                let there = whole.get(name).unwrap_or_else(|| panic!("{path}.{name} is lost"));
                assert_contains(there, value, &format!("{path}.{name}"));
            }
        }
        (Value::Array(whole), Value::Array(part)) => {
            assert_eq!(whole.len(), part.len(), "{path}");
            whole.iter().zip(part).for_each(|(whole, part)| assert_contains(whole, part, path));
        }
        _ => assert_eq!(whole, part, "{path}"),
    }
}
