//! What the API server says of one object that the view lacks.

use super::Reference;
use crate::view::Object;
use serde_json::Value;

/// What the server said.
#[derive(Debug)]
pub(super) enum Answer {
    /// It is there.
    Found(Object),
    /// It is not, and was not when the question came.
    Absent,
    /// Nobody knows, for this reason.
    Unknown(String),
}

/// Asks for the object itself: without a version the server looks into its store, not at a copy that may be behind.
pub(super) async fn ask(client: &kube::Client, (kind, name): &Reference) -> Answer {
    if !is_name(&name.name) {
        return Answer::Absent;
    }
    let root = if kind.api_version().contains('/') { "apis" } else { "api" };
    let path = format!("/{root}/{}/{}/{}", kind.api_version(), kind.plural(), name.name);
    let request = match http::Request::get(path).body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return Answer::Unknown(error.to_string()),
    };
    match client.request::<Value>(request).await {
        Ok(document) => match Object::from_json(*kind, document) {
            Ok(object) => Answer::Found(object),
            Err(error) => Answer::Unknown(format!("{kind} {} cannot be decoded: {error}", name.name)),
        },
        Err(kube::Error::Api(status)) if status.code == 404 => Answer::Absent,
        Err(error) => Answer::Unknown(error.to_string()),
    }
}

/// Whether an object can have this name, by RFC 1123. Users write names, and this one becomes a part of a path.
fn is_name(name: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 253
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn only_names_become_a_part_of_a_path() {
        for name in ["a", "red-a", "a.b-1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "../secrets/x", "a/b", "a?b", "a%2fb", "Red", "a b", "-a", "a-", &"a".repeat(254)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
