//! What runs here and there.

use serde::Serialize;

/// Versions of this program and of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionReport {
    /// This program's.
    pub client: String,
    /// The API server's. Absent: it was not asked, or did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Juneau's kinds there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub definitions: Vec<Definition>,
    /// Kinds that this program knows and the cluster does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Why the cluster is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_shown: Option<String>,
}

/// A version of the group, and its kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// Group and version.
    pub api_version: String,
    /// Kinds, sorted.
    pub kinds: Vec<String>,
}
